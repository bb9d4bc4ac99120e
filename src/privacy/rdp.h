// Renyi differential privacy of the Poisson-sampled Gaussian: Mironov, Talwar and Zhang, "Renyi
// Differential Privacy of the Sampled Gaussian Mechanism" (2019), turned into epsilon by Balle,
// Barthe, Gaboardi, Hsu and Sato, "Hypothesis Testing Interpretations and Renyi Differential
// Privacy" (2020).
#pragma once

#include "privacy/phase.h"

namespace veil::privacy {

// 1.1, 1.2, ..., 10.9, 12, 13, ..., 63
const std::vector<double>& rdp_orders();

// Renyi divergence of one step, of any order above 1.
double rdp_of_step(double sigma, double q, double order);

// The smallest over the orders a of rdp(a) - (ln delta + ln a) / (a - 1) + ln((a - 1) / a), and
// never below 0.
Spent rdp_epsilon(const std::vector<Phase>& phases, double delta);

}  // namespace veil::privacy
