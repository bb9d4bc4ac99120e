// What memory is for. The category is the calling thread's; the memory tracker (profile/memory.h)
// books allocations under it.
#pragma once

namespace veil {

enum class Category {
  parameters,
  optimizer,
  gradients,
  activations,
  clip_records,
  norms,
  temporary,
  communication,
  data
};
inline constexpr int kCategories = 9;
const char* category_name(Category category);  // "parameters", "clip_records", ...

// Books what the calling thread allocates under `category` for a scope; scopes nest. Outside any
// scope, and on LibTorch's own helper threads, it is `temporary`.
class CategoryScope {
 public:
  explicit CategoryScope(Category category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  Category previous_;
};

Category current_category();

}  // namespace veil
