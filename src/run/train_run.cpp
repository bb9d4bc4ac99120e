#include "run/train_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/stale_files.h"
#include "comm/rank_link.h"
#include "models/model_files.h"
#include "run/config_fields.h"
#include "run/machine.h"
#include "run/phases.h"
#include "run/ranks.h"
#include "run/replay_facts.h"
#include "run/resources.h"
#include "run/run_export.h"
#include "run/train_config.h"
#include "train/checkpoint.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr size_t kTimedSteps = 101;  // if phases are watched

}  // namespace

Batch empty_batch(const Model& model, int64_t rows, DType compute, Device device) {
  CategoryScope scope(Category::data);
  auto room = [&](const DataShape& shape) {
    std::vector<int64_t> dims{rows};
    dims.insert(dims.end(), shape.dims.begin(), shape.dims.end());
    return empty_tensor(dims, shape.dtype.value_or(compute), device).zero_();
  };
  Batch data{room(model.input), room(model.target)};
  if (model.condition) data.conditions = room(*model.condition);
  return data;
}

TrainOptions TrainRun::set_up(const OnNotice& notice) {
  set_arithmetic(config_);
  task_ = model_source(config_).diffusion ? make_image_task(config_, device_, notice)
                                          : make_text_task(config_, device_, notice);
  samples_ = task_->samples();
  model_ = std::make_unique<Model>(task_->model(info_.world));
  make_executor(*model_, notice);
  if (const int64_t canaries = config_.privacy.audit_canaries; privacy_ && canaries > 0) {
    canaries_ = std::make_unique<RunCanaries>(*samples_, *model_, canaries,
                                              static_cast<uint64_t>(config_.seed),
                                              privacy_->canary_coins());
    samples_ = canaries_->within(samples_);
  }
  return train_options();
}

TrainResult TrainRun::run() {
  const OnNotice notice = [this](const std::string& line) {
    if (speaks() && events_.on_notice) events_.on_notice(line);
  };
  TrainOptions options = set_up(notice);
  const Model& model = *model_;
  if (speaks())
    check_disk_space(planned_files(config_, folder_, executor_->shape().param_count(),
                                   executor_->shape().trained_count(), options.steps));
  if (!config_.training.resume.empty()) {
    const std::string line = other_data_notice(config_, folder_);
    if (!line.empty()) notice(line);
  }
  for (const std::string& line : task_->warnings()) notice(line);
  if (privacy_) {
    for (const std::string& line : privacy_->warnings(model)) notice(line);
  } else if (origin_.base) {
    notice(privacy::plain_warning(*origin_.base));
  }
  // Until here nothing is written, and nothing of the run before its checkpoint has been read.
  if (speaks()) {
    lock_ = std::make_unique<RunLock>(folder_);
    remove_stale_run_files();
  }
  const data::Position start = resume(options);
  if (speaks()) write_settings(config_, folder_);
  if (privacy_ && speaks()) privacy_->begin();
  if (speaks()) {
    const TrainStart facts = start_facts(options.steps);
    log_ = std::make_unique<MetricsLog>(
        facts,
        3.0 * static_cast<double>(executor_->shape().model_flops()) * config_.step.accumulation);
    if (events_.on_start) events_.on_start(facts);
  }
  Trainer trainer(*executor_, samples_, task_->held_out(), options, trainer_events());
  // Scores are of a whole run: a resumed one has no losses of its begin.
  const bool audited = canaries_ && executor_->steps() == 0;
  if (canaries_ && !audited)
    notice("the run was resumed: its canaries stay in it, but no bound is computed from them");
  std::vector<double> losses_before;
  if (audited) losses_before = canaries_->losses(*executor_);
  if (events_.before_first_step) events_.before_first_step();
  TrainResult result;
  result.finished = trainer.run(start);
  result.steps = executor_->steps();
  result.folder = folder_;
  if (privacy_ && speaks()) {
    privacy_->end(executor_->steps());
    result.privacy = privacy_->result(executor_->steps());
  }
  if (audited && result.finished) {
    const std::vector<double> losses = canaries_->losses(*executor_);
    if (speaks()) {
      result.audit =
          canaries_->judged(losses_before, losses, result.privacy->epsilon, *config_.privacy.delta);
      result.audit->config = settings_json(config_);
      write_file_atomically(join_path(folder_, kOneRunRecord),
                            to_json(*result.audit).dump(1) + "\n", /*owner_only=*/true);
    }
  }
  if (result.finished && !config_.training.export_folder.empty())
    export_trained({.config = config_,
                    .folder = folder_,
                    .task = *task_,
                    .model = model,
                    .origin = origin_,
                    .executor = *executor_,
                    .average = average_.get(),
                    .privacy = result.privacy},
                   speaks());
  if (step_times_.size() > 1) {
    const std::vector<StepTime> warm(step_times_.begin() + 1, step_times_.end());
    result.phases = summarise(warm, executor_->schedule(), executor_->shape());
    result.timed_steps = std::ssize(warm);
  }
  return result;
}

