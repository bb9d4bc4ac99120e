// What a person can do when a step does not fit in memory: each remedy with the bytes that it would
// need by the estimator, whether that fits, and what it costs in predicted time.
#pragma once

#include <string>
#include <vector>

#include "run/config.h"

namespace veil {

struct Remedy {
  std::string options;  // "--batch-size 4 --accumulation 2"
  std::string note;     // what it changes; "" for nothing but time and memory
  int64_t bytes = 0;    // of a rank's step
  bool fits = false;
  double time = 1;        // of a sample, relative to the step that does not fit
  bool same_work = true;  // the same training: model, sequences and logical batch
};

// Bytes that a rank of this configuration may use: the GPU's memory, or its share of what the host
// has available.
int64_t memory_room(const RunConfig& config, bool on_gpu);

// Remedies that need less than the configuration does. Those that train the same come first, each
// kind by its cost in time.
std::vector<Remedy> priced_remedies(const RunConfig& config, int world, bool on_gpu,
                                    int64_t room_bytes);

// "--batch-size 4 --accumulation 2 (11.02 GiB, fits, 1.03 times the time per sample, the same
// logical batch)"
std::string remedy_text(const Remedy& remedy);
std::vector<std::string> remedy_texts(const std::vector<Remedy>& remedies);

}  // namespace veil
