// Which communication libraries this process has loaded.
#pragma once

#include <string>

namespace veil {

std::string mpi_library_version();   // "Open MPI v4.1.4", or "" in a build without MPI
std::string nccl_library_version();  // "2.28.9", or "" in a build without NCCL

}  // namespace veil
