#include "base/cpu_model.h"

#include <fmt/core.h>

#include <fstream>

namespace veil {

// x86 names its model; ARM gives codes of the maker and the part.
std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string model, maker, part;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_first_of("\t:")),
                      value = line.substr(colon + 2);
    if (key == "model name" && model.empty()) model = value;
    if (key == "CPU implementer" && maker.empty()) maker = value;
    if (key == "CPU part" && part.empty()) part = value;
  }
  if (!model.empty()) return model;
  if (maker == "0x41") {
    if (part == "0xd0c") return "ARM Neoverse-N1";
    if (part == "0xd40") return "ARM Neoverse-V1";
    if (part == "0xd49") return "ARM Neoverse-N2";
    if (part == "0xd4f") return "ARM Neoverse-V2";
  }
  return maker.empty() ? "unknown" : fmt::format("ARM (maker {}, part {})", maker, part);
}

std::string cpu_features() {
  std::ifstream file("/proc/cpuinfo");
  std::string features;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::string key = line.substr(0, line.find_first_of("\t:"));
    for (const char* known : {"cpu family", "model", "stepping", "flags", "cache size", "Features",
                              "CPU implementer", "CPU variant", "CPU part", "CPU revision"}) {
      if (key == known) features += line + "\n";
    }
  }
  return features;
}

}  // namespace veil
