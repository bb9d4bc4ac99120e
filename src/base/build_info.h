// What this program was built from; filled in at configure time (src/base/build_info.cpp.in).
#pragma once

#include <string>

namespace veil {

struct BuildInfo {
  std::string version;  // "0.1.0"
  // of the sources when they were configured, "-dirty" after it if they were changed; "" outside a
  // git clone
  std::string commit;
  std::string compiler;                          // "GNU 12.2.0"
  std::string flags;                             // of the C++ compiler
  std::string build_type;                        // "Release"
  std::string torch_version;                     // "2.11.0"
  std::string torch_folder;                      // where the build found LibTorch
  bool cuda = false, nccl = false, mpi = false;  // backends that are built in
  bool unicode = false;                          // the same: PCRE2 and utf8proc
  bool curl = false;                             // the same: libcurl and OpenSSL
  bool sanitized = false;
};
const BuildInfo& build_info();

}  // namespace veil
