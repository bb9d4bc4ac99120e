// What the rows of a schedule do, in amounts that a machine has a price for: floating-point
// operations by the size of their product, bytes by what moves them, launches by the kind of row.
// Nothing runs: a model's shape and the schedule are enough.
#pragma once

#include <array>

#include "kernels/noise_values.h"
#include "step/schedule.h"

namespace veil {

// In units of 1e9 (FLOPs, bytes, numbers), or a plain count for the rows at the end.
enum class Amount {
  // FLOPs of products, by the FLOPs of one product; between two sizes they count for both in part
  product_10m,
  product_100m,
  product_1g,
  product_10g,
  product_100g,
  product_1t,
  attention_forward,
  attention_backward,
  gram,  // FLOPs of the pairs of tokens that ghost norms multiply
  tile,  // FLOPs of per-sample gradients that flash norms make in tiles
  clip,  // FLOPs of weight gradients that are added sample by sample, each with its coefficient
  logits,
  // bytes
  moved_forward,   // of activations, by everything but products
  moved_backward,  // likewise
  gram_moved,
  tile_moved,
  clip_moved,  // the sums that they are added to
  kept,        // per-sample gradients that are written, and read for their norms
  combined,    // sums of per-sample gradients
  updated,     // parameters, optimizer state and gradients that an update reads and writes
  copied,      // between host and device
  // numbers
  updated_numbers,
  noise_philox,
  noise_secure,
  noise_hardened,
  // counts
  forward_rows,
  backward_rows,
  loss_rows,
  update_rows,
  other_rows,
  norm_launches,
  steps
};
inline constexpr int kAmounts = static_cast<int>(Amount::steps) + 1;
// Raised whenever rows are counted otherwise: prices that were measured of other amounts explain
// nothing.
inline constexpr int kAmountsVersion = 2;
const NameTable<Amount>& names(Amount);

// What a machine spends on an amount, for the answer to "what bounds this step?".
enum class Bound { compute, memory, launches };
Bound bound_of(Amount amount);

struct Work {
  std::array<double, kAmounts> of = {};
  double& operator[](Amount amount) { return of[static_cast<size_t>(amount)]; }
  double operator[](Amount amount) const { return of[static_cast<size_t>(amount)]; }
  Work& operator+=(const Work& other);
  bool operator==(const Work&) const = default;
};

// A weight's product with its input: [rows, columns] at `tokens` tokens of each sample.
struct WeightProduct {
  ParamId param;
  double samples, tokens, rows, columns;
  bool trained;
  double flops() const { return 2 * samples * tokens * rows * columns; }
  double numbers() const { return samples * rows * columns; }  // of all samples' gradients
};
// Those whose per-sample norms a rule finds: of several tokens each.
std::vector<WeightProduct> normed_products(const ModelShape& shape);
// What the rule does for it; `tile` as in ClipMethod.
Work norm_work(const WeightProduct& product, privacy::NormRule rule, int64_t tile,
               const StepOptions& step);

// The work of a step's rows on the compute and copy lanes; rows of the others have none. `noise`:
// what a private step draws from.
class StepWork {
 public:
  StepWork(const Schedule& schedule, const ModelShape& shape, NoiseGenerator noise);
  Work of(const Op& op) const;

 private:
  struct BlockWork {
    std::vector<WeightProduct> products;
    double attention = 0;  // FLOPs
    Scores scores;         // instead of them, if attention holds matrices of scores
    double moved = 0;      // bytes
    int reports = 0;
  };
  BlockWork block_work(const BlockShape& block) const;
  const BlockWork& block(int b) const { return blocks_[static_cast<size_t>(b)]; }
  void add_forward(Work& work, const BlockWork& block) const;
  void add_input_grads(Work& work, const BlockWork& block) const;
  void add_weight_grads(Work& work, const BlockWork& block, GradUse use) const;
  void add_clipped(Work& work, const WeightProduct& product) const;
  Work update(const Op& op) const;
  Work combine(const Op& op) const;
  bool booked(const WeightProduct& product) const;

  const Schedule& schedule_;
  const ModelShape& shape_;
  NoiseGenerator noise_;
  double tokens_ = 1;
  std::vector<BlockWork> blocks_;  // the loss is the last
};

}  // namespace veil
