#include "tensor/category.h"

namespace veil {
namespace {

thread_local Category thread_category = Category::temporary;

}  // namespace

const char* category_name(Category category) {
  switch (category) {
    case Category::parameters:
      return "parameters";
    case Category::optimizer:
      return "optimizer";
    case Category::gradients:
      return "gradients";
    case Category::activations:
      return "activations";
    case Category::clip_records:
      return "clip_records";
    case Category::norms:
      return "norms";
    case Category::temporary:
      return "temporary";
    case Category::communication:
      return "communication";
    case Category::data:
      return "data";
  }
  return "";
}

CategoryScope::CategoryScope(Category category) : previous_(thread_category) {
  thread_category = category;
}
CategoryScope::~CategoryScope() {
  thread_category = previous_;
}

Category current_category() {
  return thread_category;
}

}  // namespace veil
