// The statistics of audits. Every limit is a bound that holds for every sample size, not an
// approximation for large ones, so that a stated confidence is one.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace veil::audit {

struct Interval {
  double low = 0, high = 0;
};

double normal_cdf(double z);
double normal_quantile(double p);  // 0 < p < 1
// The chi-square distribution with `degrees` degrees of freedom.
double chi_square_cdf(double degrees, double x);
double chi_square_quantile(double degrees, double p);
// The beta distribution.
double beta_cdf(double a, double b, double x);

// Clopper and Pearson (1934): a rate of which `hits` in `trials` were seen lies outside with
// probability `alpha` at most, half of it on either side.
Interval clopper_pearson(int64_t hits, int64_t trials, double alpha);
// One side alone, with all of alpha: the rate is no larger.
double clopper_pearson_upper(int64_t hits, int64_t trials, double alpha);

// The deviation of `count` normals of mean 0 whose squares sum to `squares`: outside with
// probability alpha at most.
Interval deviation_interval(double squares, int64_t count, double alpha);

// Kolmogorov and Smirnov's largest distance between values and the standard normal's distribution
// function; the values are sorted.
double kolmogorov_distance(std::vector<double>& values);
// Exceeded by `count` true normals with probability alpha at most (Massart 1990).
double kolmogorov_limit(int64_t count, double alpha);

// sum a_i b_i of independent standard normals exceeds this in absolute value with probability alpha
// at most: Chernoff's bound with E exp(x a b) = (1 - x^2)^(-1/2).
double product_limit(int64_t count, double alpha);
// The same of sum a_i a_(i + lag) over one row of `count`. The matrix of that form has eigenvalues
// in [-1, 1] whose squares sum to count / 2 at most, so ln E exp(x sum) is -count / 8 ln(1 - 4 x^2)
// at most.
double lagged_limit(int64_t count, double alpha);
// sum a_i a_(i + lag) for each lag from 0 to values.size() - 1.
std::vector<double> autocorrelation(const std::vector<double>& values);

}  // namespace veil::audit
