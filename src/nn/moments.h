// The bytes of a block's backward, moment by moment: which of its temporaries live, and which a
// sink that holds reports keeps alive. A block tells it what its code makes and lets go of, in that
// order, and gets the bytes of its shape.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "nn/block.h"

namespace veil {

class Moments {
 public:
  // A temporary, by its place here. kNone: nothing, or what is no temporary.
  using Id = int;
  static constexpr Id kNone = -1;

  Id make(int64_t bytes) {
    temporaries_.push_back({bytes});
    note();
    return static_cast<Id>(temporaries_.size()) - 1;
  }
  void drop(Id id) {
    if (id != kNone) temporaries_[static_cast<size_t>(id)].lives = false;
  }
  // Comes and goes inside one operation.
  void pass(int64_t bytes) {
    largest_ = std::max(largest_, live() + bytes);
    for (int64_t& later : later_) later = std::max(later, live() + bytes);
    largest_booked_ = std::max(largest_booked_, booked() + bytes);
  }
  // The report of a parameter is made, if `shape` has one: what it holds of the temporaries.
  void report(BlockShape& shape, ParamId param, std::initializer_list<Id> holds) {
    for (size_t i = 0; i < shape.reports.size(); ++i) {
      Report& report = shape.reports[i];
      if (param < 0 || report.param != param) continue;
      reported_.push_back(i);
      later_.push_back(live());
      report.live_bytes = live();
      report.held_bytes = booked();
      for (Id id : holds) {
        if (id != kNone) temporaries_[static_cast<size_t>(id)].held = true;
      }
    }
  }
  // Everything is let go of but what reports hold. `shape.input_grad_bytes` are counted as made
  // from the start (estimate/estimator.cpp): here they are a temporary of the end.
  void finish(BlockShape& shape) {
    for (Temporary& temporary : temporaries_) temporary.lives = false;
    for (size_t i = 0; i < reported_.size(); ++i)
      shape.reports[reported_[i]].later_bytes = later_[i];
    shape.booked_bytes = booked();
    shape.backward_scratch_bytes = std::max<int64_t>(0, largest_ - shape.input_grad_bytes);
    shape.book_scratch_bytes =
        std::max<int64_t>(0, largest_booked_ - shape.booked_bytes - shape.input_grad_bytes);
  }

 private:
  struct Temporary {
    int64_t bytes;
    bool lives = true, held = false;
  };
  int64_t live() const {
    int64_t bytes = 0;
    for (const Temporary& one : temporaries_) bytes += one.lives ? one.bytes : 0;
    return bytes;
  }
  int64_t booked() const {
    int64_t bytes = 0;
    for (const Temporary& one : temporaries_) bytes += one.lives || one.held ? one.bytes : 0;
    return bytes;
  }
  void note() { pass(0); }

  std::vector<Temporary> temporaries_;
  std::vector<size_t> reported_;  // places of reports, in the order of time,
  std::vector<int64_t> later_;    // and what lives at most from each of them on
  int64_t largest_ = 0, largest_booked_ = 0;
};

}  // namespace veil
