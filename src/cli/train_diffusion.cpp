#include "cli/train_diffusion.h"

#include <csignal>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/units.h"
#include "cli/diffusion_source.h"
#include "cli/experiment_options.h"
#include "cli/run_lock.h"
#include "cli/terminal.h"
#include "cli/train_log.h"
#include "data/image_batches.h"
#include "models/export.h"
#include "models/load.h"
#include "models/weight_tensors.h"
#include "optim/learning_rate.h"
#include "suite/profile_run.h"
#include "suite/sweep.h"
#include "train/checkpoint.h"
#include "train/noised_batch.h"
#include "train/weight_average.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kShapes = "shapes";
constexpr const char* kAverageFile = "average.safetensors";

struct DiffusionCommand {
  ExperimentOptions experiment;
  std::optional<int64_t> image_size, patch, channels, classes, hidden, layers, heads;
  std::string data = kShapes;
  int64_t shapes = 4096;
  bool skip_bad = false;
  int loader_threads = 2;
  double label_drop = 0.1, average = 0.999;
  std::optional<int64_t> steps;
  std::optional<double> epochs;
  LearningRateKind schedule = LearningRateKind::constant;
  int64_t warmup_steps = 0;
  double minimum_lr_ratio = 0.1, beta1 = 0.9, beta2 = 0.999, max_grad_norm = 1;
  int64_t checkpoint_every = 0, log_every = 1;
  int keep_checkpoints = 2;
  std::string output_dir = "runs", resume, export_folder;
  bool json = false;
};