void TrainRun::remove_stale_run_files() const {
  for (const char* name :
       {kRunSettings, kOneRunRecord, kExportOwner, "metrics.jsonl", "ledger.json", "secret"})
    remove_stale_temporaries(join_path(folder_, name), OtherWriters::none);
}

TrainOptions TrainRun::open(const OnNotice& notice) {
  TrainOptions options = set_up(notice);
  resume(options);
  options.folder.clear();
  options.evaluate_every = options.checkpoint_every = 0;
  if (options.privacy) {
    options.privacy->before_step = {};
    options.privacy->epsilon = {};
    options.privacy->state = {};
  }
  return options;
}

void TrainRun::make_executor(const Model& model, const OnNotice& notice) {
  Ranks ranks = make_ranks(config_, info_, device_);
  origin_ = {initial_weights(task_->source(), model, info_.local_rank == 0), base_statement()};
  if (!frozen_names(model).empty())
    frozen_digest_ = digest_text(frozen_digest(origin_.initial, model.params, config_.seed));
  std::optional<PrivateParts> parts;
  if (config_.privacy.is_private()) {
    privacy_ = std::make_unique<PrivateRun>(config_, info_, folder_, *task_, model, device_,
                                            origin_, ranks.reduce.get());
    privacy_->share(ranks.reduce.get(), device_, *task_);
    parts = privacy_->parts();
  }
  ExecutorOptions options = executor_options(config_, info_.world, device_, parts);
  options.initial = origin_.initial.fill;
  weights_ = weights_text(task_->source(), origin_.initial);
  for (const std::string& line : origin_.initial.notices) notice(line);
  const int64_t batch = config_.step.batch_size;
  if (!device_.is_cuda()) {
    const Schedule schedule =
        build_schedule(model.shape(batch, options.step.compute, /*on_gpu=*/false), options.step);
    const std::string beyond =
        beyond_host_memory_text(config_, schedule, std::max(1, info_.local_world));
    if (!beyond.empty())
      throw UserError(out_of_memory_text(config_, info_.world, /*on_gpu=*/false, beyond) +
                          ", or `ignore_memory` to start all the same",
                      kExitFailed);
  }
  const int64_t rows = batch * options.step.micro_batches;
  executor_ = std::make_unique<Executor>(model, batch, options, device_,
                                         empty_batch(model, rows, options.step.compute, device_),
                                         std::move(ranks));
  if (const std::string& why = executor_->schedule().not_deferred; !why.empty())
    notice("the update is not deferred: " + why);
  if (const std::string& why = executor_->schedule().not_exchanged; !why.empty())
    notice("ranks do not exchange kept gradients: " + why);
  global_batch_ = batch * config_.step.accumulation * info_.world;
}

std::optional<privacy::Statement> TrainRun::base_statement() const {
  const auto checkpoint =
      config_.training.resume.empty() ? std::nullopt : newest_checkpoint(folder_);
  if (!checkpoint) {
    const ModelSource& source = task_->source();
    const auto base = source.has_weights() ? privacy::read_statement(source.folder) : std::nullopt;
    if (!source.adapter) return base;
    const auto adapter = privacy::read_statement(source.adapter->folder);
    return adapter && base ? privacy::on_top_of(*adapter, *base) : adapter ? adapter : base;
  }
  const nlohmann::json state = checkpoint_state(*checkpoint);
  if (!state.contains("base")) return {};
  return privacy::statement_from_json(state["base"], join_path(*checkpoint, kStateFile));
}

data::Position TrainRun::resume(TrainOptions& options) {
  data::Position start;
  Json state;
  const auto checkpoint =
      config_.training.resume.empty() ? std::nullopt : newest_checkpoint(folder_);
  const std::string mine = checkpoint.value_or(""), theirs = text_of_rank_0(mine);
  if (mine != theirs)
    user_error("rank 0 resumes '{}', rank {} finds '{}': allowed is one folder that all ranks see",
               theirs, info_.rank, mine);
  if (checkpoint) {
    check_frozen(checkpoint_state(*checkpoint), *checkpoint);
    state = load_checkpoint(*checkpoint, *executor_);
    start = data::position_from_json(state.at("position"));
  }
  if (config_.optimizer.average > 0) {
    average_ = std::make_unique<WeightAverage>(*executor_, config_.optimizer.average);
    if (checkpoint) load_average(*checkpoint, *average_);
    options.average = average_.get();
  }
  if (checkpoint) remove_old_checkpoints(folder_, *executor_, config_.training.keep_checkpoints);
  if (privacy_) {
    options.privacy = privacy_->training(state);
    if (config_.privacy.clip == privacy::ClipFunction::adaptive)
      executor_->set_clip_norms({options.privacy->clip_norm});
  }
  executor_->prepare();
  return start;
}

