#include <malloc.h>

#include <climits>

#include "cli/command.h"

namespace {

// A step frees its buffers and the next one makes them again. By default glibc returns large ones to
// the system, which then clears them page by page for every step.
void keep_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, INT_MAX);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
#endif
}

}  // namespace

int main(int count, char** words) {
  keep_freed_memory();
  return veil::run_veil({words + 1, words + count});
}
