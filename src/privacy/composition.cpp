#include "privacy/composition.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "privacy/numerics.h"

namespace veil::privacy {
namespace {

using Complex = std::complex<double>;
constexpr double kOutside = 1e-13;  // tilted mass that the window may leave out, each side
constexpr size_t kSmallest = size_t{1} << 10, kLargest = size_t{1} << 20;  // of the transforms

// The x > 0 that makes f smallest, by a scan over powers and a golden-section search around the
// best.
template <typename F>
double minimize(double from, double to, F f) {
  const int points = 1 + static_cast<int>(std::ceil(6 * std::log10(to / from)));
  const double step = std::log(to / from) / (points - 1);
  int best = 0;
  double least = kInfinity;
  for (int i = 0; i < points; ++i) {
    const double value = f(from * std::exp(i * step));
    if (value < least) {
      least = value;
      best = i;
    }
  }
  double a = (best - 1) * step, b = (best + 1) * step;
  constexpr double kGolden = 0.3819660112501051;
  for (int i = 0; i < 25; ++i) {
    const double c = a + kGolden * (b - a), d = b - kGolden * (b - a);
    if (f(from * std::exp(c)) < f(from * std::exp(d))) {
      b = d;
    } else {
      a = c;
    }
  }
  return from * std::exp(0.5 * (a + b));
}

Complex power(Complex base, double exponent) {
  const double magnitude = std::abs(base);
  if (magnitude == 0) return 0;
  const double log_magnitude = exponent * std::log(magnitude);
  return log_magnitude < -100 ? Complex(0)
                              : std::polar(std::exp(log_magnitude), exponent * std::arg(base));
}

}  // namespace

double log_highest_weight(double tilt) {
  return -tilt * std::log1p(1 / tilt) - std::log1p(tilt);
}

Composition::Composition(const std::vector<Phase>& phases, Direction direction, double negligible,
                         const Goal& goal) {
  for (const Phase& phase : phases) total_steps_ += static_cast<double>(phase.steps);
  // Phi(-z) <= exp(-z^2/2) / 2
  const double z = std::sqrt(2 * std::max(1.0, std::log(total_steps_ / (2 * negligible))));
  infinite_mass_ = total_steps_ * std::exp(log_normal_cdf(-z));
  for (const Phase& phase : phases) {
    const StepLoss loss{.sigma = phase.sigma, .q = phase.q, .direction = direction};
    const Cut cut{.low = -z * phase.sigma, .high = loss.end(z)};
    parts_.push_back({loss, static_cast<double>(phase.steps), cut, LossProfile(loss, cut)});
  }
  tilt_ = minimize(1e-7, 1e9, [&](double tilt) { return goal(tilt, log_moment(tilt)); });
  goal_ = goal(tilt_, log_moment(tilt_));
  // Where losses have an end (add) the best tilt can be so large that no grid resolves it. For a
  // normal S it is sqrt(-2 ln delta) deviations^-1.
  double variance = 0;
  for (const Part& part : parts_) variance += part.steps * part.profile.tilted_variance(0);
  tilt_ = std::min(tilt_, 4 * std::sqrt(-2 * std::log(negligible) / variance));
}

double Composition::log_moment(double tilt) const {
  double sum = 0;
  for (const Part& part : parts_) sum += part.steps * part.profile.log_moment(tilt);
  return sum;
}

// Where S lies under the tilt, by Chernoff's bound on either side.
Composition::Window Composition::find_window() const {
  const double here = log_moment(tilt_);
  const auto reach = [&](double sign) {
    return [this, sign, here](double more) {
      return (log_moment(tilt_ + sign * more) - here - std::log(kOutside)) / more;
    };
  };
  double variance = 0;
  for (const Part& part : parts_) variance += part.steps * part.profile.tilted_variance(tilt_);
  // For a normal S the best is sqrt(-2 ln kOutside) deviations^-1, about 8.
  const double unit = 1 / std::sqrt(variance);
  const double up = minimize(0.001 * unit, 20 * unit, reach(1)),
               down = minimize(0.001 * unit, 20 * unit, reach(-1));
  return {.low = -reach(-1)(down), .high = reach(1)(up), .up_tilt = up, .down_tilt = down};
}

void Composition::compose(double epsilon_error) {
  const Window window = find_window();
  const double width = window.high - window.low;
  // A rounding up by D, E exp(-D) = 1, E D^2 about spacing^2 / 6, raises ln delta by tilt (1 +
  // tilt) E D^2 / 2 a step.
  const double wanted = std::sqrt(12 * epsilon_error / (total_steps_ * (1 + tilt_)));
  if (!(width > 0 && std::isfinite(width) && wanted > 0)) {  // nothing is known then
    spacing_ = 1;
    for (int which = 0; which < 2; ++which)
      sum_[which] = exp_sum_[which] = {std::nan(""), std::nan("")};
    return;
  }
  const double cells =
      std::clamp(width / wanted, static_cast<double>(kSmallest), static_cast<double>(kLargest));
  const size_t size = std::bit_ceil(static_cast<size_t>(cells));
  spacing_ = width / static_cast<double>(size - 2);
  std::vector<Rounded> rounded;
  double offset = 0;  // of S
  scale_ = 0;
  for (const Part& part : parts_) {
    Grid grid{.spacing = spacing_,
              .offset = grid_offset(part.loss, part.cut, spacing_),
              .tilt = tilt_,
              .scale = part.profile.log_moment(tilt_)};
    offset += part.steps * grid.offset;
    Cut cut = part.cut;
    cut.low = part.profile.low_cut(part.loss, tilt_, 1e-16 / total_steps_);
    grid.points = part.profile.grid_points(part.loss.at(cut.low), grid);
    GridMass up = rounded_up(part.loss, cut, grid), down = rounded_down(part.loss, cut, grid);
    // Weights that sum to 1, so that their powers stay near 1.
    double sum = 0;
    for (const double value : up) sum += value;
    for (double& value : up) value /= sum;
    for (double& value : down) value /= sum;
    scale_ += part.steps * (grid.scale + std::log(sum));
    rounded.push_back({std::move(grid), std::move(up), std::move(down)});
  }
  // Floating point: a transform's relative error is about log2(size) units, a step's masses are
  // right to 5e-14, and powers multiply both by the steps.
  const double transforms = 4 * std::numeric_limits<double>::epsilon() * std::bit_width(size);
  const double rounding = (total_steps_ + 1) * (transforms + 5e-14);
  weight_error_[1] = outside(rounded, &Rounded::up, window) + rounding;
  weight_error_[0] = outside(rounded, &Rounded::down, window) + rounding;
  first_ = static_cast<int64_t>(std::floor((window.low - offset) / spacing_));
  reference_ = static_cast<double>(first_) * spacing_ + offset;
  transform(rounded, size);
}

// Tilted mass of S outside the window, by Chernoff's bound.
double Composition::outside(const std::vector<Rounded>& rounded, GridMass Rounded::*bound,
                            const Window& window) const {
  const auto chernoff = [&](double more, double edge) {
    double log_sum = -more * edge;
    for (size_t part = 0; part < parts_.size(); ++part) {
      const Grid& grid = rounded[part].grid;
      const GridMass& mass = rounded[part].*bound;
      const double middle = parts_[part].profile.tilted_mean(tilt_);
      double moment = 0;
      for (size_t i = 0; i < mass.size(); ++i) {
        if (mass[i] <= 0) continue;
        const double exponent = more * (grid.loss(i) - middle);
        moment +=
            exponent > 500 ? std::exp(exponent + std::log(mass[i])) : mass[i] * std::exp(exponent);
      }
      log_sum += parts_[part].steps * (std::log(moment) + more * middle);
    }
    return std::exp(log_sum);
  };
  return chernoff(window.up_tilt, window.high) + chernoff(-window.down_tilt, window.low);
}

// Both bounds in one transform: the upper one as real, the lower one as imaginary part.
void Composition::transform(const std::vector<Rounded>& rounded, size_t size) {
  const auto wrapped = [size](int64_t index) { return static_cast<size_t>(index) & (size - 1); };
  std::vector<Complex> product(size);
  for (size_t part = 0; part < parts_.size(); ++part) {
    std::vector<Complex> spectrum(size);
    const std::vector<int64_t>& points = rounded[part].grid.points;
    for (size_t i = 0; i < points.size(); ++i)
      spectrum[wrapped(points[i])] += Complex(rounded[part].up[i], rounded[part].down[i]);
    fft(spectrum);
    for (size_t k = 0; k <= size / 2; ++k) {
      const size_t mirror = (size - k) & (size - 1);
      const Complex here = spectrum[k], there = std::conj(spectrum[mirror]);
      Complex upper = power(0.5 * (here + there), parts_[part].steps);
      Complex lower = power(Complex(0, -0.5) * (here - there), parts_[part].steps);
      if (part > 0) {
        const Complex before = product[k], before_there = std::conj(product[mirror]);
        upper *= 0.5 * (before + before_there);
        lower *= Complex(0, -0.5) * (before - before_there);
      }
      product[k] = upper + Complex(0, 1) * lower;
      product[mirror] = std::conj(upper) + Complex(0, 1) * std::conj(lower);
    }
  }
  inverse_fft(product);

  const double fall = std::exp(-tilt_ * spacing_), exp_fall = fall * std::exp(-spacing_);
  for (int which = 0; which < 2; ++which) {
    sum_[which].assign(size + 1, 0);
    exp_sum_[which].assign(size + 1, 0);
    for (size_t j = size; j-- > 0;) {
      const Complex mass = product[wrapped(first_ + static_cast<int64_t>(j))];
      const double value = which == 1 ? mass.real() : mass.imag();
      sum_[which][j] = value + fall * sum_[which][j + 1];
      exp_sum_[which][j] = value + exp_fall * exp_sum_[which][j + 1];
    }
  }
}

// delta from the values at `index` and above; epsilon is not above grid_value(index). What the
// window, rounding and the cut of the losses can change is added to the upper bound and taken from
// the lower.
double Composition::suffix_delta(bool upper, size_t index, double epsilon) const {
  const double here = grid_value(index);
  const double value = sum_[upper][index] - std::exp(epsilon - here) * exp_sum_[upper][index];
  const double delta = std::exp(scale_ - tilt_ * here) * value;
  const double slack =
      std::exp(scale_ - tilt_ * epsilon + log_highest_weight(tilt_)) * weight_error_[upper];
  const double bound = upper ? delta + slack + infinite_mass_ : delta - slack;
  // Arithmetic that failed says nothing: no bound from above, nothing from below.
  if (std::isnan(bound)) return upper ? kInfinity : -kInfinity;
  return bound;
}

Bounds Composition::delta(double epsilon) const {
  const double place = (epsilon - reference_) / spacing_;
  const size_t size = sum_[0].size() - 1;
  const size_t index =
      static_cast<size_t>(std::clamp(std::ceil(place), 0.0, static_cast<double>(size)));
  return {.lower = std::max(0.0, suffix_delta(false, index, epsilon)),
          .upper = place < 0 ? 1 : std::min(1.0, suffix_delta(true, index, epsilon))};
}

Bounds Composition::epsilon(double delta) const {
  const double upper = solve_upper(delta);
  return {.lower = std::max(0.0, solve_lower(delta, upper)), .upper = std::max(0.0, upper)};
}

// The upper bound of delta falls all the way. An epsilon below the window is given as the window's
// end.
double Composition::solve_upper(double delta) const {
  size_t low = 0, high = sum_[0].size() - 1;
  if (suffix_delta(true, low, grid_value(low)) <= delta) return grid_value(low);
  if (suffix_delta(true, high, grid_value(high)) > delta) return kInfinity;
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    (suffix_delta(true, middle, grid_value(middle)) > delta ? low : high) = middle;
  }
  return solve_between(true, delta, low, high);
}

