// Why a row of `veil verify` differs: which parameters, ranks and samples do, and which classical
// mistake makes just these differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace veil {

enum class VerifyParamKind { weight, bias, table, tied_table };

struct VerifyDifferences {
  std::vector<std::string> names;  // by parameter
  std::vector<VerifyParamKind> kinds;
  int world = 1;  // samples lie rank by rank
  // [params][samples]; empty if nothing is clipped
  std::vector<std::vector<double>> squared, expected_squared;
  std::vector<std::vector<double>> coefficients, expected_coefficients;  // [layers][samples]
  std::vector<bool> padded;                                              // [samples]
  // [ranks][params]: largest difference, relative to the largest of all sums
  std::vector<std::vector<double>> sums;
  double ratio = 1;                   // the sum over the sum expected, by least squares
  double difference_after_ratio = 0;  // what differs once it is divided out
  // what differs if the sample that does not count is counted
  double difference_with_uncounted = 0;
  double tolerance = 0;

  double sum_difference() const;
  // of squared norms, over twice the sample's own whole: to first order the norm's
  double norm_difference() const;
  double coefficient_difference() const;  // relative to the largest
};

struct VerifyFailure {
  std::string what;       // "gradient", "norm", "coefficient"
  std::string parameter;  // "" for a coefficient
  int rank = 0;
  int64_t sample = -1;  // of all ranks' samples; -1 for a gradient, which is a sum
  std::string cause;
};

// Nothing if all is within the tolerance.
std::optional<VerifyFailure> find_failure(const VerifyDifferences& found);

}  // namespace veil
