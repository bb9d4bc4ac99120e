// Which rows a sink has heard of in a body: the first report of them may overwrite, a later one (a tied weight, other samples) adds.
#pragma once

#include <algorithm>
#include <vector>

#include "nn/grad_sink.h"

namespace veil {

class ReportedRows {
 public:
  explicit ReportedRows(size_t params) : rows_(params) {}
  void clear() {
    for (auto& rows : rows_) rows.clear();
  }
  bool any(ParamId param) const { return !rows_[static_cast<size_t>(param)].empty(); }
  // Whether it was heard of before; it is now. `key`: the first row, or whatever tells reports of one parameter apart.
  bool again(ParamId param, int64_t key) {
    std::vector<int64_t>& rows = rows_[static_cast<size_t>(param)];
    if (std::find(rows.begin(), rows.end(), key) != rows.end()) return true;
    rows.push_back(key);
    return false;
  }

 private:
  std::vector<std::vector<int64_t>> rows_;  // by parameter
};

}  // namespace veil
