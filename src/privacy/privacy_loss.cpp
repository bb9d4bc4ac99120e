#include "privacy/privacy_loss.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "privacy/normal.h"

namespace veil::privacy {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ln of the likelihood ratio of the sampled Gaussian at x, against N(0, sigma^2).
double log_ratio(double sigma, double q, double x) {
  const double exponent = (2 * x - 1) / (2 * sigma * sigma);
  if (q == 1) return exponent;
  if (exponent < 30) return std::log1p(q * std::expm1(exponent));
  return log_add(std::log1p(-q), std::log(q) + exponent);
}

// The x where log_ratio is `value`.
double ratio_position(double sigma, double q, double value) {
  const double rest = -std::expm1(-value) + q * std::exp(-value);  // 1 - (1-q) exp(-value), without cancellation
  if (rest <= 0) return -kInfinity;
  return sigma * sigma * (std::log(rest) + value - std::log(q)) + 0.5;
}

double log_gaussian_density(double sigma, double x) {
  return -x * x / (2 * sigma * sigma) - std::log(sigma) - 0.5 * std::log(2 * std::numbers::pi);
}

// Calls visit(y, weight) at the nodes of Gauss-Legendre rules on pieces of [a, b] no wider than `widest`.
template <typename Visit>
void quadrature(double a, double b, double widest, Visit visit) {
  static constexpr std::array<double, 3> kNodes3 = {-0.7745966692414834, 0, 0.7745966692414834};
  static constexpr std::array<double, 3> kWeights3 = {5.0 / 9, 8.0 / 9, 5.0 / 9};
  static constexpr std::array<double, 5> kNodes5 = {-0.9061798459386640, -0.5384693101056831, 0, 0.5384693101056831,
                                                    0.9061798459386640};
  static constexpr std::array<double, 5> kWeights5 = {0.2369268850561891, 0.4786286704993665, 0.5688888888888889,
                                                      0.4786286704993665, 0.2369268850561891};
  const int pieces = std::max(1, static_cast<int>(std::ceil((b - a) / widest)));
  const double half = (b - a) / (2 * pieces);
  for (int piece = 0; piece < pieces; ++piece) {
    const double middle = a + (2 * piece + 1) * half;
    if (std::abs(half) * 100 < widest) {
      for (size_t i = 0; i < 3; ++i) visit(middle + half * kNodes3[i], half * kWeights3[i]);
    } else {
      for (size_t i = 0; i < 5; ++i) visit(middle + half * kNodes5[i], half * kWeights5[i]);
    }
  }
}

// How wide a piece of the integral may be: the density varies over sigma, the loss over sigma^2.
double widest_piece(const StepLoss& loss, Cut cut) {
  return std::max(std::min(loss.sigma, loss.sigma * loss.sigma) / 4, (cut.high - cut.low) / 20000);
}

class Collector {
 public:
  explicit Collector(int64_t first, int64_t last) : mass_{first, std::vector<double>(last - first + 1)} {}
  double& operator[](int64_t index) { return mass_.values[index - mass_.first]; }
  GridMass take() { return std::move(mass_); }

 private:
  GridMass mass_;
};

}  // namespace

double StepLoss::at(double y) const {
  return direction == Direction::remove ? log_ratio(sigma, q, y) : -log_ratio(sigma, q, -y);
}

double StepLoss::position(double loss) const {
  return direction == Direction::remove ? ratio_position(sigma, q, loss) : -ratio_position(sigma, q, -loss);
}

double StepLoss::log_density(double y) const {
  const double density = log_gaussian_density(sigma, y);
  return direction == Direction::remove ? density + log_ratio(sigma, q, y) : density;
}

double StepLoss::end(double z) const {
  return (direction == Direction::remove ? 1 : 0) + z * sigma;
}

LossProfile::LossProfile(const StepLoss& loss, Cut cut) {
  const double wanted = std::min(loss.sigma, loss.sigma * loss.sigma) / 8;
  const int count = static_cast<int>(std::clamp((cut.high - cut.low) / wanted, 100.0, 4000.0));
  const double step = (cut.high - cut.low) / count;
  for (int i = 0; i < count; ++i) {
    const double y = cut.low + (i + 0.5) * step;
    position_.push_back(y);
    loss_.push_back(loss.at(y));
    log_mass_.push_back(loss.log_density(y) + std::log(step));
  }
}

double LossProfile::log_moment(double tilt) const {
  double highest = -kInfinity;
  for (size_t i = 0; i < loss_.size(); ++i) highest = std::max(highest, log_mass_[i] + tilt * loss_[i]);
  double sum = 0;
  for (size_t i = 0; i < loss_.size(); ++i) {
    const double exponent = log_mass_[i] + tilt * loss_[i] - highest;
    if (exponent > -45) sum += std::exp(exponent);
  }
  return highest + std::log(sum);
}

double LossProfile::tilted_mean(double tilt) const {
  const double total = log_moment(tilt);
  double mean = 0;
  for (size_t i = 0; i < loss_.size(); ++i) mean += std::exp(log_mass_[i] + tilt * loss_[i] - total) * loss_[i];
  return mean;
}

double LossProfile::low_cut(const StepLoss& loss, double tilt, double mass) const {
  const double allowed = std::log(mass) + log_moment(tilt);
  double result = position_.front();
  for (size_t i = 0; i < position_.size(); ++i) {
    if (log_normal_cdf(position_[i] / loss.sigma) + tilt * loss_[i] > allowed) break;
    result = position_[i];
  }
  return result;
}

