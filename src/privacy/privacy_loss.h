// The privacy loss L = ln(dP/dQ), under P, of one step of the Poisson-sampled Gaussian, and its
// rounding to a grid.
//
// Both directions of add/remove-one are needed. `remove`: P = (1-q) N(0, s^2) + q N(1, s^2), Q =
// N(0, s^2); `add`: P and Q exchanged. Together they dominate every pair of neighbours, also after
// composition (Zhu, Dong and Wang, "Optimal Accounting of Differential Privacy via Characteristic
// Function", 2022).
//
// A position y is chosen so that the loss grows with it: the output itself for remove, its negative
// for add.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace veil::privacy {

enum class Direction { add, remove };

struct StepLoss {
  double sigma = 1, q = 1;
  Direction direction = Direction::remove;

  double at(double y) const;  // L
  // the y of a loss; -infinity or infinity if no y has one so small or so large
  double position(double loss) const;
  double log_density(double y) const;  // ln of P's density
  double end(double z) const;          // P(y > end(z)) <= Phi(-z)
};

// Where positions are cut. P-mass above `high` counts as loss infinity (a bound from above) or not
// at all (from below); mass under `low` moves up to `low`, or does not count.
struct Cut {
  double low = 0, high = 0;
};

// Losses loss(i), growing; the first is at or below the loss at Cut::low, the last above that at
// Cut::high.
struct Grid {
  double spacing = 1, offset = 0, tilt = 0, scale = 0;
  std::vector<int64_t> points = {};
  double loss(size_t i) const { return static_cast<double>(points[i]) * spacing + offset; }
};

// A coarse picture of one step's loss, for choosing tilts and windows. Nothing that must be a bound
// rests on it.
class LossProfile {
 public:
  LossProfile(const StepLoss& loss, Cut cut);
  double log_moment(double tilt) const;   // ln E exp(tilt L)
  double tilted_mean(double tilt) const;  // mean of L under weights exp(tilt L)
  double tilted_variance(double tilt) const;
  // The highest position below which the tilted mass is at most `mass`, even when all of it is
  // moved up to there.
  double low_cut(const StepLoss& loss, double tilt, double mass) const;
  // Which points of a grid, from the loss `lowest` on, carry mass: all of them if the tilted
  // loss lies, fewer the rarer it gets. Rounding over a cell w wide costs w^2 times its mass, so
  // rare losses are rounded far for little.
  std::vector<int64_t> grid_points(double lowest, const Grid& grid) const;

 private:
  std::vector<double> position_, loss_, log_mass_;
  double last_loss_;  // at Cut::high
};

// An offset with which one grid point is the loss of the outputs that tell next to nothing. With a
// small q they are nearly all, and their loss is ln(1-q) and a little: a grid much coarser than q
// must not round it away.
double grid_offset(const StepLoss& loss, Cut cut, double spacing);

// values[i] is P(L = x) exp(tilt x - scale), x = grid.loss(i): weighted mass, one value a grid
// point.
using GridMass = std::vector<double>;

// Loss rounded to the grid so that no delta(epsilon) of any composition falls. A loss between two
// grid points is split over both so that E exp(-L) stays: delta is convex in exp(-L), so it rises
// (Jensen). This is the "connect the dots" rounding of Doroshenko, Ghazi, Kamath, Kumar and
// Manurangsi (2022); it costs O(spacing^2).
GridMass rounded_up(const StepLoss& loss, Cut cut, const Grid& grid);

// Loss merged so that no delta(epsilon) rises: outputs are joined into cells (post-processing), cut
// so that P(cell) / Q(cell) is the exponential of a grid point.
GridMass rounded_down(const StepLoss& loss, Cut cut, const Grid& grid);

}  // namespace veil::privacy
