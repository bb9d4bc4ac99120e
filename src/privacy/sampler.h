// Poisson sampling: whether a sample is in a step is a secret draw of its own, keyed by (step,
// sample). Every rank knows the whole draw, so counts agree without communication and the draw is
// the same for every world.
#pragma once

#include "data/order.h"
#include "kernels/chacha.h"

namespace veil::privacy {

// The samples of a step, in ascending order: each of 0 to data_size - 1 with probability q, rounded
// down to a whole number of 2^-64, independently. The key is derived for KeyDomain::sampling
// (stream_key.h). Every sample is looked at: skipping ahead by geometric gaps would tie a sample's
// draw to those before it.
std::vector<int64_t> poisson_draw(const ChaChaKey& key, int64_t step, int64_t data_size, double q);

// One rank's part of a draw: its micro-batches one after another.
struct Deal {
  // the same on every rank; 0 for an empty draw, which still adds noise and still counts
  int64_t micro_batches = 0;
  // [micro_batches * micro_batch]; data::kNoSample behind the rank's own
  std::vector<int64_t> samples;
};
// Rank r takes places r, r + W, r + 2 W, ... of the draw, so shares differ by one sample at most.
Deal deal_out(const std::vector<int64_t>& draw, int64_t micro_batch, int64_t rank, int64_t world);

// Poisson sampling as an order of samples. There are no epochs: a position's step is the run's
// step, and it never ends. A step's samples are Deal::samples, so their number differs from step to
// step and is 0 for an empty draw.
class PoissonOrder : public data::Order {
 public:
  // UserError unless there is data, 0 < q <= 1 and a micro-batch holds a sample.
  PoissonOrder(const ChaChaKey& key, int64_t data_size, double q, int64_t micro_batch,
               int64_t rank = 0, int64_t world = 1);
  std::vector<int64_t> samples(const data::Position& position) override;
  std::optional<data::Position> after(const data::Position& position) const override;

 private:
  ChaChaKey key_;
  int64_t data_size_;
  double q_;
  int64_t micro_batch_, rank_, world_;
};

}  // namespace veil::privacy
