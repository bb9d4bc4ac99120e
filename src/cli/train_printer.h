// What a training run tells, for a person or as JSON lines.
#pragma once

#include <string>

#include "cli/options.h"
#include "cli/progress.h"
#include "cli/train_options.h"
#include "run/train.h"

namespace veil {

// A line that a person should see, on stderr.
void print_notice(const std::string& line);

// Rank 0's. `command` gets the settled configuration when the run starts.
class TrainPrinter {
 public:
  TrainPrinter(TrainCommand& command, Options& options) : command_(command), options_(options) {}
  TrainingEvents events();                               // without `stop` and `before_first_step`
  const std::string& folder() const { return folder_; }  // known once the run has started
  void end(const TrainResult& result);

 private:
  void begin(const TrainStart& start);
  void print_task(const TrainStart& start) const;
  void print_privacy(const PrivateStart& p, int world) const;
  std::string rate_text(double tokens_per_second) const;
  void step(const StepEvent& event);
  std::string step_text(const StepEvent& event);
  void evaluation(const EvaluationEvent& event);
  // Not private: micro-batches that were drawn take their time.
  void print_phases(const TrainResult& result) const;

  TrainCommand& command_;
  Options& options_;
  std::string folder_;
  Progress progress_;
  LineFitter fitter_;
  int64_t steps_ = 0, patches_ = 0;  // patches of an image; 0: text
  double peak_tflops_ = 0;
  bool private_ = false, told_of_noise_ = false;
};

}  // namespace veil
