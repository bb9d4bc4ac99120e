// What a layer tells of its parameters in backward. The layer reports raw material; the sink
// decides what becomes of it: a sum, squared norms, per-sample gradients, or a booking for later.
// The batch is first in every shape.
//
// One report covers whole samples. Several may split a parameter's rows or the batch; none may
// split one sample's tokens, for norms do not add over tokens. What was reported is not overwritten
// afterwards: a sink may hold it.
#pragma once

#include <algorithm>
#include <vector>

#include "tensor/device.h"

namespace veil {

using ParamId = int;  // index into ModelShape::params

// What a report is about. Rows may run on into the parameters that are joined behind this one
// (ParamShape::joined).
struct ReportOf {
  ParamId param = 0;
  int64_t row = 0;           // the first row
  int64_t first_sample = 0;  // of the micro-batch: if a report covers a part of it
};

class GradSink {
 public:
  virtual ~GradSink() = default;
  // dW_i = g_i^T a_i, for the rows [row, row + p). a [batch, (tokens,) d], g [batch, (tokens,) p].
  virtual void linear(ReportOf of, const Tensor& a, const Tensor& g) = 0;
  // Rows added by token: ids [batch, tokens], g [batch, tokens, d].
  virtual void embedding(ParamId table, const Tensor& ids, const Tensor& g) = 0;
  // Already one gradient per sample: biases, norm weights, positions. per_sample [batch, n]: of the
  // parameter's first n elements (n may run on into joined ones); the others have none.
  virtual void direct(ParamId param, const Tensor& per_sample) = 0;
};

// Which rows a sink has heard of in a body: the first report of them may overwrite, a later one (a
// tied weight, other samples) adds.
class ReportedRows {
 public:
  explicit ReportedRows(size_t params) : rows_(params) {}
  void clear() {
    for (auto& rows : rows_) rows.clear();
  }
  bool any(ParamId param) const { return !rows_[static_cast<size_t>(param)].empty(); }
  // Whether it was heard of before; it is now. `key`: the first row, or whatever tells reports of
  // one parameter apart.
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
