#include "base/quantity.h"

namespace veil {

std::string quantity(int64_t count, std::string_view one, std::string_view several) {
  std::string words = std::to_string(count) + " ";
  if (count == 1) return words.append(one);
  return several.empty() ? words.append(one) + "s" : words.append(several);
}

}  // namespace veil
