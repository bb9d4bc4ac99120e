// The rows of the operations' table (operations_test.cpp): an operation on given inputs, and what
// it must give.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/text.h"
#include "kernels/update_rule.h"
#include "tensor/device.h"

namespace veil {

using Tensors = std::vector<Tensor>;

// An output may differ by tolerance * (1 + magnitude); 0 asks for equal bits.
struct Tolerance {
  double reference, gpu;
};

struct Row {
  std::string name;
  Tensors inputs;  // on CPU; changed in place by `run` if the operation does that
  std::function<Tensors(const Tensors&)> run;     // the operation, on the inputs' device
  std::function<Tensors(const Tensors&)> expect;  // the same in fp64, from fp64 inputs
  std::vector<Tolerance> tolerances;              // by output
};

inline const DType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

double rounding_of(DType dtype);  // half a unit in the last place, with room for a few operations
Tensor random(c10::IntArrayRef shape, DType dtype);
Tolerance stored(DType dtype);  // of results that are rounded to the model's type
// of sums and statistics, which are fp32 if the model is not fp64
Tolerance summed(DType dtype);
Tensor leaf(const Tensor& tensor);  // a copy that autograd follows
// Filled with a value that no result has, in the type of statistics.
Tensor real_like(const Tensor& tensor, c10::IntArrayRef shape);

// How results may lie on inputs.
enum class Overlap { none, first, second };
const char* name_of(Overlap overlap);

// As an update reads them.
Tensor knobs_on(Device device, const UpdateKnobs& knobs);

void add_norms(std::vector<Row>& table);
void add_ropes(std::vector<Row>& table);
void add_activations(std::vector<Row>& table);
void add_cross_entropies(std::vector<Row>& table);
void add_embedding_grads(std::vector<Row>& table);
void add_sums(std::vector<Row>& table);
void add_modulations(std::vector<Row>& table);

}  // namespace veil