GridMass rounded_up(const StepLoss& loss, Cut cut, const Grid& grid) {
  const double spacing = grid.spacing;
  const int64_t lowest = static_cast<int64_t>(std::floor(loss.at(cut.low) / spacing));
  const int64_t highest = static_cast<int64_t>(std::floor(loss.at(cut.high) / spacing));
  Collector mass(lowest, highest + 1);
  const double widest = widest_piece(loss, cut), whole = std::expm1(-spacing), lift = std::exp(grid.tilt * spacing);
  for (int64_t k = lowest; k <= highest; ++k) {
    const double floor = static_cast<double>(k) * spacing;
    const double begin = std::max(cut.low, loss.position(floor));
    const double end = std::min(cut.high, loss.position(floor + spacing));
    if (!(begin < end)) continue;
    const double shift = grid.tilt * floor - grid.scale;
    double stays = 0, rises = 0;
    quadrature(begin, end, widest, [&](double y, double weight) {
      const double share = std::clamp(std::expm1(floor - loss.at(y)) / whole, 0.0, 1.0);
      const double density = weight * std::exp(loss.log_density(y) + shift);
      stays += density * (1 - share);
      rises += density * share;
    });
    mass[k] += stays;
    mass[k + 1] += rises * lift;
  }
  // What lies below the cut; P(y < low) is at most that of N(0, sigma^2) in both directions.
  mass[lowest + 1] += std::exp(log_normal_cdf(cut.low / loss.sigma) +
                               grid.tilt * static_cast<double>(lowest + 1) * spacing - grid.scale);
  return mass.take();
}

namespace {

// Integrals over a stretch of positions: P-mass, and P-mass weighted with 1 - exp(target - L), which is 0 where
// P/Q = exp(target).
struct Stretch {
  double mass = 0, excess = 0;
};

struct Cell {
  double end = 0;
  Stretch sum;
};

struct CellCutter {
  const StepLoss& loss;
  double widest, target, shift;

  Stretch over(double a, double b) const {
    Stretch sum;
    quadrature(a, b, widest, [&](double y, double weight) {
      const double density = weight * std::exp(loss.log_density(y) + shift);
      sum.mass += density;
      sum.excess -= density * std::expm1(target - loss.at(y));
    });
    return sum;
  }
  double slope(double y) const {
    return -std::exp(loss.log_density(y) + shift) * std::expm1(target - loss.at(y));
  }

  // The end of the cell that begins at `begin`, or `high` with a negative excess where no end gives the target.
  Cell cell(double begin, double high, double spacing) const {
    const auto plus = [](Stretch a, Stretch b) { return Stretch{a.mass + b.mass, a.excess + b.excess}; };
    double low = std::min(high, loss.position(target));  // excess only falls up to here
    const Stretch falling = over(begin, low);
    double end = std::min(high, loss.position(2 * target - loss.at(begin)));
    Stretch sum = plus(falling, over(low, end));
    while (sum.excess < 0 && end < high) {
      low = end;
      end = std::min(high, end + (end - begin));
      sum = plus(sum, over(low, end));
    }
    if (sum.excess < 0) return {high, sum};
    double bracket = end;
    const double enough = 1e-13 * spacing;
    for (int i = 0; i < 60 && std::abs(sum.excess) > enough * sum.mass; ++i) {
      (sum.excess < 0 ? low : bracket) = end;
      const double gradient = slope(end);
      double next = gradient > 0 ? end - sum.excess / gradient : low;
      if (!(next > low && next < bracket)) next = 0.5 * (low + bracket);
      if (next == end) break;
      sum = plus(sum, over(end, next));
      end = next;
    }
    return {end, sum};
  }
};

}  // namespace

GridMass rounded_down(const StepLoss& loss, Cut cut, const Grid& grid) {
  const double spacing = grid.spacing;
  const int64_t lowest = static_cast<int64_t>(std::floor(loss.at(cut.low) / spacing));
  const int64_t highest = static_cast<int64_t>(std::floor(loss.at(cut.high) / spacing));
  Collector mass(lowest, highest + 3);
  CellCutter cutter{.loss = loss, .widest = widest_piece(loss, cut), .target = 0, .shift = 0};
  double begin = cut.low;
  while (begin < cut.high) {
    const double here = loss.at(begin) / spacing;
    const int64_t k = static_cast<int64_t>(std::floor(here + 0.05)) + 1;  // the next grid point that is not too near
    cutter.target = static_cast<double>(k) * spacing;
    cutter.shift = grid.tilt * cutter.target - grid.scale;
    const auto [end, sum] = cutter.cell(begin, cut.high, spacing);
    if (sum.excess < 0 && end == cut.high && sum.excess < -1e-12 * spacing * sum.mass) {
      // The rest does not reach the grid point: all of its losses are at least that of `begin`.
      const int64_t below = static_cast<int64_t>(std::floor(here));
      mass[below] += sum.mass * std::exp(grid.tilt * spacing * static_cast<double>(below - k));
    } else {
      mass[k] += sum.mass;
    }
    if (!(end > begin)) break;
    begin = end;
  }
  return mass.take();
}

}  // namespace veil::privacy
