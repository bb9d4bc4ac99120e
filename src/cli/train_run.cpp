#include "cli/train_run.h"

#include <csignal>
#include <filesystem>

#include "base/files.h"
#include "base/quantity.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/run_lock.h"
#include "cli/terminal.h"
#include "cli/train_log.h"
#include "cli/train_privacy.h"
#include "cli/train_task.h"
#include "models/export.h"
#include "models/weight_tensors.h"
#include "profile/kineto.h"
#include "suite/machine.h"
#include "suite/peak_flops.h"
#include "suite/phases.h"
#include "suite/profile_run.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

volatile std::sig_atomic_t interrupted = 0;

// The first signal asks for a checkpoint after the step; the second one ends the process as it always does.
void stop_when_asked() {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
    std::signal(number, [](int came) {
      interrupted = 1;
      std::signal(came, SIG_DFL);
    });
  }
}

constexpr size_t kTimedSteps = 101;  // with --profile phases

class TrainRun {
 public:
  TrainRun(const TrainCommand& command, const Options& options, const RankInfo& info, const std::string& folder)
      : c_(command),
        options_(options),
        info_(info),
        folder_(folder),
        device_(choose_device(command.experiment, info)) {}

  int run() {
    set_arithmetic(c_.experiment);
    task_ = c_.is_diffusion ? make_image_task(c_, device_, speaks()) : make_text_task(c_, device_, speaks());
    samples_ = task_->samples();
    held_out_ = task_->held_out();
    const Model model = task_->model(info_.world);
    if (c_.privacy.is_private())
      privacy_ = std::make_unique<TrainPrivacy>(c_, options_, info_, folder_, *task_, model, device_);
    make_executor(model);
    TrainOptions train = train_options();
    if (speaks()) lock_ = std::make_unique<RunLock>(folder_);  // until here nothing is written
    if (privacy_ && speaks()) privacy_->begin();
    const data::Position start = resume(train);
    if (speaks()) announce();
    TrainLog log(folder_, speaks(), c_.json, train.steps, executor_->steps());
    log.set_throughput(3.0 * static_cast<double>(executor_->shape().model_flops()) * c_.experiment.accumulation,
                       peak());
    log.print_every(c_.log_every);
    if (c_.is_diffusion) log.count_images(samples_->tokens());
    if (privacy_) log.mark_private();
    KernelProfile profile;
    TrainEvents events;
    events.on_step = [&](const StepLine& line) {
      log.step(line);
      trace(profile, line.step);
      if (c_.profile_phases && steps_.size() < kTimedSteps) steps_.push_back(executor_->read_times());
    };
    events.on_evaluation = [&](const EvaluationLine& line) { log.evaluation(line); };
    events.on_checkpoint = [&](int64_t step) { log.checkpoint(step); };
    Trainer trainer(*executor_, samples_, held_out_, train, events);
    stop_when_asked();
    const bool finished = trainer.run(start);
    if (privacy_ && speaks()) privacy_->end(executor_->steps());
    if (finished && !c_.export_folder.empty()) export_trained(model);
    if (privacy_ && speaks())
      log.guarantee(privacy_->budget_line(executor_->steps()), privacy_->guarantee_line(), privacy_->guarantee_json());
    if (speaks()) print_phases();
    if (speaks()) log.end(finished, folder_, c_.export_folder);
    return finished || !speaks() ? kExitDone
                                 : kExitFailed;  // mpirun ends all ranks when one fails: rank 0 has the last word
  }

 private:
  bool speaks() const { return info_.rank == 0; }