// The lower bound does not: its slack grows downwards. So the search goes down from the upper
// epsilon, in growing steps.
double Composition::solve_lower(double delta, double upper) const {
  const size_t size = sum_[0].size() - 1;
  const double place =
      std::isinf(upper) ? static_cast<double>(size) : std::ceil((upper - reference_) / spacing_);
  size_t high = static_cast<size_t>(std::clamp(place, 0.0, static_cast<double>(size))), low = high;
  for (size_t step = 1; suffix_delta(false, low, grid_value(low)) <= delta; step *= 2) {
    if (low == 0) return 0;
    high = low;
    low -= std::min(low, step);
  }
  if (low == high) return grid_value(low);
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    (suffix_delta(false, middle, grid_value(middle)) > delta ? low : high) = middle;
  }
  return solve_between(false, delta, low, high);
}

// Between two neighbouring grid values; delta is above the target at the first and not above it at
// the second.
double Composition::solve_between(bool upper, double delta, size_t low, size_t high) const {
  double left = grid_value(low), right = grid_value(high);
  for (int i = 0; i < 60 && right - left > 1e-14 * std::abs(right); ++i) {
    const double middle = 0.5 * (left + right);
    (suffix_delta(upper, high, middle) > delta ? left : right) = middle;
  }
  return upper ? right : left;
}

}  // namespace veil::privacy
