// The discrete Fourier transform of 2^k complex numbers.
//
// Written here because Debian has no header-only one (FFTW is GPL, which Veil's licence does not go with), and because
// accounting must not need LibTorch.
#pragma once

#include <complex>
#include <vector>

namespace veil::privacy {

// In place: values[k] becomes sum_j values[j] exp(-2 pi i j k / N). The inverse has +i and divides by N.
void fft(std::vector<std::complex<double>>& values);
void inverse_fft(std::vector<std::complex<double>>& values);

}  // namespace veil::privacy