void add_options(Options& options, DiffusionCommand& c) {
  ExperimentOptions& e = c.experiment;
  e.model = "dit-l/8";
  e.batch_size = 2;
  e.optimizer = OptimizerKind::adamw;
  e.learning_rate = 1e-4;
  options.add(
      "model", e.model,
      {.help = "dit-s, dit-b, dit-l or dit-xl with /2, /4 or /8, dit-tiny, dit-shapes, or a folder with config.json",
       .value = "NAME"});
  options.add("image-size", c.image_size, {.help = "pixels of a side; as the model's preset says", .minimum = 1});
  options.add("patch-size", c.patch, {.help = "pixels of a patch's side", .minimum = 1});
  options.add("channels", c.channels, {.aliases = {"in_channels"}, .help = "3, or 1 for grey", .minimum = 1});
  options.add("classes", c.classes,
              {.aliases = {"num_classes"},
               .help = "of the images; as many as the data has where the model is a preset",
               .minimum = 1});
  options.add("hidden-size", c.hidden, {.aliases = {"hidden_dim"}, .help = "width of the hidden states", .minimum = 1});
  options.add("layers", c.layers, {.aliases = {"num_layers"}, .help = "blocks", .minimum = 1});
  options.add("heads", c.heads, {.aliases = {"num_heads"}, .help = "of attention", .minimum = 1});
  options.add("attention", e.attention, {.help = "cuDNN or flash as the device has it, or plain products"});
  options.add("data", c.data,
              {.aliases = {"data_folder"},
               .help = "folder of PNG and JPEG files, a sub-folder a class; shapes: drawn by rule",
               .value = "PATH"});
  options.add("shapes", c.shapes, {.help = "how many images --data shapes has", .minimum = 1, .maximum = 1 << 30});
  options.add("skip-bad", c.skip_bad,
              {.help = "leave images that cannot be read out and count them, instead of stopping"});
  options.add("loader-threads", c.loader_threads,
              {.help = "batches that are decoded ahead at a time", .minimum = 1, .maximum = 256});
  options.add("label-drop", c.label_drop,
              {.help = "part of the samples whose class is hidden, for guidance", .minimum = 0, .maximum = 1});
  options.add("ema", c.average,
              {.aliases = {"ema_decay"},
               .help = "decay of the weights' moving average, which is what --export writes; 0: none",
               .minimum = 0,
               .maximum = 0.999999});
  options.add("batch-size", e.batch_size, {.help = "samples a rank and micro-batch", .minimum = 1});
  options.add("total-batch-size", e.total_batch_size,
              {.aliases = {"global_batch_size"},
               .help = "samples of a logical batch over all ranks, instead of --batch-size",
               .minimum = 1});
  options.add("strategy", e.strategy,
              {.aliases = {"data_parallel"}, .help = "how parameters, gradients and optimizer state are spread"});
  options.add("checkpointing", e.checkpointing,
              {.aliases = {"activation_checkpointing"}, .help = "recompute activations in backward", .bare = "full"});
  options.add("accumulation", e.accumulation,
              {.aliases = {"gradient_accumulation_steps"},
               .help = "micro-batches in a logical batch",
               .minimum = 1,
               .maximum = 1000000});
  options.add("storage", e.storage, {.help = "type of parameters between steps"});
  options.add("compute", e.compute, {.aliases = {"dtype", "precision"}, .help = "type inside a step"});
  options.add("reduce", e.reduce, {.help = "type of gradients between ranks"});
  options.add("optimizer", e.optimizer, {.help = "update rule"});
  add_running_options(options, e);
  options.add("steps", c.steps, {.aliases = {"num_steps", "max_steps"}, .help = "steps in all", .minimum = 1});
  options.add("epochs", c.epochs, {.help = "instead of --steps: times that every image is seen", .minimum = 1e-9});
  options.add("schedule", c.schedule, {.help = "of the learning rate after its warm-up"});
  options.add("warmup-steps", c.warmup_steps, {.help = "steps over which the learning rate rises", .minimum = 0});
  options.add("minimum-lr", c.minimum_lr_ratio,
              {.help = "where the schedule ends, as a part of --learning-rate", .minimum = 0, .maximum = 1});
  options.add("beta1", c.beta1, {.help = "of adamw", .minimum = 0, .maximum = 1});
  options.add("beta2", c.beta2, {.help = "of adamw", .minimum = 0, .maximum = 1});
  options.add("max-grad-norm", c.max_grad_norm,
              {.help = "scale the gradient down to this norm; 0: never. This is not private clipping", .minimum = 0});
  options.add("checkpoint-every", c.checkpoint_every, {.help = "steps; 0: at the end only", .minimum = 0});
  options.add("keep-checkpoints", c.keep_checkpoints, {.help = "newest ones kept", .minimum = 1, .maximum = 1000000});
  options.add(
      "log-every", c.log_every,
      {.aliases = {"logging_steps"}, .help = "steps between two lines; metrics.jsonl has every step", .minimum = 1});
  options.add("output-dir", c.output_dir, {.help = "parent of the run's folder", .value = "DIR"});
  options.add(
      "resume", c.resume,
      {.help = "go on with the run in this folder, or the newest of --output-dir", .bare = "latest", .value = "DIR"});
  options.add("export", c.export_folder,
              {.help = "write the trained model as a folder that `veil sample` reads", .value = "DIR"});
  options.add("json", c.json, {.help = "print lines as JSON"});
}

volatile std::sig_atomic_t interrupted = 0;

void stop_when_asked() {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
    std::signal(number, [](int came) {
      interrupted = 1;
      std::signal(came, SIG_DFL);
    });
  }
}

class DiffusionRun {
 public:
  DiffusionRun(const DiffusionCommand& command, const Options& options, const RankInfo& info, std::string folder)
      : c_(command),
        options_(options),
        info_(info),
        folder_(std::move(folder)),
        device_(choose_device(command.experiment, info)) {}

