// How a figure grows with the length T of a sequence.
//
// The laws are a, a + bT and a + bT + cT^2 with no coefficient below 0: a step and its memory are
// sums of parts that cost something each. The simplest law that is within 2% of every measured
// point is taken, and only where more lengths were measured than it has coefficients, so that at
// least one point tests it. Otherwise the points do not tell the law.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace veil {

enum class Law { constant, linear, quadratic, untold };

struct GrowthFit {
  Law law = Law::untold;
  double constant = 0, linear = 0, square = 0;  // a, b and c; 0 if the law is not told
  double deviation = 0;  // of the point that is farthest from the law, relative to the point
  int lengths = 0;       // different T
  double first_length = 0, last_length = 0;
  double first = 0, last = 0;  // the figure there

  double at(double length) const { return constant + (linear + square * length) * length; }
  bool is_told() const { return law != Law::untold; }
};

// Points are T and the figure. Those that are not positive are left out, and points of one T are
// averaged; nothing with fewer than two different T.
std::optional<GrowthFit> fit_growth(const std::vector<std::pair<double, double>>& points);

using ShowAmount = std::function<std::string(double)>;  // "1.50 GiB"
// "grows linearly with T from 1024 to 8192: 1.50 GiB plus 0.25 GiB per 1000 tokens, within 0.3%"
std::string growth_words(const GrowthFit& fit, const ShowAmount& show);
std::string growth_label(const GrowthFit& fit);  // the same for a cell: "linear"
// "1.50 GiB + 0.25 GiB per 1000 tokens"; "-" if the law is not told.
std::string law_text(const GrowthFit& fit, const ShowAmount& show);

}  // namespace veil
