// The normal distribution far into its tails, and the privacy curve of the Gaussian mechanism.
#pragma once

namespace veil::privacy {

double log_erfc(double x);           // also where erfc(x) underflows
double log_normal_cdf(double z);     // ln Phi(z)
double log_add(double a, double b);  // ln(e^a + e^b); -infinity stands for 0

// The curve of mu-GDP (Dong, Roth, Su 2022), exact for a Gaussian of sensitivity mu * sigma:
// delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2).
double gaussian_delta(double mu, double epsilon);
// The smallest epsilon >= 0 with gaussian_delta(mu, epsilon) <= delta.
double gaussian_epsilon(double mu, double delta);

}  // namespace veil::privacy