  int run() {
    open_data();
    settle_config();
    const Model model = dit_model(config_, c_.experiment.attention);
    make_executor(model);
    steps_ = c_.steps.value_or(
        std::max<int64_t>(1, std::llround(c_.epochs.value_or(1) * static_cast<double>(images_->count()) /
                                          static_cast<double>(global_batch_))));
    const LearningRateSchedule rate{c_.schedule, c_.experiment.learning_rate, c_.warmup_steps, steps_,
                                    c_.minimum_lr_ratio};
    check_schedule(rate);
    auto order =
        std::make_unique<data::ShuffledOrder>(images_->count(), global_batch_, seed(), info_.rank, info_.world);
    if (speaks()) lock_ = std::make_unique<RunLock>(folder_);  // until here nothing is written
    const data::Position start = resume();
    if (speaks() && !c_.json) announce();
    TrainLog log(folder_, speaks(), c_.json, steps_, executor_->steps());
    log.print_every(c_.log_every);
    data::ImageBatches batches(images_, std::move(order), config_.image_size, config_.channels, start,
                               c_.loader_threads);
    stop_when_asked();
    bool stopped = false;
    while (executor_->steps() < steps_ && !stopped) {
      stopped = one_step(batches, rate, log);
      const int64_t step = executor_->steps();
      if (stopped || step == steps_ || (c_.checkpoint_every > 0 && step % c_.checkpoint_every == 0))
        checkpoint(*batches.position(), log);
    }
    const bool finished = executor_->steps() >= steps_;
    if (finished && !c_.export_folder.empty()) export_trained(model);
    if (speaks()) log.end(finished, folder_, c_.export_folder);
    return finished || !speaks() ? kExitDone : kExitFailed;
  }

 private:
  bool speaks() const { return info_.rank == 0; }
  uint64_t seed() const { return static_cast<uint64_t>(c_.experiment.seed); }

  void open_data() {
    if (c_.data == kShapes) {
      images_ = std::make_shared<data::Shapes>(c_.shapes, seed());
      return;
    }
    const auto folder = std::make_shared<data::ImageFolder>(c_.data, c_.skip_bad, c_.loader_threads);
    if (speaks() && !folder->left_out().empty()) {
      for (const std::string& message : folder->left_out())
        fmt::print(stderr, "{} left out: {}\n", colored(stderr, Color::yellow, "veil:"), message);
      fmt::print(stderr, "{} {} images were left out, {} are used\n", colored(stderr, Color::yellow, "veil:"),
                 folder->left_out().size(), folder->count());
    }
    images_ = folder;
  }

  void settle_config() {
    source_ = find_diffusion_model(c_.experiment.model).value();
    config_ = source_.config;
    const auto found = static_cast<int64_t>(images_->class_names().size());
    if (source_.folder.empty() && !c_.classes) config_.classes = found;
    auto take = [](const std::optional<int64_t>& given, int64_t& field) { field = given.value_or(field); };
    take(c_.image_size, config_.image_size);
    take(c_.patch, config_.patch);
    take(c_.channels, config_.channels);
    take(c_.classes, config_.classes);
    take(c_.hidden, config_.hidden);
    take(c_.layers, config_.layers);
    take(c_.heads, config_.heads);
    check_config(config_, "--model " + c_.experiment.model);
    if (config_.channels != 1 && config_.channels != 3)
      user_error("--channels {}: images have 3, or 1 for grey", config_.channels);
    if (found > config_.classes)
      user_error("{}: class '{}' has label {}, the model has classes 0 to {}; pass --classes {}", c_.data,
                 images_->class_names().back(), found - 1, config_.classes - 1, found);
    schedule_ = noise_schedule(config_);
  }

  void make_executor(const Model& model) {
    const int64_t batch = rank_batch(c_.experiment, info_.world);
    ExecutorOptions settings;
    settings.step = step_options(c_.experiment, info_.world, device_.is_cuda());
    settings.step.grad_norm = true;
    settings.max_grad_norm = c_.max_grad_norm;
    settings.optimizer.kind = c_.experiment.optimizer;
    settings.optimizer.momentum = c_.experiment.momentum;
    settings.optimizer.weight_decay = c_.experiment.weight_decay;
    settings.optimizer.beta1 = c_.beta1;
    settings.optimizer.beta2 = c_.beta2;
    settings.seed = seed();
    settings.graph = c_.experiment.graph;
    if (!source_.folder.empty() && fs::exists(fs::path(source_.folder) / "model.safetensors"))
      settings.initial = load_weights(source_.folder, model.params).fill;
    const int64_t rows = batch * c_.experiment.accumulation;
    Batch data;
    {
      CategoryScope scope(Category::data);
      auto room = [&](const DataShape& shape) {
        std::vector<int64_t> dims{rows};
        dims.insert(dims.end(), shape.dims.begin(), shape.dims.end());
        return empty_tensor(dims, shape.dtype.value_or(settings.step.compute), device_).zero_();
      };
      data = {room(model.input), room(model.target), {}, room(*model.condition)};
    }
    executor_ = std::make_unique<Executor>(model, batch, settings, device_, std::move(data),
                                           make_ranks(c_.experiment, info_, device_));
    global_batch_ = rows * info_.world;
    if (global_batch_ > images_->count())
      user_error("--batch-size: {} images a step, the data has {}", global_batch_, images_->count());
  }

