#include "privacy/privacy_loss.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "privacy/numerics.h"

namespace veil::privacy {
namespace {

// ln of the likelihood ratio of the sampled Gaussian at x, against N(0, sigma^2).
double log_ratio(double sigma, double q, double x) {
  const double exponent = (2 * x - 1) / (2 * sigma * sigma);
  if (q == 1) return exponent;
  if (exponent < 30) return std::log1p(q * std::expm1(exponent));
  return log_add(std::log1p(-q), std::log(q) + exponent);
}

// The x where log_ratio is `value`.
double ratio_position(double sigma, double q, double value) {
  // 1 - (1-q) exp(-value); near 0 without cancellation
  const double rest = q == 1       ? 1
                      : value < -1 ? 1 - (1 - q) * std::exp(-value)
                                   : -std::expm1(-value) + q * std::exp(-value);
  if (rest <= 0) return -kInfinity;
  return sigma * sigma * (std::log(rest) + value - std::log(q)) + 0.5;
}

double log_gaussian_density(double sigma, double x) {
  return -x * x / (2 * sigma * sigma) - std::log(sigma) - 0.5 * std::log(2 * std::numbers::pi);
}

// Calls visit(y, weight) at the nodes of Gauss-Legendre rules on pieces of [a, b] no wider than
// `widest`.
template <typename Visit>
void quadrature(double a, double b, double widest, Visit visit) {
  static constexpr std::array<double, 3> kNodes3 = {-0.7745966692414834, 0, 0.7745966692414834};
  static constexpr std::array<double, 3> kWeights3 = {5.0 / 9, 8.0 / 9, 5.0 / 9};
  static constexpr std::array<double, 5> kNodes5 = {-0.9061798459386640, -0.5384693101056831, 0,
                                                    0.5384693101056831, 0.9061798459386640};
  static constexpr std::array<double, 5> kWeights5 = {0.2369268850561891, 0.4786286704993665,
                                                      0.5688888888888889, 0.4786286704993665,
                                                      0.2369268850561891};
  const int pieces = std::max(1, static_cast<int>(std::ceil(std::abs(b - a) / widest)));
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

}  // namespace

double StepLoss::at(double y) const {
  return direction == Direction::remove ? log_ratio(sigma, q, y) : -log_ratio(sigma, q, -y);
}

double StepLoss::position(double loss) const {
  return direction == Direction::remove ? ratio_position(sigma, q, loss)
                                        : -ratio_position(sigma, q, -loss);
}

double StepLoss::log_density(double y) const {
  const double density = log_gaussian_density(sigma, y);
  return direction == Direction::remove ? density + log_ratio(sigma, q, y) : density;
}

double StepLoss::end(double z) const {
  return (direction == Direction::remove ? 1 : 0) + z * sigma;
}

LossProfile::LossProfile(const StepLoss& loss, Cut cut) : last_loss_(loss.at(cut.high)) {
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
  for (size_t i = 0; i < loss_.size(); ++i)
    highest = std::max(highest, log_mass_[i] + tilt * loss_[i]);
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
  for (size_t i = 0; i < loss_.size(); ++i)
    mean += std::exp(log_mass_[i] + tilt * loss_[i] - total) * loss_[i];
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

double LossProfile::tilted_variance(double tilt) const {
  const double total = log_moment(tilt), mean = tilted_mean(tilt);
  double sum = 0;
  for (size_t i = 0; i < loss_.size(); ++i) {
    const double apart = loss_[i] - mean;
    sum += std::exp(log_mass_[i] + tilt * loss_[i] - total) * apart * apart;
  }
  return sum;
}

std::vector<int64_t> LossProfile::grid_points(double lowest, const Grid& grid) const {
  const double tilt = grid.tilt, spacing = grid.spacing, offset = grid.offset;
  const size_t count = loss_.size();
  const double total = log_moment(tilt);
  std::vector<double> below(count + 1), above(count + 1);  // tilted mass before and from node i on
  for (size_t i = 0; i < count; ++i)
    below[i + 1] = below[i] + std::exp(log_mass_[i] + tilt * loss_[i] - total);
  for (size_t i = count; i-- > 0;)
    above[i] = above[i + 1] + std::exp(log_mass_[i] + tilt * loss_[i] - total);
  const auto node = [&](int64_t point) {  // the first with a larger loss
    return static_cast<size_t>(std::upper_bound(loss_.begin(), loss_.end(),
                                                static_cast<double>(point) * spacing + offset) -
                               loss_.begin());
  };
  constexpr int64_t kMostPoints = int64_t{1} << 21;  // of rare losses: time and memory
  const int64_t last = static_cast<int64_t>(std::floor((last_loss_ - offset) / spacing)) + 1;
  std::vector<int64_t> points{static_cast<int64_t>(std::floor((lowest - offset) / spacing))};
  const int64_t farthest = std::max({int64_t{1}, (last - points.back()) / kMostPoints,
                                     static_cast<int64_t>(0.2 / ((1 + tilt) * spacing))});
  int64_t stride = farthest;
  while (points.back() < last) {
    const size_t begin = node(points.back());
    const double from_here = above[begin > 1 ? begin - 2 : 0];
    for (stride = std::min(farthest, 2 * stride); stride > 1; stride /= 2) {
      const double rare =
          std::min(from_here, below[std::min(count, node(points.back() + stride) + 2)]);
      if (static_cast<double>(stride) <= std::pow(rare, -0.4)) break;
    }
    points.push_back(points.back() + stride);
  }
  return points;
}

double grid_offset(const StepLoss& loss, Cut cut, double spacing) {
  double begin = cut.low, end = cut.high;
  if (loss.direction == Direction::remove) {
    end = std::clamp(loss.position(loss.at(cut.low) + spacing / 2), begin, end);
  } else {
    begin = std::clamp(loss.position(loss.at(cut.high) - spacing / 2), begin, end);
  }
  double p = 0, q_less_p = 0;
  quadrature(begin, end, widest_piece(loss, cut), [&](double y, double weight) {
    const double density = weight * std::exp(loss.log_density(y));
    p += density;
    q_less_p += density * std::expm1(-loss.at(y));
  });
  return p > 1e-3 ? -std::log1p(q_less_p / p) : 0;
}

GridMass rounded_up(const StepLoss& loss, Cut cut, const Grid& grid) {
  GridMass mass(grid.points.size());
  const double widest = widest_piece(loss, cut), lowest = loss.at(cut.low);
  double end = cut.low;
  for (size_t i = 0; i + 1 < mass.size(); ++i) {
    const double floor = grid.loss(i), ceiling = grid.loss(i + 1);
    // What lies below the cut; P(y < low) is at most that of N(0, sigma^2) in both directions.
    if (floor <= lowest && lowest < ceiling)
      mass[i + 1] +=
          std::exp(log_normal_cdf(cut.low / loss.sigma) + grid.tilt * ceiling - grid.scale);
    const double begin = end;
    end = std::clamp(loss.position(ceiling), begin, cut.high);
    if (begin == end) continue;
    const double shift = grid.tilt * floor - grid.scale, whole = std::expm1(floor - ceiling);
    double stays = 0, rises = 0;
    quadrature(begin, end, widest, [&](double y, double weight) {
      const double share = std::clamp(std::expm1(floor - loss.at(y)) / whole, 0.0, 1.0);
      const double density = weight * std::exp(loss.log_density(y) + shift);
      stays += density * (1 - share);
      rises += density * share;
    });
    mass[i] += stays;
    mass[i + 1] += rises * std::exp(grid.tilt * (ceiling - floor));
  }
  return mass;
}

namespace {

// Integrals over a stretch of positions: P-mass, and P-mass weighted with 1 - exp(target - L),
// which is 0 where P/Q = exp(target).
struct Stretch {
  double mass = 0, excess = 0;
};

struct Cell {
  double end = 0;
  Stretch sum;
  bool reaches = true;  // whether P/Q of the cell is the target
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

  // The cell that begins at `begin`. Where losses get rarer steeply, or end, none has the target
  // that does not go far beyond it.
  Cell cell(double begin, double highest, double spacing) const {
    const double here = loss.at(begin);
    const double high = std::clamp(loss.position(target + 3 * spacing), begin, highest);
    const auto plus = [](Stretch a, Stretch b) {
      return Stretch{a.mass + b.mass, a.excess + b.excess};
    };
    double low = std::clamp(loss.position(target), begin, high);  // excess only falls up to here
    const Stretch falling = over(begin, low);
    double end = std::clamp(loss.position(2 * target - here), low, high);
    Stretch sum = plus(falling, over(low, end));
    while (sum.excess < 0 && end < high) {
      low = end;
      end = std::min(high, end + (end - begin));
      sum = plus(sum, over(low, end));
    }
    if (sum.excess < 0) return {high, sum, false};
    double bracket = end;
    const double enough = 1e-13 * (target - here);
    for (int i = 0; i < 60 && std::abs(sum.excess) > enough * sum.mass; ++i) {
      (sum.excess < 0 ? low : bracket) = end;
      const double gradient = slope(end);
      double next = gradient > 0 ? end - sum.excess / gradient : low;
      if (!(next > low && next < bracket)) next = 0.5 * (low + bracket);
      if (next == end) break;
      sum = plus(sum, over(end, next));
      end = next;
    }
    return {end, sum, true};
  }
};

}  // namespace

GridMass rounded_down(const StepLoss& loss, Cut cut, const Grid& grid) {
  GridMass mass(grid.points.size());
  CellCutter cutter{.loss = loss, .widest = widest_piece(loss, cut), .target = 0, .shift = 0};
  double begin = cut.low;
  size_t i = 0;
  while (begin < cut.high) {
    const double here = loss.at(begin);
    // The next grid point that is not too near; the first may be (Grid::offset).
    const double nearest = begin == cut.low ? 0 : 0.05;
    while (i + 1 < mass.size() && grid.loss(i) <= here + nearest * (grid.loss(i + 1) - here)) ++i;
    cutter.target = grid.loss(i);
    cutter.shift = grid.tilt * cutter.target - grid.scale;
    const Cell cell = cutter.cell(
        begin, cut.high, i + 1 < mass.size() ? grid.loss(i + 1) - grid.loss(i) : grid.spacing);
    double end = cell.end;
    if (cell.reaches) {
      mass[i] += cell.sum.mass;
    } else {
      // Plain rounding down, up to the grid point.
      size_t below = i;
      while (below > 0 && grid.loss(below) > here) --below;
      end = std::clamp(loss.position(cutter.target), begin, cut.high);
      const double lowered = std::exp(grid.tilt * (grid.loss(below) - cutter.target));
      if (grid.loss(below) <= here) mass[below] += cutter.over(begin, end).mass * lowered;
    }
    if (!(end > begin)) break;
    begin = end;
  }
  return mass;
}

}  // namespace veil::privacy
