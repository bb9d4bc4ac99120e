// The memory tracker's inside: one book per memory space, and what a backend must provide. Only its
// own files include this.
#pragma once

#include <c10/util/flat_hash_map.h>

#include <mutex>
#include <optional>

#include "profile/memory.h"

namespace veil::memory {

// Lock order: an allocator calls a book while it holds its own lock, so a book never calls an
// allocator and never allocates through LibTorch.
class Book {
 public:
  void allocated(const void* key, int64_t bytes, Category category);
  // The bytes that were booked under `key`, or -1 if it is in no book.
  int64_t freed(const void* key);
  bool retag(const void* key, Category category, std::optional<Category> from = {});

  CategoryBytes current() const;
  CategoryBytes peak(Window window) const;
  CategoryBytes peak_of_each(Window window) const;
  void reset_peak(Window window);
  RowBytes take_row();
  void note_peak(const CategoryBytes& bytes);

  // The total, and a number that changes with every allocation and free.
  struct Reading {
    int64_t total;
    uint64_t version;
    bool operator==(const Reading&) const = default;
  };
  Reading reading() const;

 private:
  struct Entry {
    int64_t bytes;
    Category category;
  };
  struct Peak {
    int64_t total = 0;
    CategoryBytes at_total, of_each;
  };
  static constexpr int kWindows = 3;

  void restart(Peak& peak);

  mutable std::mutex mutex_;
  ska::flat_hash_map<const void*, Entry> entries_;
  CategoryBytes current_;
  int64_t total_ = 0;
  uint64_t version_ = 0;
  std::array<Peak, kWindows> peaks_;
};

Book& book(Space space);

// Throws the error that `check` promises.
[[noreturn]] void disagree(Space space, int64_t booked, int64_t counted, const std::string& where);

// What memory_book_cuda.cpp provides and memory_book_no_cuda.cpp leaves out.
namespace backend {
void install();
int64_t device_requested_bytes();
void check_device(const std::string& where);
void check_pinned(const std::string& where);
AllocatorFigures device_figures(Device device);
int64_t device_outside_bytes(Device device);
}  // namespace backend

}  // namespace veil::memory
