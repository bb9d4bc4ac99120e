#include "base/error.h"
#include "comm/communicator.h"

namespace veil {

bool built_with_nccl() {
  return false;
}

std::unique_ptr<Communicator> make_nccl_communicator(int, Device) {
  throw MissingBackend("this build has no NCCL: build with CUDA and the CUDA wheel of torch");
}

std::string nccl_library_version() {
  return "";
}

}  // namespace veil
