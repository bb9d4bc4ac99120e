#include "report/fits.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <limits>

namespace veil {
namespace {

constexpr double kSlack = 0.05;  // of an exponent: nearer than this is the same

// The 97.5% quantile of Student's t.
double student(int freedom) {
  static constexpr std::array<double, 11> table = {0,     12.706, 4.303, 3.182, 2.776, 2.571,
                                                   2.447, 2.365,  2.306, 2.262, 2.228};
  if (freedom < static_cast<int>(table.size())) return table[static_cast<size_t>(freedom)];
  return 1.96 + 2.5 / freedom;
}

bool holds(const PowerFit& fit, double exponent) {
  return fit.low - kSlack <= exponent && exponent <= fit.high + kSlack;
}

}  // namespace

std::optional<PowerFit> fit_power(const std::vector<std::pair<double, double>>& points) {
  double x_sum = 0, y_sum = 0, xx = 0, xy = 0, squares = 0;
  PowerFit fit;
  std::vector<std::pair<double, double>> logs;
  for (const auto& [x, y] : points) {
    if (!(x > 0) || !(y > 0) || !std::isfinite(x) || !std::isfinite(y)) continue;
    logs.emplace_back(std::log(x), std::log(y));
    x_sum += logs.back().first;
    y_sum += logs.back().second;
  }
  fit.points = static_cast<int>(logs.size());
  if (fit.points < 2) return {};
  const double n = fit.points, x_mean = x_sum / n, y_mean = y_sum / n;
  for (const auto& [x, y] : logs) {
    xx += (x - x_mean) * (x - x_mean);
    xy += (x - x_mean) * (y - y_mean);
  }
  if (xx <= 0) return {};
  fit.exponent = xy / xx;
  const double intercept = y_mean - fit.exponent * x_mean;
  fit.factor = std::exp(intercept);
  for (const auto& [x, y] : logs) squares += std::pow(y - intercept - fit.exponent * x, 2);
  const double margin = fit.points > 2 ? student(fit.points - 2) * std::sqrt(squares / (n - 2) / xx)
                                       : std::numeric_limits<double>::infinity();
  fit.low = fit.exponent - margin;
  fit.high = fit.exponent + margin;
  return fit;
}

Growth growth_of(const PowerFit& fit) {
  const bool constant = holds(fit, 0), linear = holds(fit, 1), quadratic = holds(fit, 2);
  if (constant + linear + quadratic > 1) return Growth::unclear;
  if (constant) return Growth::constant;
  if (linear) return Growth::linear;
  if (quadratic) return Growth::quadratic;
  if (fit.exponent < 1) return Growth::below_linear;
  return fit.exponent < 2 ? Growth::between : Growth::above_quadratic;
}

std::string growth_words(const PowerFit& fit) {
  switch (growth_of(fit)) {
    case Growth::constant:
      return "does not grow with T";
    case Growth::below_linear:
      return "grows less than linearly with T";
    case Growth::linear:
      return "grows linearly with T";
    case Growth::between:
      return "grows faster than linearly and slower than quadratically with T";
    case Growth::quadratic:
      return "grows quadratically with T";
    case Growth::above_quadratic:
      return "grows faster than quadratically with T";
    case Growth::unclear:
      break;
  }
  return fit.points < 3 ? "was measured at two lengths, too few for a law"
                        : "follows no law that the points could tell";
}

std::string growth_label(const PowerFit& fit) {
  switch (growth_of(fit)) {
    case Growth::constant:
      return "constant";
    case Growth::below_linear:
      return "below linear";
    case Growth::linear:
      return "linear";
    case Growth::between:
      return "between linear and quadratic";
    case Growth::quadratic:
      return "quadratic";
    case Growth::above_quadratic:
      return "above quadratic";
    case Growth::unclear:
      break;
  }
  return fit.points < 3 ? "two lengths only" : "not told";
}

std::string exponent_words(const PowerFit& fit) {
  if (!std::isfinite(fit.low)) return fmt::format("T^{:.2f}", fit.exponent);
  return fmt::format("T^{:.2f} (95%: {:.2f} to {:.2f})", fit.exponent, fit.low, fit.high);
}

}  // namespace veil
