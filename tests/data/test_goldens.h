// Where the tokenizers' goldens are, and lines of JSON read from them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_paths.h"

namespace veil::data {

// $VEIL_GOLDENS, else the goldens next to the repository, else the copy in it.
inline std::filesystem::path tokenizer_goldens() {
  const std::filesystem::path root = source_root();
  std::vector<std::filesystem::path> folders{root / "../shared/goldens", root / "tests/goldens"};
  if (const char* const given = std::getenv("VEIL_GOLDENS")) folders = {given};
  for (const auto& folder : folders) {
    if (std::filesystem::exists(folder / "tokenizers/cases.jsonl")) return folder / "tokenizers";
  }
  ADD_FAILURE() << "tokenizers/cases.jsonl is in none of the goldens' folders";
  return {};
}

inline std::vector<nlohmann::json> json_lines(const std::filesystem::path& path) {
  std::vector<nlohmann::json> result;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) result.push_back(nlohmann::json::parse(line));
  EXPECT_FALSE(result.empty()) << path;
  return result;
}

}  // namespace veil::data
