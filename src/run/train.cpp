#include "run/train.h"

#include <cmath>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/files.h"
#include "base/outputs.h"
#include "base/stale_files.h"
#include "comm/rank_link.h"
#include "models/export.h"
#include "models/model_files.h"
#include "models/weight_tensors.h"
#include "profile/kineto.h"
#include "run/config_fields.h"
#include "run/machine.h"
#include "run/metrics_log.h"
#include "run/opened_run.h"
#include "run/ranks.h"
#include "run/replay_facts.h"
#include "run/resources.h"
#include "run/run_canaries.h"
#include "run/run_folder.h"
#include "tensor/out_of_memory.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr size_t kTimedSteps = 101;  // if phases are watched

// Named, not made: rank 0 makes it when all input is known to be good.
std::string run_folder(const TrainingConfig& training) {
  const auto resumed = resumed_run_folder(training.resume, training.output_dir);
  if (!resumed) return unused_run_folder(training.output_dir);
  if (!fs::is_directory(*resumed)) field_error("resume", "{}: no such folder", *resumed);
  check_run_folder(*resumed);
  return *resumed;
}

// In the folder of a run that has exported: a random name under which it did, and the folder's own
// path. By it the run, resumed, may replace its own export, for a job that is requeued has the same
// command each time; a copy of the folder may not.
constexpr const char* kExportOwner = ".veil_export_owner";

// "" for a run that has not exported yet.
std::string export_owner(const std::string& run_folder) {
  const std::string note = join_path(run_folder, kExportOwner);
  if (!fs::is_regular_file(note)) return "";
  const std::string text = read_file(note);
  const size_t end = text.find(' ');
  const std::string path = fs::weakly_canonical(run_folder).string();
  return end != std::string::npos && text.substr(end + 1) == path ? text.substr(0, end) : "";
}

std::string make_export_owner(const std::string& run_folder) {
  std::random_device random;
  const std::string owner = fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
  write_file_atomically(join_path(run_folder, kExportOwner),
                        owner + " " + fs::weakly_canonical(run_folder).string());
  return owner;
}

// The run and the export lie apart from what is read: files that they get there would be lost or
// be read as data by the next run.
void check_places(const PreparedRun& prepared) {
  const RunConfig& config = prepared.config;
  const std::string data = config.data.path == kShapes ? "" : config.data.path;
  if (!data.empty() && fs::is_directory(data) && lies_inside(prepared.folder, data))
    field_error(config.training.resume.empty() ? "output_dir" : "resume",
                "{}: the run's folder would lie inside the data ({}) and be read as data by the "
                "next run; choose one apart from it",
                config.training.resume.empty() ? config.training.output_dir : prepared.folder,
                data);
  if (config.training.export_folder.empty()) return;
  check_export_folder(config.training.export_folder, {.overwrite = config.training.overwrite,
                                                      .owner = export_owner(prepared.folder)});
  check_apart("export", config.training.export_folder,
              {{data, "the data"},
               {model_source(config).folder, "the model that is trained"},
               {config.model.adapter, "the adapter that is trained on"},
               {prepared.folder, "the run's folder"}});
}

// Room for a rank's samples of a logical batch.
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

}  // namespace

class TrainRun {
 public:
  TrainRun(const PreparedRun& prepared, const TrainingEvents& events, const RankInfo& info)
      : config_(prepared.config),
        events_(events),
        info_(info),
        folder_(prepared.folder),
        device_(prepared.device) {}

