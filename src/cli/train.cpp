// veil train: a language model on a folder of text.
#include <csignal>
#include <filesystem>

#include "base/clock.h"
#include "base/files.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/experiment_options.h"
#include "cli/terminal.h"
#include "cli/train_log.h"
#include "comm/launch.h"
#include "data/encode.h"
#include "models/export.h"
#include "models/load.h"
#include "models/weight_tensors.h"
#include "optim/learning_rate.h"
#include "profile/kineto.h"
#include "suite/machine.h"
#include "suite/peak_flops.h"
#include "suite/profile_run.h"
#include "suite/sweep.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

struct TrainCommand {
  ExperimentOptions experiment;
  std::string data, tokenizer;
  data::CorpusOptions corpus;
  data::SampleKind samples = data::SampleKind::packed;
  double held_out = 0.05;
  int64_t evaluation_samples = 0;
  std::optional<int64_t> steps;
  std::optional<double> epochs;
  LearningRateKind schedule = LearningRateKind::cosine;
  int64_t warmup_steps = 0;
  double minimum_lr_ratio = 0.1;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, max_grad_norm = 1;
  int64_t evaluate_every = 0, checkpoint_every = 0;
  int keep_checkpoints = 2;
  std::string output_dir = "runs", resume, export_folder;
  std::optional<int64_t> profile_step;
  bool json = false;
};

void add_options(Options& options, TrainCommand& c) {
  options.add("data", c.data,
              {.aliases = {"data_folder"},
               .help = "folder of .txt, .json and .jsonl files, or a token store of `veil tokenize`",
               .required = true,
               .value = "PATH"});
  options.add("tokenizer", c.tokenizer,
              {.help = "tokenizer.json, a folder that holds one, or byte; by default the model's own, else byte",
               .value = "PATH"});
  options.add("text-key", c.corpus.text_key, {.help = "what holds the text in an object", .value = "KEY"});
  options.add("label-key", c.corpus.label_key,
              {.help = "what holds the label; `label` for sequence classification", .value = "KEY"});
  options.add("label-names", c.corpus.label_names, {.help = "labels that are words: their names, from 0 on"});
  options.add("skip-bad", c.corpus.skip_bad, {.help = "leave bad lines out and count them, instead of stopping"});
  options.add("samples", c.samples,
              {.help = "what one sample is: packed text, or one document a sequence; labelled for classification"});
  options.add("held-out", c.held_out,
              {.help = "part of the documents kept for evaluation, chosen by a hash of their text",
               .minimum = 0,
               .maximum = 0.9});
  options.add("evaluation-samples", c.evaluation_samples,
              {.help = "held-out samples an evaluation takes; 0: all", .minimum = 0});
  add_step_options(options, c.experiment);
  add_running_options(options, c.experiment);
  options.add("steps", c.steps, {.aliases = {"num_steps", "max_steps"}, .help = "steps in all", .minimum = 1});
  options.add("epochs", c.epochs, {.help = "instead of --steps: times that every sample is seen", .minimum = 1e-9});
  options.add("schedule", c.schedule, {.help = "of the learning rate after its warm-up"});
  options.add("warmup-steps", c.warmup_steps, {.help = "steps over which the learning rate rises", .minimum = 0});
  options.add("minimum-lr", c.minimum_lr_ratio,
              {.help = "where the schedule ends, as a part of --learning-rate", .minimum = 0, .maximum = 1});
  options.add("beta1", c.beta1, {.help = "of adamw", .minimum = 0, .maximum = 1});
  options.add("beta2", c.beta2, {.help = "of adamw", .minimum = 0, .maximum = 1});
  options.add("epsilon-adam", c.epsilon, {.help = "of adamw", .minimum = 0});
  options.add("max-grad-norm", c.max_grad_norm,
              {.help = "scale the gradient down to this norm; 0: never. This is not private clipping", .minimum = 0});
  options.add("evaluate-every", c.evaluate_every, {.help = "steps; 0: at the end only", .minimum = 0});
  options.add("checkpoint-every", c.checkpoint_every, {.help = "steps; 0: at the end only", .minimum = 0});
  options.add("keep-checkpoints", c.keep_checkpoints, {.help = "newest ones kept", .minimum = 1, .maximum = 1000000});
  options.add("output-dir", c.output_dir, {.help = "parent of the run's folder", .value = "DIR"});
  options.add(
      "resume", c.resume,
      {.help = "go on with the run in this folder, or the newest of --output-dir", .bare = "latest", .value = "DIR"});
  options.add("export", c.export_folder,
              {.help = "write the trained model as a folder that transformers loads", .value = "DIR"});
  options.add("profile-step", c.profile_step,
              {.aliases = {"use_profiler"},
               .help = "write a trace of operators and kernels of this step and the next",
               .minimum = 1,
               .bare = "3"});
  options.add("json", c.json, {.help = "print lines as JSON"});
}

