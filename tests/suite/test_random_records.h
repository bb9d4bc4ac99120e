// Random but consistent records of every suite, for tests of what is said about them.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "record/record.h"

namespace veil::verdict_claims {

class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}
  double between(double low, double high) {
    return low + (high - low) * std::uniform_real_distribution<double>()(engine_);
  }
  // Over orders of magnitude.
  double spread(double low, double high) { return low * std::pow(high / low, between(0, 1)); }
  bool one_in(int n) { return std::uniform_int_distribution<int>(1, n)(engine_) == 1; }
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(engine_); }
  template <typename T>
  T one_of(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int>(values.size())))];
  }
  // In their order, at least `least` of them.
  template <typename T>
  std::vector<T> some_of(std::vector<T> values, size_t least = 1) {
    while (values.size() > least && !one_in(3))
      values.erase(values.begin() + below(static_cast<int>(values.size())));
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

// A set of records as one run of the suite may leave it: close to each other or far apart, some
// failed or out of memory.
std::vector<Record> random_records(Chance& chance, const std::string& suite);

}  // namespace veil::verdict_claims
