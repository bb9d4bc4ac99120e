// Poisson sampling: whether a sample is in a step is a secret draw of its own, keyed by (step,
// sample). Every rank knows the whole draw, so counts agree without communication and the draw is
// the same for every world.
#pragma once

#include <memory>

#include "data/order.h"
#include "data/users.h"
#include "kernels/chacha.h"

namespace veil::privacy {

// The samples of a step, in ascending order: each of 0 to data_size - 1 with probability q, rounded
// down to a whole number of 2^-64, independently. The key is derived for KeyDomain::sampling
// (stream_key.h). Every sample is looked at: skipping ahead by geometric gaps would tie a sample's
// draw to those before it.
std::vector<int64_t> poisson_draw(const ChaChaKey& key, int64_t step, int64_t data_size, double q);

// `draw`, or if it has more than `most` units that many of them, in ascending order: those with
// the smallest of 64 secret bits each, keyed by (step, unit), so a uniformly random part. The key
// is poisson_draw's; no block of it comes twice.
std::vector<int64_t> cut_draw(const ChaChaKey& key, int64_t step, std::vector<int64_t> draw,
                              int64_t most);

// Which of its `count` samples a drawn user contributes to a step: uniform from 64 secret bits
// keyed by (step, user) under poisson_draw's key, whoever else is drawn and whatever they own.
int64_t chosen_place(const ChaChaKey& key, int64_t step, int64_t user, int64_t count);

// One rank's part of a draw: its micro-batches one after another.
struct Deal {
  // the same on every rank; 0 for an empty draw, which still adds noise and still counts
  int64_t micro_batches = 0;
  // [micro_batches * micro_batch]; data::kNoSample behind the rank's own
  std::vector<int64_t> samples;
};
// Rank r takes places r, r + W, r + 2 W, ... of the draw, so shares differ by one sample at most.
// As many micro-batches as a draw of `at_least` units needs, if the draw has fewer.
Deal deal_out(const std::vector<int64_t>& draw, int64_t micro_batch, int64_t rank, int64_t world,
              int64_t at_least = 0);
// A rank's micro-batches of a draw of so many units.
int64_t micro_batches_for(int64_t units, int64_t micro_batch, int64_t world);

// What is drawn, besides every sample with probability q.
struct DrawOptions {
  int64_t most = 0;  // cut_draw's, and every step has the micro-batches of so many units; 0: none
  // users are drawn, and each contributes one sample; null: samples are drawn
  std::shared_ptr<const data::Users> users = nullptr;
};

// Poisson sampling as an order of samples. There are no epochs: a position's step is the run's
// step, and it never ends. A step's samples are Deal::samples, so their number differs from step to
// step and is 0 for an empty draw.
class PoissonOrder : public data::Order {
 public:
  // UserError unless there is data, 0 < q <= 1 and a micro-batch holds a sample. data_size counts
  // what is drawn: users, if there are some.
  PoissonOrder(const ChaChaKey& key, int64_t data_size, double q, int64_t micro_batch,
               int64_t rank = 0, int64_t world = 1, DrawOptions options = {});
  std::vector<int64_t> samples(const data::Position& position) override;
  std::optional<data::Position> after(const data::Position& position) const override;

 private:
  ChaChaKey key_;
  int64_t data_size_;
  double q_;
  int64_t micro_batch_, rank_, world_;
  DrawOptions options_;
};

}  // namespace veil::privacy
