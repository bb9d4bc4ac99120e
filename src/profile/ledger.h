// Where the memory went. The ledger hears every allocation and free of LibTorch's allocators, on CPU, on the GPU and in pinned host memory, and books
// it under the category that is current on the thread where it happens.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/device.h"

namespace veil {

enum class Category { parameters, optimizer, gradients, activations, clip_records, norms, temporary, communication, data };
inline constexpr int kCategories = 9;
const char* category_name(Category category);  // "parameters", "clip_records", ...

// Bytes requested of the allocator, by category.
struct CategoryBytes {
  std::array<int64_t, kCategories> bytes{};
  int64_t& operator[](Category c) { return bytes[static_cast<size_t>(c)]; }
  int64_t operator[](Category c) const { return bytes[static_cast<size_t>(c)]; }
  int64_t total() const;
  bool operator==(const CategoryBytes&) const = default;
};

enum class Space { host, device, pinned };

// Books what the calling thread allocates under `category` for a scope. Outside any scope it is `temporary`.
class CategoryScope {
 public:
  explicit CategoryScope(Category category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  Category previous_;
};

// The process's ledger: the one hook into the allocators, and so the one piece of global state here.
namespace ledger {

// Starts listening. Call before the first tensor that shall be counted; a second call does nothing.
void install();
bool installed();

CategoryBytes current(Space space);
// The largest total since the last reset, and how it was made up at that moment.
CategoryBytes peak(Space space);
// The largest value of each category by itself since the last reset (they need not have been at one moment).
CategoryBytes peak_of_each(Space space);
void reset_peak(Space space);

// The allocator's own count of requested bytes, taken from the allocator and not from the ledger's book.
int64_t allocator_bytes(Space space);
// Throws std::logic_error naming space, both figures and `where` if the book and the allocator disagree.
void check(Space space, const std::string& where);

// Moves a live tensor's storage to another category.
void retag(const Tensor& tensor, Category category);

}  // namespace ledger

}  // namespace veil