volatile std::sig_atomic_t interrupted = 0;

// Everything that can be wrong with the words alone.
void check(TrainCommand& c) {
  if (c.experiment.simulate_world) user_error("--simulate-world: training needs real ranks; `veil profile` simulates");
  if (c.steps && c.epochs) user_error("--steps {} and --epochs {}: one of them is allowed", *c.steps, *c.epochs);
  if (!c.steps && !c.epochs) c.epochs = 1;
  const ModelSource source = model_source(c.experiment);
  if (!source.config)
    user_error("--model {}: `veil train` trains language models; `veil profile` measures the linear stack",
               c.experiment.model);
  if (source.config->task == Task::sequence_classification) {
    c.samples = data::SampleKind::labelled;
    if (c.corpus.label_key.empty()) c.corpus.label_key = "label";
  } else if (c.samples == data::SampleKind::labelled) {
    user_error("--samples labelled: pass --task sequence-classification too");
  }
  if (!c.export_folder.empty()) check_folder_can_be_made(c.export_folder);
  if (c.resume.empty()) check_folder_can_be_made(c.output_dir);
}

class TrainRun {
 public:
  TrainRun(TrainCommand& command, const Options& options, const RankInfo& info, const std::string& folder)
      : c_(command),
        options_(options),
        info_(info),
        folder_(folder),
        device_(choose_device(command.experiment, info)) {}

  int run() {
    load_samples();
    const Model model = make_model(c_.experiment, source_, info_.world);
    make_executor(model);
    const data::Position start = resume();
    if (speaks()) announce(model);
    TrainOptions train = train_options();
    TrainLog log(folder_, speaks(), c_.json, train.steps, executor_->steps());
    log.set_throughput(3.0 * static_cast<double>(executor_->shape().model_flops()) * c_.experiment.accumulation,
                       peak());
    KernelProfile profile;
    TrainEvents events;
    events.on_step = [&](const StepLine& line) {
      log.step(line);
      trace(profile, line.step);
    };
    events.on_evaluation = [&](const EvaluationLine& line) { log.evaluation(line); };
    events.on_checkpoint = [&](int64_t step) { log.checkpoint(step); };
    Trainer trainer(*executor_, samples_, held_out_, train, events);
    const bool finished = trainer.run(start);
    if (finished && !c_.export_folder.empty()) export_trained(model);
    if (speaks()) log.end(finished, folder_, c_.export_folder);
    return finished ? kExitDone : kExitFailed;
  }

 private:
  bool speaks() const { return info_.rank == 0; }