  // Task, model, executor and trainer options: all that a run has before it writes anything.
  TrainOptions set_up(const OnNotice& notice) {
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

  TrainResult run() {
    const OnNotice notice = [this](const std::string& line) {
      if (speaks() && events_.on_notice) events_.on_notice(line);
    };
    TrainOptions options = set_up(notice);
    const Model& model = *model_;
    if (speaks())
      check_disk_space(planned_files(config_, folder_, executor_->shape().param_count(),
                                     executor_->shape().trained_count(), options.steps));
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
        result.audit = canaries_->judged(losses_before, losses, result.privacy->epsilon,
                                         *config_.privacy.delta);
        result.audit->config = settings_json(config_);
        write_file_atomically(join_path(folder_, kOneRunRecord),
                              to_json(*result.audit).dump(1) + "\n", /*owner_only=*/true);
      }
    }
    if (result.finished && !config_.training.export_folder.empty())
      export_trained(model, result.privacy);
    if (step_times_.size() > 1) {
      const std::vector<StepTime> warm(step_times_.begin() + 1, step_times_.end());
      result.phases = summarise(warm, executor_->schedule(), executor_->shape());
      result.timed_steps = std::ssize(warm);
    }
    return result;
  }

  // What a killed process left of files that were to be replaced.
  void remove_stale_run_files() const {
    for (const char* name :
         {kRunSettings, kOneRunRecord, kExportOwner, "metrics.jsonl", "ledger.json", "secret"})
      remove_stale_temporaries(join_path(folder_, name), OtherWriters::none);
  }

  // The same run, for OpenedRun: its trainer's options, with nothing that writes.
  TrainOptions open(const OnNotice& notice) {
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
  const Model& model() const { return *model_; }
  const TrainTask& task() const { return *task_; }
  const std::shared_ptr<const Feed>& samples() const { return samples_; }
  Executor& executor() { return *executor_; }

 private:
  bool speaks() const { return info_.rank == 0; }

  void make_executor(const Model& model, const OnNotice& notice) {
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
    global_batch_ = batch * config_.step.accumulation * info_.world;
  }

  // Of the model that the run began with: its checkpoint says, or the model's folder.
  std::optional<privacy::Statement> base_statement() const {
    const auto checkpoint =
        config_.training.resume.empty() ? std::nullopt : newest_checkpoint(folder_);
    if (!checkpoint) {
      const ModelSource& source = task_->source();
      const auto base =
          source.has_weights() ? privacy::read_statement(source.folder) : std::nullopt;
      if (!source.adapter) return base;
      const auto adapter = privacy::read_statement(source.adapter->folder);
      return adapter && base ? privacy::on_top_of(*adapter, *base) : adapter ? adapter : base;
    }
    const nlohmann::json state = checkpoint_state(*checkpoint);
    if (!state.contains("base")) return {};
    return privacy::statement_from_json(state["base"], join_path(*checkpoint, kStateFile));
  }

  data::Position resume(TrainOptions& options) {
    data::Position start;
    Json state;
    const auto checkpoint =
        config_.training.resume.empty() ? std::nullopt : newest_checkpoint(folder_);
    const std::string mine = checkpoint.value_or(""), theirs = text_of_rank_0(mine);
    if (mine != theirs)
      user_error(
          "rank 0 resumes '{}', rank {} finds '{}': allowed is one folder that all ranks see",
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

  // Checkpoints do not hold what is frozen: it comes from where the run began.
  void check_frozen(const Json& state, const std::string& checkpoint) const {
    const std::string before = state.value("frozen", std::string());
    if (before.empty() || before == frozen_digest_) return;
    user_error(
        "{}: the frozen parameters are not those that the run was begun with; pass the same "
        "`model`{} as before, with its weights unchanged",
        checkpoint, config_.model.adapter.empty() ? "" : " and `adapter`");
  }

  TrainOptions train_options() const {
    const TrainingConfig& training = config_.training;
    TrainOptions options;
    options.seed = static_cast<uint64_t>(config_.seed);
    if (privacy_) {
      options.steps = privacy_->steps();
    } else if (training.steps) {
      options.steps = *training.steps;
    } else {
      const data::ShuffledOrder order(samples_->count(), global_batch_, options.seed);
      options.steps = std::max<int64_t>(
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

  TrainStart start_facts(int64_t steps) const {
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

  TrainEvents trainer_events() {
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

  // Kineto around the step that is profiled and the one behind it.
  void trace(int64_t step) {
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

  bool exports_adapters(const Model& model) const { return model.lora && !config_.training.merge; }
  std::vector<ParamId> exported(const Model& model) const {
    return exports_adapters(model) ? adapter_params(model) : base_params(model);
  }

  // Rank 0 writes while the others take part in gathering, parameter by parameter in one order.
  // Where an average of the weights is kept, it is the model.
  void export_trained(const Model& model, const std::optional<PrivateResult>& privacy) {
    auto whole = [this](ParamId id) {
      return average_ ? average_->parameter(id) : executor_->parameter(id);
    };
    auto values = [&model, whole, merges = model.lora && config_.training.merge](ParamId id) {
      return merges ? merged_parameter(model, id, whole) : whole(id);
    };
    if (!speaks()) {
      for (const ParamId id : exported(model)) values(id);
      return;
    }
    std::vector<TensorSource> sources;
    const DType storage = dtype_of(config_.step.storage);
    const bool adapters = exports_adapters(model);
    // the input's type, or if there was none the one that the run keeps; adapters are small
    const bool given = task_->source().has_weights() && !adapters;
    const StoredType type =
        stored_weights_type(given ? task_->source().folder : "")
            .value_or(stored_type(average_ || storage == at::kDouble ? at::kFloat : storage));
    for (const ParamId id : exported(model)) {
      const ParamShape& param = model.params[static_cast<size_t>(id)];
      const std::string name = adapters ? adapter_name(param.name) : param.name;
      TensorSource source{name, type, param.dims, {}};
      source.produce = [values, id, name, type](const AppendBytes& append) {
        tensor_source(name, values(id), type).produce(append);
      };
      sources.push_back(std::move(source));
    }
    std::vector<std::pair<std::string, std::string>> files;
    if (adapters) {
      const ModelSource& source = task_->source();
      const bool classifies = source.config->task == Task::sequence_classification;
      const Json before = source.adapter ? source.adapter->config : Json();
      files = {{kAdapterConfig,
                adapter_config(model, config_.model.name, classifies, before).dump(2) + "\n"}};
    } else {
      files = task_->export_files(type);
    }
    if (privacy) {
      nlohmann::json guarantee = privacy->guarantee_json;
      const std::vector<std::string> frozen = frozen_names(model);
      if (!frozen.empty()) {
        guarantee["frozen"] = frozen;
        guarantee["frozen_are"] =
            "as they were given: what they were trained on is outside this epsilon";
      }
      files.emplace_back(privacy::kStatementFile, guarantee.dump(2) + "\n");
    } else if (origin_.base) {
      files.emplace_back(privacy::kStatementFile,
                         privacy::plain_statement(*origin_.base).dump(2) + "\n");
    }
    std::string owner = export_owner(folder_);
    if (owner.empty()) owner = make_export_owner(folder_);
    export_model(config_.training.export_folder, files, sources,
                 {.overwrite = config_.training.overwrite,
                  .owner = owner,
                  .weights = adapters ? kAdapterWeights : "model"});
  }

  const RunConfig& config_;
  const TrainingEvents& events_;
  RankInfo info_;
  std::string folder_;
  Device device_;
  std::unique_ptr<TrainTask> task_;
  std::unique_ptr<RunCanaries> canaries_;  // of a private run that has some
  std::shared_ptr<const Feed> samples_;
  RunOrigin origin_;
  std::string frozen_digest_;            // "" if all is trained
  std::unique_ptr<PrivateRun> privacy_;  // of a private run
  std::unique_ptr<Model> model_;         // outlives the executor
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<WeightAverage> average_;
  std::string weights_;  // where they come from
  int64_t global_batch_ = 0;
  std::unique_ptr<RunLock> lock_;
  std::unique_ptr<MetricsLog> log_;  // rank 0's
  KernelProfile kernels_;
  std::vector<StepTime> step_times_;
};

PreparedRun prepare_training(const RunConfig& config, const RankInfo& info) {
  if (info.world < 1 || info.rank < 0 || info.rank >= info.world)
    user_error("rank {} of {}: allowed are the ranks 0 to {}", info.rank, info.world,
               info.world - 1);
  PreparedRun prepared;
  prepared.config = settled_for_training(config, info.world);
  prepared.device = choose_device(config, info);
  if (config.step.graph == GraphMode::on && !prepared.device.is_cuda())
    field_error("graph", "on cannot be met (no GPU): pass `graph` auto or off");
  prepared.folder = text_of_rank_0(info.rank == 0 ? run_folder(config.training) : "");
  check_resumed(prepared.config, prepared.folder, info.world);
  check_places(prepared);
  // A run that continues has its weights in its checkpoint, unless some are frozen.
  const ModelConfig& of = config.model;
  const bool some_frozen = of.has_adapters() || !of.frozen.empty() || !of.train_only.empty();
  if (some_frozen || config.training.resume.empty() || !newest_checkpoint(prepared.folder))
    require_weights(model_source(prepared.config));
  return prepared;
}

TrainResult train(const RunConfig& config, const TrainingEvents& events, const RankInfo& info) {
  const PreparedRun prepared = prepare_training(config, info);
  try {
    return TrainRun(prepared, events, info).run();
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    const std::optional<std::string> reason = out_of_memory_reason(error);
    if (!reason) throw;
    throw UserError(
        out_of_memory_text(prepared.config, info.world, prepared.device.is_cuda(), *reason),
        kExitFailed);
  }
}

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

TrainedModel read_trained(const RunConfig& config, const std::string& folder) {
  const auto checkpoint = newest_checkpoint(folder);
  if (!checkpoint) user_error("{}: the folder has no checkpoint", folder);
  RunConfig alone = config;  // any world reads it
  alone.placement = {};
  alone.placement.device = DeviceKind::cpu;
  alone.step.strategy = Strategy::ddp;
  alone.step.accumulation = 1;
  alone.step.graph = GraphMode::off;
  alone.measure.profile = {ProfileKind::none};
  const ModelSource source = model_source(alone);
  const Model model = make_model(alone, source, 1);
  ExecutorOptions options = executor_options(alone, 1, cpu_device());
  if (!frozen_names(model).empty()) options.initial = initial_weights(source, model).fill;
  Executor executor(model, 1, options, cpu_device(),
                    empty_batch(model, 1, options.step.compute, cpu_device()), {});
  TrainedModel trained;
  trained.state = load_checkpoint(*checkpoint, executor);
  trained.steps = executor.steps();
  for (size_t i = 0; i < model.params.size(); ++i)
    trained.parameters[model.params[i].name] = executor.parameter(static_cast<ParamId>(i));
  return trained;
}

}  // namespace veil