void TrainRun::check_frozen(const Json& state, const std::string& checkpoint) const {
  const std::string before = state.value("frozen", std::string());
  if (before.empty() || before == frozen_digest_) return;
  user_error(
      "{}: the frozen parameters are not those that the run was begun with; pass the same "
      "`model`{} as before, with its weights unchanged",
      checkpoint, config_.model.adapter.empty() ? "" : " and `adapter`");
}

TrainOptions TrainRun::train_options() const {
  const TrainingConfig& training = config_.training;
  TrainOptions options;
  options.seed = static_cast<uint64_t>(config_.seed);
  if (privacy_) {
    options.steps = privacy_->steps();
  } else {
    // which refuses data that is too small, before anything of the run is written
    const data::ShuffledOrder order(samples_->count(), global_batch_, options.seed);
    options.steps =
        training.steps
            ? *training.steps
            : std::max<int64_t>(
                  1, std::llround(*training.epochs * static_cast<double>(order.steps_per_epoch())));
  }
  const OptimizerConfig& optimizer = config_.optimizer;
  const LearningRateSchedule rate{optimizer.schedule, optimizer.learning_rate,
                                  optimizer.warmup_steps, options.steps, optimizer.minimum_ratio};
  check_schedule(rate);
  options.learning_rate = [rate](int64_t step) { return learning_rate_at(rate, step); };
  options.evaluate_every = training.evaluate_every;
  options.evaluation_samples = training.evaluation_samples;
  options.checkpoint_every = training.checkpoint_every;
  options.keep_checkpoints = training.keep_checkpoints;
  options.folder = folder_;
  options.settings = settings_json(config_);
  if (origin_.base) options.base = origin_.base->json;
  options.frozen = frozen_digest_;
  options.stop = events_.stop;
  options.waits.timeout_s = info_.collective_timeout_s;
  return options;
}

TrainStart TrainRun::start_facts(int64_t steps) const {
  TrainStart start;
  start.config = config_;
  start.folder = folder_;
  start.world = info_.world;
  start.device = device_;
  start.task = task_->facts();
  start.parameters = executor_->shape().param_count();
  start.weights = executor_->steps() > 0
                      ? fmt::format("of this run, after step {}", executor_->steps())
                      : weights_;
  start.global_batch = global_batch_;
  start.steps = steps;
  start.done = executor_->steps();
  start.graph = executor_->graph_state();
  if (device_.is_cuda())
    start.peak_tflops = peak_tflops_of(gpus()[static_cast<size_t>(device_.index())].name,
                                       dtype_of(config_.step.compute));
  if (privacy_) start.privacy = privacy_->start();
  return start;
}

TrainEvents TrainRun::trainer_events() {
  TrainEvents events;
  events.on_step = [this](const StepLine& line) {
    if (speaks()) {
      const StepEvent event = log_->step(line);
      if (events_.on_step) events_.on_step(event);
    }
    trace(line.step);
    if (config_.measure.wants(ProfileKind::phases) && step_times_.size() < kTimedSteps)
      step_times_.push_back(executor_->read_times());
  };
  events.on_evaluation = [this](const EvaluationLine& line) {
    if (!speaks()) return;
    const EvaluationEvent event = log_->evaluation(line);
    if (events_.on_evaluation) events_.on_evaluation(event);
  };
  events.before_checkpoint = [this] {
    if (speaks()) log_->sync();
  };
  events.on_checkpoint = [this](int64_t step) {
    if (speaks() && events_.on_checkpoint) events_.on_checkpoint(step);
  };
  return events;
}

void TrainRun::trace(int64_t step) {
  if (!config_.training.profile_step) return;
  const int64_t traced = *config_.training.profile_step;
  if (step == traced - 1 || (traced == 1 && step == 1)) kernels_.start();
  if (step != traced + 1) return;
  executor_->wait();
  const std::string file =
      join_path(folder_, fmt::format("traces/kernels_step{}_rank{}.json", traced, info_.rank));
  kernels_.stop_and_save(file);
  // It shows how many micro-batches a step had, and so how many samples were drawn.
  std::error_code ignored;
  if (privacy_) fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write, ignored);
}

}  // namespace veil