  void load_samples() {
    source_ = model_source(c_.experiment);
    std::string name = c_.tokenizer;
    if (name.empty() && !source_.folder.empty() && fs::exists(fs::path(source_.folder) / "tokenizer.json"))
      name = source_.folder;
    const bool store = fs::is_regular_file(c_.data) && data::is_token_store(c_.data);
    if (name.empty() && !store) name = "byte";
    if (!name.empty()) tokenizer_ = data::load_tokenizer(name);
    data::EncodeOptions encode;
    const auto tokens = data::load_data(c_.data, tokenizer_.get(), c_.corpus, encode, [&](const data::Corpus& corpus) {
      if (!speaks()) return;
      for (const data::BadLine& line : corpus.bad_lines())
        fmt::print(stderr, "{} left out: {}\n", colored(stderr, Color::yellow, "veil:"), line.message());
    });
    tokens->require_vocabulary(source_.config->vocabulary);
    if (c_.samples == data::SampleKind::labelled) {
      if (tokens->label_count() > source_.config->labels)
        user_error("{}: labels go up to {}, the model has {}; pass --labels {}", c_.data, tokens->label_count() - 1,
                   source_.config->labels, tokens->label_count());
      // Padding must be told from text: the data's own padding token, where the config names none.
      if (source_.config->padding_id < 0) {
        const auto& identity = tokens->header().tokenizer;
        source_.config->padding_id = identity.padding.value_or(identity.end_of_text.value_or(0));
      }
    }
    auto split = [&](data::Split part) {
      return std::make_shared<const data::Samples>(
          tokens, data::SampleOptions{c_.samples, c_.experiment.seq_length, part, c_.held_out});
    };
    samples_ = split(c_.held_out > 0 ? data::Split::train : data::Split::all);
    if (c_.held_out > 0) held_out_ = split(data::Split::held_out);
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
    settings.optimizer.epsilon = c_.epsilon;
    settings.seed = static_cast<uint64_t>(c_.experiment.seed);
    settings.graph = c_.experiment.graph;
    if (source_.has_weights()) {
      const InitialWeights initial = load_weights(source_.folder, *source_.config, model.params);
      settings.initial = initial.fill;
      if (speaks()) {
        for (const std::string& notice : initial.notices)
          fmt::print(stderr, "{} {}\n", colored(stderr, Color::yellow, "veil:"), notice);
      }
    }
    const int64_t rows = batch * c_.experiment.accumulation;
    Batch data;
    {
      CategoryScope scope(Category::data);
      auto room = [&](const DataShape& shape) {
        std::vector<int64_t> dims{rows};
        dims.insert(dims.end(), shape.dims.begin(), shape.dims.end());
        return empty_tensor(dims, at::kLong, device_).zero_();
      };
      data = {room(model.input), room(model.target)};
    }
    executor_ = std::make_unique<Executor>(model, batch, settings, device_, std::move(data),
                                           make_ranks(c_.experiment, info_, device_));
    global_batch_ = rows * info_.world;
  }

  data::Position resume() {
    data::Position start;
    if (!c_.resume.empty()) {
      const auto checkpoint = newest_checkpoint(folder_);
      if (checkpoint) {
        const Json state = load_checkpoint(*checkpoint, *executor_);
        start = data::position_from_json(state.at("position"));
      }
    }
    executor_->prepare();
    return start;
  }

