// The CUDA launches behind the kernels' functions: plain pointers, so that nvcc reads no LibTorch header. A build without CUDA links launch_no_cuda.cpp.
#pragma once

#include <cstdint>

#include "kernels/element.h"
#include "kernels/update_rule.h"

namespace veil::launch {

struct RandomFill {
  void* out;
  Element element;
  int64_t numel;
  bool normal;
  float scale;
  uint64_t seed;
  uint32_t domain;
  int64_t first_index;
  void* stream;
};
void random_fill(const RandomFill& fill);

struct Update {
  void* param;
  Element param_element;
  const void* grad;
  Element grad_element;
  void* state;  // states one after another, each `numel` long; fp64 where param is, otherwise fp32
  int64_t numel;
  const double* knobs;  // UpdateKnobs, on the device
  UpdateRule rule;
  int64_t first_index;
  void* stream;
};
void update(const Update& update);

struct SquaredError {
  const void* output;
  const void* target;
  void* grad;
  Element element;
  double* losses;
  int64_t batch, width;
  void* stream;
};
void squared_error(const SquaredError& error);
void add_losses(const double* losses, int64_t batch, double* total, void* stream);

void clip_scale(double* scale, const double* squared_norm, const double* max_norm, void* stream);

struct ColumnSum {
  const void* x;
  Element x_element;
  void* out;
  Element out_element;
  void* partial;  // column_sum_chunks(rows) * columns; fp64 where x or out is, otherwise fp32
  int64_t rows, columns;
  bool accumulate;
  void* stream;
};
void column_sum(const ColumnSum& sum);
// Into how many pieces the rows are cut: enough to fill a GPU, few enough to add up quickly.
inline int64_t column_sum_chunks(int64_t rows) {
  return rows <= 64 ? 1 : rows <= 64 * 64 ? (rows + 63) / 64 : 64;
}

}  // namespace veil::launch