  data::Position resume() {
    data::Position start;
    const auto found = c_.resume.empty() ? std::nullopt : newest_checkpoint(folder_);
    if (found) {
      const Json state = load_checkpoint(*found, *executor_);
      start = data::position_from_json(state.at("position"));
    }
    if (c_.average > 0) average_ = std::make_unique<WeightAverage>(*executor_, c_.average);
    if (found && average_) average_->load(join_path(folder_, kAverageFile));
    executor_->prepare();
    return start;
  }

  void announce() const {
    fmt::print("{}\n", options_.table());
    fmt::print("model     {}: {} parameters, {} x {} x {} images in {} patches, {} classes\n", c_.experiment.model,
               format_count(static_cast<double>(executor_->shape().param_count())), config_.image_size,
               config_.image_size, config_.channels, config_.tokens(), config_.classes);
    fmt::print("data      {}: {} images\n", c_.data, images_->count());
    fmt::print("step      {} images on {} {}, graph {}\n", global_batch_, info_.world,
               device_.is_cuda() ? "GPUs" : "CPU ranks", executor_->graph_state());
    fmt::print("private   no: plain training, nothing is clipped per sample and no noise is added\n\n");
  }

  // Whether a signal asked for the end.
  bool one_step(data::ImageBatches& batches, const LearningRateSchedule& rate, TrainLog& log) {
    const double begin_ms = steady_ms(), waited_before = batches.waited_ms();
    const std::optional<data::ImageBatch> batch = batches.next();
    VEIL_CHECK(batch, "a shuffled order has no end");
    StepLine line;
    line.step = executor_->steps() + 1;
    line.epoch = batch->position.epoch;
    line.learning_rate = learning_rate_at(rate, line.step);
    executor_->load(noised_batch(config_, schedule_, batch->pixels, batch->samples, batch->labels, images_->count(),
                                 line.step, {seed(), c_.label_drop}, executor_->schedule().options.compute, device_));
    executor_->step(line.learning_rate);
    const std::vector<double> sums = over_ranks({executor_->loss_sum(), interrupted ? 1.0 : 0.0});
    if (average_) average_->update();
    line.loss = sums[0] / static_cast<double>(global_batch_);
    line.grad_norm = executor_->grad_norm();
    line.seconds = (steady_ms() - begin_ms) / 1e3;
    line.tokens_per_second = static_cast<double>(global_batch_ * config_.tokens()) / std::max(1e-9, line.seconds);
    line.waited_for_data_seconds = (batches.waited_ms() - waited_before) / 1e3;
    line.peak_bytes = ledger::peak(device_.is_cuda() ? Space::device : Space::host).total();
    log.step(line);
    if (!std::isfinite(line.loss))
      throw UserError(
          fmt::format("the loss is {} at step {}: lower --learning-rate or raise --warmup-steps", line.loss, line.step),
          kExitFailed);
    return sums[1] > 0;
  }

  std::vector<double> over_ranks(const std::vector<double>& values) {
    Communicator* lane = executor_->communicator();
    if (!lane) return values;
    Tensor all = empty_tensor({static_cast<int64_t>(values.size())}, at::kDouble, cpu_device());
    std::copy(values.begin(), values.end(), all.data_ptr<double>());
    all = all.to(device_);
    lane->all_reduce(all)->wait();
    all = all.cpu();
    return {all.data_ptr<double>(), all.data_ptr<double>() + all.numel()};
  }

  void checkpoint(const data::Position& next, TrainLog& log) {
    if (average_) average_->save(join_path(folder_, kAverageFile));
    Json state;
    state["schema"] = 1;
    state["steps"] = executor_->steps();
    state["global_batch"] = global_batch_;
    state["position"] = data::position_json(next);
    state["settings"] = options_.json();
    save_checkpoint(folder_, *executor_, state, c_.keep_checkpoints);
    log.checkpoint(executor_->steps());
  }