  TrainOptions train_options() const {
    TrainOptions train;
    const data::ShuffledOrder order(samples_->count(), global_batch_, static_cast<uint64_t>(c_.experiment.seed));
    train.steps = c_.steps
                      ? *c_.steps
                      : std::max<int64_t>(1, std::llround(*c_.epochs * static_cast<double>(order.steps_per_epoch())));
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

  void announce(const Model& model) const {
    if (c_.json) return;
    fmt::print("{}\n", options_.table());
    const auto& header = samples_->store().header();
    fmt::print("model     {}: {} parameters, {}, attention {}\n", source_.name,
               format_count(static_cast<double>(executor_->shape().param_count())), name_of(source_.config->task),
               attention_backend(c_.experiment.attention, dtype_of(c_.experiment.compute), device_));
    fmt::print("data      {} documents, {} tokens ({}); {} samples of {} tokens, {} held out\n", header.documents,
               format_count(static_cast<double>(header.tokens)), header.tokenizer.name, samples_->count(),
               samples_->length(), held_out_ ? held_out_->count() : 0);
    fmt::print("step      {} samples on {} {}, graph {}\n", global_batch_, info_.world,
               device_.is_cuda() ? "GPUs" : "CPU ranks", executor_->graph_state());
    fmt::print("private   no: plain training, nothing is clipped per sample and no noise is added\n");
    if (executor_->steps() > 0) fmt::print("resumed   after step {}\n", executor_->steps());
    fmt::print("\n");
    (void)model;
  }

  double peak() const {
    if (!device_.is_cuda()) return 0;
    const std::vector<GpuInfo> found = gpus();
    return peak_tflops_of(found[static_cast<size_t>(device_.index())].name, dtype_of(c_.experiment.compute));
  }

  // Kineto around the step that was asked for and the one behind it.
  void trace(KernelProfile& profile, int64_t step) {
    if (!c_.profile_step) return;
    if (step == *c_.profile_step - 1 || (*c_.profile_step == 1 && step == 1)) profile.start();
    if (step == *c_.profile_step + 1) {
      executor_->wait();
      profile.stop_and_save(
          join_path(folder_, fmt::format("traces/kernels_step{}_rank{}.json", *c_.profile_step, info_.rank)));
    }
  }

  // Rank 0 writes while the others take part in gathering, parameter by parameter in one order.
  void export_trained(const Model& model) {
    if (!speaks()) {
      for (size_t i = 0; i < model.params.size(); ++i) executor_->parameter(static_cast<ParamId>(i));
      return;
    }
    std::vector<TensorSource> sources;
    const StoredType type =
        stored_type(dtype_of(c_.experiment.storage) == at::kDouble ? at::kFloat : dtype_of(c_.experiment.storage));
    for (size_t i = 0; i < model.params.size(); ++i) {
      TensorSource source{model.params[i].name, type, model.params[i].dims, {}};
      source.produce = [this, i, name = source.name, type](const AppendBytes& append) {
        tensor_source(name, executor_->parameter(static_cast<ParamId>(i)), type).produce(append);
      };
      sources.push_back(std::move(source));
    }
    std::vector<std::pair<std::string, std::string>> files = {
        {"config.json", config_json(*source_.config).dump(2) + "\n"}};
    for (const char* name :
         {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"}) {
      const std::string path = source_.folder.empty() ? "" : join_path(source_.folder, name);
      if (!path.empty() && fs::exists(path)) files.emplace_back(name, read_file(path));
    }
    export_model(c_.export_folder, files, sources, {.replace = true});
  }

  TrainCommand& c_;
  const Options& options_;
  RankInfo info_;
  std::string folder_;
  Device device_;
  ModelSource source_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::shared_ptr<const data::Samples> samples_, held_out_;
  std::unique_ptr<Executor> executor_;
  int64_t global_batch_ = 0;
};

// The run's folder: made before the ranks start, so that all of them know it.
std::string run_folder(TrainCommand& c) {
  if (c.resume.empty()) return new_run_folder(c.output_dir);
  if (c.resume == "latest") c.resume = newest_run_folder(c.output_dir);
  if (!fs::is_directory(c.resume)) user_error("--resume {}: no such folder", c.resume);
  return c.resume;
}

}  // namespace

int run_train(const std::vector<std::string>& arguments) {
  TrainCommand command;
  Options options("train", "trains a language model on your text; not private yet");
  add_options(options, command);
  if (!options.parse(arguments)) return kExitDone;
  use_language_defaults(options, command.experiment);
  check_options(command.experiment);
  check(command);

  const RankInfo info = rank_info_from_environment();
  if (info.launcher == Launcher::none && command.experiment.ranks.value_or(1) > 1) {
    RankInfo planned = info;
    planned.world = planned.local_world = *command.experiment.ranks;
    choose_device(command.experiment, planned);
    rank_batch(command.experiment, planned.world);
    std::vector<std::string> words{"train"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    if (command.resume.empty()) words.insert(words.end(), {"--resume", run_folder(command)});
    return launch_local_ranks(*command.experiment.ranks, words);
  }
  ledger::install();
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  if (info.world == 1 && info.launcher == Launcher::none) {
    return TrainRun(command, options, info, run_folder(command)).run();
  }
  if (command.resume.empty())
    user_error("ranks started by a launcher need one folder: pass --resume DIR (an empty folder starts a new run)");
  World world(info);
  try {
    return TrainRun(command, options, info, run_folder(command)).run();
  } catch (const UserError& error) {
    world.fail(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    world.fail(error.what(), kExitFailed);
  }
}

}  // namespace veil
