// How a figure grows with another: y = c x^k, by least squares of the logarithms.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace veil {

struct PowerFit {
  double exponent = 0;  // k
  // its 95% confidence interval (Student's t; two points give none: -inf and inf)
  double low = 0, high = 0;
  double factor = 0;  // c
  int points = 0;
};

// Points that are not positive are left out; nothing with fewer than two different x.
std::optional<PowerFit> fit_power(const std::vector<std::pair<double, double>>& points);

// Classified by the interval, widened by 0.05 on both sides; unclear if it contains several of 0, 1
// and 2.
enum class Growth { constant, below_linear, linear, between, quadratic, above_quadratic, unclear };
Growth growth_of(const PowerFit& fit);
std::string growth_words(const PowerFit& fit);    // "grows linearly with T"
std::string growth_label(const PowerFit& fit);    // the same for a cell: "linear"
std::string exponent_words(const PowerFit& fit);  // "T^1.02 (95%: 0.97 to 1.07)"

}  // namespace veil