  void make_executor(const Model& model) {
    const int64_t batch = privacy_ ? c_.experiment.batch_size : rank_batch(c_.experiment, info_.world);
    Ranks ranks = make_ranks(c_.experiment, info_, device_);
    ExecutorOptions settings;
    settings.step = step_options(c_.experiment, info_.world, device_.is_cuda());
    if (privacy_) {
      privacy_->share(ranks.reduce.get(), device_, *task_);
      settings.step.clip = privacy_->clip_plan();
      settings.step.varying = c_.privacy.sampler == privacy::SamplerKind::poisson;
      settings.privacy = privacy_->private_step();
    } else {
      settings.step.grad_norm = true;
      settings.max_grad_norm = c_.max_grad_norm;
    }
    settings.optimizer.kind = c_.experiment.optimizer;
    settings.optimizer.momentum = c_.experiment.momentum;
    settings.optimizer.weight_decay = c_.experiment.weight_decay;
    settings.optimizer.beta1 = c_.beta1;
    settings.optimizer.beta2 = c_.beta2;
    settings.optimizer.epsilon = c_.adam_epsilon;
    settings.seed = static_cast<uint64_t>(c_.experiment.seed);
    settings.graph = c_.experiment.graph;
    settings.time_rows = c_.profile_phases;
    const InitialWeights initial = task_->initial_weights(model);
    settings.initial = initial.fill;
    for (const std::string& notice : speaks() ? initial.notices : std::vector<std::string>())
      fmt::print(stderr, "{} {}\n", colored(stderr, Color::yellow, "veil:"), notice);
    const int64_t rows = batch * c_.experiment.accumulation;
    Batch data;
    {
      CategoryScope scope(Category::data);
      auto room = [&](const DataShape& shape) {
        std::vector<int64_t> dims{rows};
        dims.insert(dims.end(), shape.dims.begin(), shape.dims.end());
        return empty_tensor(dims, shape.dtype.value_or(settings.step.compute), device_).zero_();
      };
      data = {room(model.input), room(model.target)};
      if (model.condition) data.conditions = room(*model.condition);
    }
    executor_ = std::make_unique<Executor>(model, batch, settings, device_, std::move(data), std::move(ranks));
    global_batch_ = rows * info_.world;
  }

  data::Position resume(TrainOptions& train) {
    data::Position start;
    Json state;
    const auto checkpoint = c_.resume.empty() ? std::nullopt : newest_checkpoint(folder_);
    if (checkpoint) {
      state = load_checkpoint(*checkpoint, *executor_);
      start = data::position_from_json(state.at("position"));
    }
    if (c_.average > 0) {
      average_ = std::make_unique<WeightAverage>(*executor_, c_.average);
      if (checkpoint) load_average(*checkpoint, *average_);
      train.average = average_.get();
    }
    if (privacy_) {
      train.privacy = privacy_->training(state);
      if (c_.privacy.clip == privacy::ClipFunction::adaptive) executor_->set_clip_norms({train.privacy->clip_norm});
    }
    executor_->prepare();
    return start;
  }

  TrainOptions train_options() const {
    TrainOptions train;
    if (privacy_) {
      train.steps = privacy_->steps();
    } else if (c_.steps) {
      train.steps = *c_.steps;
    } else {
      const data::ShuffledOrder order(samples_->count(), global_batch_, static_cast<uint64_t>(c_.experiment.seed));
      train.steps = std::max<int64_t>(1, std::llround(*c_.epochs * static_cast<double>(order.steps_per_epoch())));
    }
    const LearningRateSchedule rate{c_.schedule, c_.experiment.learning_rate, c_.warmup_steps, train.steps,
                                    c_.minimum_lr_ratio};
    check_schedule(rate);
    train.learning_rate = [rate](int64_t step) { return learning_rate_at(rate, step); };
    train.seed = static_cast<uint64_t>(c_.experiment.seed);
    train.evaluate_every = c_.evaluate_every;
    train.evaluation_samples = c_.evaluation_samples;
    train.checkpoint_every = c_.checkpoint_every;
    train.keep_checkpoints = c_.keep_checkpoints;
    train.folder = folder_;
    train.settings = options_.json();
    train.stop = [] { return interrupted != 0; };
    return train;
  }

  void announce() const {
    if (c_.json) {
      if (!privacy_) return;
      fmt::print("{}\n", Json{{"privacy_plan", privacy_->json()}}.dump());
      for (const std::string& warning : privacy_->plan().warnings())
        fmt::print(stderr, "{} {}\n", colored(stderr, Color::yellow, "veil:"), warning);
      return;
    }
    fmt::print("{}\n", options_.table());
    task_->announce(executor_->shape().param_count());
    fmt::print("step      {} on {}, graph {}\n",
               privacy_ ? fmt::format("{:g} {} expected, {} a micro-batch,", *c_.expected_batch,
                                      c_.is_diffusion ? "images" : "samples", c_.experiment.batch_size)
                        : quantity(global_batch_, c_.is_diffusion ? "image" : "sample"),
               quantity(info_.world, device_.is_cuda() ? "GPU" : "CPU rank"), executor_->graph_state());
    if (privacy_) {
      privacy_->announce();
    } else {
      fmt::print("private   no: plain training, nothing is clipped per sample and no noise is added\n");
    }
    if (executor_->steps() > 0) fmt::print("resumed   after step {}\n", executor_->steps());
    fmt::print("\n");
  }

