// The signals that stop a training run: after the step, with a checkpoint.
#pragma once

#include <string>

namespace veil {

// Signals are answered from here on. Before the first step one ends the process, since nothing is
// lost. `speaks`: this process tells a person what a signal does; rank 0's.
void hear_stop_signals(bool speaks);
// The first step of the run in `folder` begins: a signal now stops the run after the step.
void stop_after_steps(const std::string& folder);
// Whether a signal has come since.
bool stop_requested();

}  // namespace veil
