// The goldens: $VEIL_GOLDENS, else the folder next to the repository, else the copy in it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/test_paths.h"

namespace veil {

// The goldens' folder that holds `what`, if one does.
inline std::optional<std::filesystem::path> find_goldens(const std::string& what) {
  const std::filesystem::path root = source_root();
  std::vector<std::filesystem::path> folders{root / "../shared/goldens", root / "tests/goldens"};
  if (const char* const given = std::getenv("VEIL_GOLDENS")) folders = {given};
  for (const auto& folder : folders) {
    if (std::filesystem::exists(folder / what)) return folder;
  }
  return {};
}

// Likewise; a test failure if none does.
inline std::filesystem::path goldens_with(const std::string& what) {
  const auto found = find_goldens(what);
  if (!found) ADD_FAILURE() << what << " is in none of the goldens' folders";
  return found.value_or(std::filesystem::path());
}

// Every model among the goldens, one folder each, sorted: models/, families/ and variants/<name>.
inline std::vector<std::filesystem::path> golden_model_folders() {
  std::vector<std::filesystem::path> all;
  for (const char* group : {"models", "families", "variants"}) {
    const auto found = find_goldens(group);
    if (!found) continue;
    for (const auto& entry : std::filesystem::directory_iterator(*found / group)) {
      if (std::filesystem::exists(entry.path() / "golden.json")) all.push_back(entry.path());
    }
  }
  std::sort(all.begin(), all.end());
  EXPECT_FALSE(all.empty()) << "no model among the goldens";
  return all;
}

}  // namespace veil