  // Every rank takes part in gathering, parameter by parameter in one order; rank 0 writes.
  void export_trained(const Model& model) {
    std::vector<TensorSource> sources;
    for (size_t i = 0; i < model.params.size(); ++i) {
      const auto id = static_cast<ParamId>(i);
      const Tensor value = average_ ? average_->parameter(id) : executor_->parameter(id);
      if (speaks()) sources.push_back(tensor_source(model.params[i].name, value, StoredType::f32));
    }
    if (!speaks()) return;
    Json config = config_json(config_);
    config["class_names"] = images_->class_names();
    export_model(c_.export_folder, {{"config.json", config.dump(2) + "\n"}}, sources, {.replace = true});
  }

  const DiffusionCommand& c_;
  const Options& options_;
  RankInfo info_;
  std::string folder_;
  Device device_;
  std::shared_ptr<const data::ImageSource> images_;
  DiffusionSource source_;
  DitConfig config_;
  NoiseSchedule schedule_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<WeightAverage> average_;
  std::unique_ptr<RunLock> lock_;
  int64_t global_batch_ = 0, steps_ = 0;
};

std::string run_folder(const DiffusionCommand& c, const RankInfo& info) {
  if (c.resume.empty()) return unused_run_folder(c.output_dir);
  if (c.resume == "latest") return newest_run_folder(c.output_dir);
  if (info.launcher_socket.empty() && !fs::is_directory(c.resume)) user_error("--resume {}: no such folder", c.resume);
  return c.resume;
}

}  // namespace

bool names_diffusion_model(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (const std::string& option : {std::string("--model"), std::string("--model-name")}) {
      const std::string word = canonical(arguments[i].substr(0, arguments[i].find('=')));
      if (word != option) continue;
      const size_t value = arguments[i].find('=');
      if (value != std::string::npos) return find_diffusion_model(arguments[i].substr(value + 1)).has_value();
      if (i + 1 < arguments.size()) return find_diffusion_model(arguments[i + 1]).has_value();
    }
  }
  return false;
}

int run_train_diffusion(const std::vector<std::string>& arguments) {
  DiffusionCommand command;
  Options options("train", "trains a diffusion transformer on your images; not private yet");
  add_options(options, command);
  for (const std::string& word : arguments) {
    if (word.starts_with("--epsilon") || word.starts_with("--sigma"))
      user_error("{}: diffusion transformers are not trained privately yet; without it nothing is clipped or hidden",
                 word.substr(0, word.find('=')));
  }
  if (!options.parse(arguments)) return kExitDone;
  if (!find_diffusion_model(command.experiment.model))
    user_error("--model {}: no diffusion transformer; presets are {}", command.experiment.model,
               join(dit_preset_names(), ", "));
  if (command.steps && command.epochs)
    user_error("--steps {} and --epochs {}: one of them is allowed", *command.steps, *command.epochs);
  if (!command.export_folder.empty()) check_folder_can_be_made(command.export_folder);
  if (command.resume.empty()) check_folder_can_be_made(command.output_dir);

  const RankInfo info = rank_info_from_environment();
  const bool launches = info.launcher == Launcher::none && command.experiment.ranks.value_or(1) > 1;
  if (info.launcher != Launcher::none && command.resume.empty())
    user_error("ranks started by a launcher need one folder: pass --resume DIR (an empty folder starts a new run)");
  const std::string folder = run_folder(command, info);
  if (launches) {
    std::vector<std::string> words{"train"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    if (command.resume.empty()) words.insert(words.end(), {"--resume", folder});
    return launch_local_ranks(*command.experiment.ranks, words, OnSignal::ask_ranks);
  }
  ledger::install();
  if (info.launcher == Launcher::none) return DiffusionRun(command, options, info, folder).run();
  World world(info);
  try {
    return DiffusionRun(command, options, info, folder).run();
  } catch (const UserError& error) {
    world.fail(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    world.fail(error.what(), kExitFailed);
  }
}

}  // namespace veil
