#include "cli/bug_report.h"

#include <fmt/core.h>
#include <gnu/libc-version.h>
#include <pwd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/outputs.h"
#include "base/text.h"
#include "comm/launch.h"
#include "data/http.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

// Of the variables that Veil, its launchers and its libraries look at.
constexpr const char* kReportedNames[] = {
    "ATEN_",  "BLIS_",    "CUBLAS",    "CUDA_",   "CUDNN_",     "DNNL_",   "GOMP_",
    "HF_",    "HTTP_",    "HTTPS_",    "KMP_",    "LD_",        "MASTER_", "MKL_",
    "NCCL_",  "NVIDIA_",  "NO_PROXY",  "OMP_",    "OMPI_",      "ONEDNN_", "OPENBLAS_",
    "PMIX_",  "PYTORCH_", "RANK",      "LOCAL_",  "SLURM_",     "TORCH",   "VEIL_",
    "WORLD_", "TMPDIR",   "XDG_CACHE", "MALLOC_", "http_proxy", "TERM",    "https_proxy"};

// Names alone: a value may be a token.
std::vector<std::string> reported_environment() {
  std::vector<std::string> found;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string name = std::string(*entry).substr(0, std::string(*entry).find('='));
    const bool reported = std::any_of(std::begin(kReportedNames), std::end(kReportedNames),
                                      [&](const char* begin) { return name.starts_with(begin); });
    if (reported) found.push_back(printable(name, 80));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string os_name() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("PRETTY_NAME=")) continue;
    std::erase(line, '"');
    return printable(line.substr(12), 80);
  }
  return "";
}

std::vector<std::string> home_folders() {
  std::vector<std::string> found;
  if (const char* const home = std::getenv("HOME")) found.emplace_back(home);
  if (const passwd* const entry = getpwuid(getuid()); entry && entry->pw_dir)
    found.emplace_back(entry->pw_dir);
  std::erase_if(found, [](const std::string& folder) { return folder.size() < 2; });
  return found;
}

// Compiler flags may hold a path.
std::string without_homes(std::string text) {
  for (const std::string& home : home_folders()) {
    for (size_t at = text.find(home); at != std::string::npos; at = text.find(home))
      text = text.substr(0, at) + "~" + text.substr(at + home.size());
  }
  return text;
}

Json picked(const nlohmann::json& from, std::initializer_list<const char*> keys) {
  Json result;
  for (const char* key : keys) {
    if (!from.contains(key)) continue;
    const nlohmann::json& value = from[key];
    result[key] = value.is_string() ? Json(without_homes(value.get<std::string>())) : Json(value);
  }
  return result;
}

}  // namespace

Json bug_report(const nlohmann::json& health) {
  const nlohmann::json& machine = health.at("machine");
  Json report = {{kWrittenBy, kWriter}};
  report["build"] = picked(health.at("build"), {"version", "commit", "build_type", "sanitized",
                                                "compiler", "flags", "libtorch", "backends"});
  utsname system{};
  uname(&system);
  report["system"] = {
      {"os", os_name()},
      {"kernel", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
      {"c_library", fmt::format("glibc {}", gnu_get_libc_version())}};
  report["machine"] = picked(machine, {"cpu", "gpus"});
  report["libraries"] = picked(machine, {"cuda_runtime", "cudnn", "nccl", "mpi"});
  report["libraries"]["curl"] = http_library_version();
  report["libraries"]["images"] = health.at("image_libraries");
  // Whether they are there; where they are may be a home folder.
  for (const auto& [name, path] : health.at("programs").items())
    report["programs"][name] = !path.get<std::string>().empty();
  report["missing"] = health.at("missing");
  report["environment_names"] = reported_environment();
  return report;
}

}  // namespace veil
