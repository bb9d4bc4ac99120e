// Text for an experiment's steps: samples of --data, brought by the loader that runs ahead.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "data/batches.h"
#include "suite/experiment.h"

namespace veil {

// The samples that --data holds for this model, which may learn its padding token from them. UserError in one line where there are none, or where the model's vocabulary
// has no row for a token.
std::shared_ptr<const data::Samples> load_text(const ExperimentOptions& options, ModelSource& source);

// Logical batches in a shuffled order, epoch after epoch, into an executor.
class TextFeed {
 public:
  // UserError where one logical batch of all ranks is more than there is.
  TextFeed(std::shared_ptr<const data::Samples> samples, int64_t rank_samples, int64_t seed, int rank, int world);

  void load_next(Executor& executor);
  // What went before is not counted: warm-up fills the loader's queue.
  void begin_counting();
  double load_ms() const;  // a step: the wait for a batch and its way to the device; mean of those counted
  // Means a step of those counted, and what the source holds.
  nlohmann::ordered_json json(const std::string& source) const;

 private:
  std::shared_ptr<const data::Samples> samples_;
  int64_t global_batch_;
  data::Batches batches_;
  data::LoaderStatistics before_;
  double load_ms_ = 0;
};

}  // namespace veil
