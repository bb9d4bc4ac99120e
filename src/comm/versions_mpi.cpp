#define OMPI_SKIP_MPICXX 1  // the C interface only
#include <mpi.h>

#include "comm/versions.h"

namespace veil {

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown";  // allowed before MPI_Init
  const std::string version(text);
  return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace veil
