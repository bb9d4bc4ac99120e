// The summed privacy loss of a run in one direction, between two bounds, near one epsilon.
#pragma once

#include <functional>

#include "privacy/phase.h"
#include "privacy/privacy_loss.h"

namespace veil::privacy {

struct Bounds {
  double lower = 0, upper = 0;
};

// delta(epsilon) = E[(1 - exp(epsilon - S))+], S the summed loss. With weights exp(tilt S) it is
// exp(log_moment - tilt epsilon) E_tilted[w(S - epsilon)], w(u) = exp(-tilt u) (1 - exp(-u)) for u
// > 0.
double log_highest_weight(double tilt);  // ln of the largest w(u)

class Composition {
 public:
  // Phases are joined and have noise. `negligible` is a delta far below those of interest. The tilt
  // is the one that makes goal(tilt, ln E exp(tilt S)) smallest, a bound of what is looked for.
  using Goal = std::function<double(double tilt, double log_moment)>;
  Composition(const std::vector<Phase>& phases, Direction direction, double negligible,
              const Goal& goal);

  double tilt() const { return tilt_; }
  double goal() const { return goal_; }  // the goal's smallest value

  // The transforms, on a grid that moves epsilon by about `epsilon_error`. Before it, nothing below
  // may be called.
  void compose(double epsilon_error);
  Bounds delta(double epsilon) const;
  Bounds epsilon(double delta) const;  // no less than 0

 private:
  struct Part {
    StepLoss loss;
    double steps;
    Cut cut;
    LossProfile profile;
  };
  struct Window {
    double low, high;           // of S
    double up_tilt, down_tilt;  // Chernoff bounds of what lies outside use these
  };
  double log_moment(double tilt) const;
  Window find_window() const;
  struct Rounded {
    Grid grid;
    GridMass up, down;
  };
  void transform(const std::vector<Rounded>& rounded, size_t size);
  double outside(const std::vector<Rounded>& rounded, GridMass Rounded::*bound,
                 const Window& window) const;
  double suffix_delta(bool upper, size_t index, double epsilon) const;
  double solve_upper(double delta) const;
  double solve_lower(double delta, double upper) const;
  double solve_between(bool upper, double delta, size_t low, size_t high) const;
  double grid_value(size_t index) const {
    return reference_ + static_cast<double>(index) * spacing_;
  }

  std::vector<Part> parts_;
  double total_steps_ = 0, infinite_mass_ = 0;
  double tilt_ = 0, goal_ = 0;
  double spacing_ = 0, scale_ = 0;  // ln of the factor that undoes the weights
  double weight_error_[2] = {};     // lower, upper: how far the tilted weights can be off in sum
  int64_t first_ = 0;               // grid index of the window's first value
  double reference_ = 0;            // and what S is there
  // Lower, upper; sums over the window from a value on, of weights exp(-tilt u) and exp(-(1 + tilt)
  // u), u the distance.
  std::vector<double> sum_[2], exp_sum_[2];
};

}  // namespace veil::privacy
