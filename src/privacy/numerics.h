// The numerics of accounting: the normal distribution far into its tails, the privacy curve of the
// Gaussian mechanism, and a Fourier transform. None of it needs LibTorch.
#pragma once

#include <complex>
#include <limits>
#include <vector>

namespace veil::privacy {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

double log_erfc(double x);           // even if erfc(x) underflows
double log_normal_cdf(double z);     // ln Phi(z)
double log_add(double a, double b);  // ln(e^a + e^b); -infinity stands for 0

// The curve of mu-GDP (Dong, Roth, Su 2022), exact for a Gaussian of sensitivity mu * sigma:
// delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2).
double gaussian_delta(double mu, double epsilon);
// The smallest epsilon >= 0 with gaussian_delta(mu, epsilon) <= delta, rounded up: never below the
// exact one.
double gaussian_epsilon(double mu, double delta);

// The discrete Fourier transform of 2^k complex numbers, written here because Debian has no
// header-only one (FFTW is GPL, which Veil's licence does not go with).
// In place: values[k] becomes sum_j values[j] exp(-2 pi i j k / N). The inverse has +i and divides
// by N.
void fft(std::vector<std::complex<double>>& values);
void inverse_fft(std::vector<std::complex<double>>& values);

}  // namespace veil::privacy
