#include "comm/call_place.h"

#include <fmt/core.h>

#include <utility>

namespace veil {
namespace {

thread_local CallPlace place_of_thread;

}  // namespace

std::string describe(const CallPlace& place) {
  const std::string step =
      place.step > 0 ? fmt::format("step {}", place.step) : "before the first step";
  if (place.part.empty()) return step;
  return fmt::format("{}, {} row {} ({}{}{})", step, place.part, place.row, place.op,
                     place.unit.empty() ? "" : " ", place.unit);
}

const CallPlace& current_place() {
  return place_of_thread;
}

CallPlaceScope::CallPlaceScope(int64_t step) : before_(place_of_thread) {
  place_of_thread = {};
  place_of_thread.step = step;
}

CallPlaceScope::CallPlaceScope(std::string part, int row, std::string op, std::string unit)
    : before_(place_of_thread) {
  place_of_thread = {before_.step, std::move(part), std::move(op), row, std::move(unit)};
}

CallPlaceScope::~CallPlaceScope() {
  place_of_thread = std::move(before_);
}

}  // namespace veil
