// Where the goldens lie: $VEIL_GOLDENS, else the folder beside the repository, else the copy in it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/test_paths.h"

namespace veil {

// The goldens' folder that holds `what`; a test failure where none does.
inline std::filesystem::path goldens_with(const std::string& what) {
  const std::filesystem::path root = source_root();
  std::vector<std::filesystem::path> folders{root / "../shared/goldens", root / "tests/goldens"};
  if (const char* const given = std::getenv("VEIL_GOLDENS")) folders = {given};
  for (const auto& folder : folders) {
    if (std::filesystem::exists(folder / what)) return folder;
  }
  ADD_FAILURE() << what << " is in none of the goldens' folders";
  return {};
}

}  // namespace veil
