#include "run/opened_run.h"

#include <algorithm>

#include "base/error.h"
#include "run/prepared_run.h"
#include "run/train_run.h"

namespace veil {

struct OpenedRun::Parts {
  Parts(const RunConfig& config, const OnNotice& notice, const RankInfo& rank)
      : info(rank),
        prepared(prepare_training(without_secret(config), rank)),
        run(prepared, events, rank) {
    options = run.open(notice);
    optimizer = executor_options(prepared.config, rank.world, prepared.device).optimizer;
  }
  // The run's own secret must not be drawn from twice on other sums.
  static RunConfig without_secret(RunConfig config) {
    config.privacy.secret_file.clear();
    return config;
  }
  RankInfo info;
  TrainingEvents events;
  PreparedRun prepared;
  TrainRun run;
  TrainOptions options;
  OptimizerOptions optimizer;
};

OpenedRun::OpenedRun(const RunConfig& config, const OnNotice& notice, const RankInfo& info)
    : parts_(std::make_unique<Parts>(config, notice, info)) {
  VEIL_CHECK(parts_->options.privacy, "an opened run is a private one");
}
OpenedRun::~OpenedRun() = default;
const RunConfig& OpenedRun::config() const {
  return parts_->prepared.config;
}
const RankInfo& OpenedRun::info() const {
  return parts_->info;
}
const Model& OpenedRun::model() const {
  return parts_->run.model();
}
const TrainTask& OpenedRun::task() const {
  return parts_->run.task();
}
const std::shared_ptr<const Feed>& OpenedRun::samples() const {
  return parts_->run.samples();
}
Executor& OpenedRun::executor() {
  return parts_->run.executor();
}
const OptimizerOptions& OpenedRun::optimizer() const {
  return parts_->optimizer;
}
const TrainOptions& OpenedRun::options() const {
  return parts_->options;
}

void OpenedRun::train(std::shared_ptr<const Feed> samples, std::shared_ptr<const data::Users> users,
                      int64_t last_step, const std::function<double(double)>& learning_rate) {
  TrainOptions options = parts_->options;
  options.privacy->users = std::move(users);
  options.steps = std::max(options.steps, last_step);
  options.privacy->last_step = last_step;
  options.learning_rate = [&](int64_t step) {
    return learning_rate(parts_->options.learning_rate(step));
  };
  // What an adaptive step moved before.
  if (options.privacy->mechanism.request().clip == privacy::ClipFunction::adaptive)
    executor().set_clip_norms({options.privacy->clip_norm});
  const int64_t done = executor().steps();
  data::Position start;
  const int64_t an_epoch = options.privacy->mechanism.steps_per_epoch();
  start.epoch = an_epoch > 0 ? done / an_epoch : 0;
  start.step = an_epoch > 0 ? done % an_epoch : done;
  Trainer(executor(), std::move(samples), nullptr, options, {}).run(start);
}

}  // namespace veil
