// Where in a run the calling thread makes its collectives. It is told if a rank waits too long in
// one of them.
#pragma once

#include <cstdint>
#include <string>

namespace veil {

struct CallPlace {
  int64_t step = 0;      // 0: before the first one
  std::string part, op;  // of the schedule; "" outside it
  int row = 0;           // as `veil plan --schedule` numbers it
  std::string unit;
};

// "step 7, body row 12 (gather layers.1)"
std::string describe(const CallPlace& place);

// The calling thread's. Scopes nest: a row keeps the step of the scope around it.
const CallPlace& current_place();

class CallPlaceScope {
 public:
  explicit CallPlaceScope(int64_t step);
  CallPlaceScope(std::string part, int row, std::string op, std::string unit);
  ~CallPlaceScope();
  CallPlaceScope(const CallPlaceScope&) = delete;
  CallPlaceScope& operator=(const CallPlaceScope&) = delete;

 private:
  CallPlace before_;
};

}  // namespace veil