  double peak() const {
    if (!device_.is_cuda()) return 0;
    const std::vector<GpuInfo> found = gpus();
    return peak_tflops_of(found[static_cast<size_t>(device_.index())].name, dtype_of(c_.experiment.compute));
  }

  // Of this rank, without the first step, which warms up. Not private: micro-batches that were drawn take their time.
  void print_phases() const {
    if (steps_.size() < 2) return;
    const std::vector<StepTime> warm(steps_.begin() + 1, steps_.end());
    const PhaseTimes times = summarise(warm, executor_->schedule(), executor_->shape());
    Table table({"phase", "ms a step", "share"});
    const auto add = [&](const std::string& name, double ms) {
      table.row({name, fmt::format("{:.3f}", ms), fmt::format("{:.1f} %", 100 * ms / times.step_ms)});
    };
    for (const auto& [phase, ms] : times.compute_ms) add(phase, ms);
    for (const auto& [lane, time] : times.lanes) add("waiting for " + lane, time.exposed_ms);
    add("gap", times.gap_ms);
    fmt::print(c_.json ? stderr : stdout, "\nphases of {}{}\n{}\n", quantity(std::ssize(warm), "step"),
               privacy_ ? " (not private)" : "", table.text());
  }

  // Kineto around the step that was asked for and the one behind it.
  void trace(KernelProfile& profile, int64_t step) {
    if (!c_.profile_step) return;
    if (step == *c_.profile_step - 1 || (*c_.profile_step == 1 && step == 1)) profile.start();
    if (step == *c_.profile_step + 1) {
      executor_->wait();
      const std::string file =
          join_path(folder_, fmt::format("traces/kernels_step{}_rank{}.json", *c_.profile_step, info_.rank));
      profile.stop_and_save(file);
      // It shows how many micro-batches a step had, and so how many samples were drawn.
      std::error_code ignored;
      if (privacy_) fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write, ignored);
    }
  }

  // Rank 0 writes while the others take part in gathering, parameter by parameter in one order. Where an average of the weights is kept, it is the model.
  void export_trained(const Model& model) {
    auto whole = [this](size_t i) {
      const auto id = static_cast<ParamId>(i);
      return average_ ? average_->parameter(id) : executor_->parameter(id);
    };
    if (!speaks()) {
      for (size_t i = 0; i < model.params.size(); ++i) whole(i);
      return;
    }
    std::vector<TensorSource> sources;
    const DType storage = dtype_of(c_.experiment.storage);
    const StoredType type = stored_type(average_ || storage == at::kDouble ? at::kFloat : storage);
    for (size_t i = 0; i < model.params.size(); ++i) {
      TensorSource source{model.params[i].name, type, model.params[i].dims, {}};
      source.produce = [whole, i, name = source.name, type](const AppendBytes& append) {
        tensor_source(name, whole(i), type).produce(append);
      };
      sources.push_back(std::move(source));
    }
    std::vector<std::pair<std::string, std::string>> files = task_->export_files();
    if (privacy_) {
      nlohmann::json guarantee = privacy_->guarantee_json();
      const std::vector<std::string> frozen = frozen_names(model);
      if (!frozen.empty()) {
        guarantee["frozen"] = frozen;
        guarantee["frozen_are"] = "as they were given: what they were trained on is outside this epsilon";
      }
      files.emplace_back("privacy.json", guarantee.dump(2) + "\n");
    }
    export_model(c_.export_folder, files, sources, {.replace = true});
  }

  const TrainCommand& c_;
  const Options& options_;
  RankInfo info_;
  std::string folder_;
  Device device_;
  std::unique_ptr<TrainTask> task_;
  std::shared_ptr<const Feed> samples_, held_out_;
  std::unique_ptr<TrainPrivacy> privacy_;  // of a private run
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<WeightAverage> average_;
  int64_t global_batch_ = 0;
  std::unique_ptr<RunLock> lock_;
  std::vector<StepTime> steps_;  // --profile phases
};

}  // namespace

int run_training(const TrainCommand& command, const Options& options, const RankInfo& info, const std::string& folder) {
  return TrainRun(command, options, info, folder).run();
}

}  // namespace veil
