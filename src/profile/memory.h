// Where the memory went. The memory tracker hears every allocation and free of LibTorch's
// allocators, on CPU, on the GPU and in pinned host memory, and books it under the category that is
// current on the thread where it happens.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "tensor/category.h"
#include "tensor/device.h"

namespace veil {

// Bytes requested of the allocator, by category.
struct CategoryBytes {
  std::array<int64_t, kCategories> bytes{};
  int64_t& operator[](Category c) { return bytes[static_cast<size_t>(c)]; }
  int64_t operator[](Category c) const { return bytes[static_cast<size_t>(c)]; }
  int64_t total() const;
  bool operator==(const CategoryBytes&) const = default;
};

enum class Space { host, device, pinned };
inline constexpr int kSpaces = 3;
const char* space_name(Space space);  // "host", "device", "pinned"
inline Space space_of(Device device) {
  return device.is_cuda() ? Space::device : Space::host;
}

// The process's memory tracker: the one hook into the allocators, and so the one piece of global
// state here. Every function may be called on any thread.
namespace memory {

// Starts listening. Call it first thing in main, before other threads and before the first tensor:
// what was allocated earlier is in no book and stays out of allocator_bytes. A second call does
// nothing. Where a GPU answers, LibTorch's CUDA side is initialised by it.
void install();
bool installed();

CategoryBytes current(Space space);

// Peaks are kept in three windows at once, each with a start of its own.
enum class Window {
  run,       // since install
  measured,  // since the end of warm-up: the executor resets it there
  row        // since the last take_row
};
// The largest total since the window's start, and how it was made up at that moment.
CategoryBytes peak(Space space, Window window = Window::measured);
// The largest value of each category by itself since the window's start (they need not have been at
// one moment).
CategoryBytes peak_of_each(Space space, Window window = Window::measured);
void reset_peak(Space space, Window window = Window::measured);

// What a row of the schedule leaves behind and its largest moment. Taking it starts the next row.
// About 0.1 us.
struct RowBytes {
  CategoryBytes after, peak;
};
RowBytes take_row(Space space);

// Folds in a peak that is known from elsewhere. A replayed graph allocates nothing that the
// allocator sees: the executor takes rows while it captures and notes their peaks at each replay.
void note_peak(Space space, const CategoryBytes& bytes);

// The allocator's own count of requested bytes, read from the allocator and not from the tracker:
//   host    LibTorch's CPU memory reporter, which counts on all threads.
//   device  the caching allocator's requested_bytes, over all GPUs. A block that another stream
//           still uses (record_stream) stays in both counts until that use ends.
//   pinned  LibTorch counts whole blocks only, rounded up to powers of two. Its count cannot be
//           compared byte by byte, so this is the tracker's own count, and `check` compares the
//           rounded sum with LibTorch's.
int64_t allocator_bytes(Space space);
// Throws std::logic_error naming space, both figures and `where` if the book and the allocator
// disagree. Right at any moment, whatever other threads do. Costs a few microseconds.
void check(Space space, const std::string& where);

// Moves a live tensor's whole storage to another category. Views move it for all that share it.
// What is in no book (memory from before install, from outside the allocators, empty) is left
// alone; so is, with `from`, what is booked otherwise.
void retag(const Tensor& tensor, Category category, std::optional<Category> from = {});

// What the allocator holds for a device, as PyTorch's memory_allocated and memory_reserved count
// it: blocks, rounded up. On CPU there is no cache and no rounding: the tracker's own figures (host
// and pinned are apart; this is host).
struct AllocatorFigures {
  int64_t allocated_bytes = 0, max_allocated_bytes = 0;
  int64_t reserved_bytes = 0, max_reserved_bytes = 0;
};
AllocatorFigures allocator_figures(Device device);

// Memory in use that no allocator of LibTorch knows: on a GPU the CUDA context, libraries, NCCL,
// and also what other processes hold there; on CPU code, stacks and plain heap (resident size less
// the host book; below 0 while booked memory has not been touched).
int64_t outside_allocator_bytes(Device device);

}  // namespace memory

}  // namespace veil
