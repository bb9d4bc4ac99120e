// Auditing with one training run: how much epsilon correct guesses about canaries refute.
#pragma once

#include <cstdint>

namespace veil::privacy {

// One run with `canaries` coins (Steinke, Nasr and Jagielski, "Privacy Auditing with One (1)
// Training Run", 2023): the largest epsilon at which `guesses` guesses are right `correct` times or
// more with probability 1 - confidence at most, if the run is (epsilon, delta)-private. 0 if no
// positive epsilon is refuted.
double one_run_epsilon(int64_t canaries, int64_t guesses, int64_t correct, double delta,
                       double confidence);
// That probability, an upper bound of it (their Theorem 5.2).
double one_run_p_value(int64_t canaries, int64_t guesses, int64_t correct, double epsilon,
                       double delta);

}  // namespace veil::privacy
