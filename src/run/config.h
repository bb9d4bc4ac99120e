// The configuration of a run: one value that every command and every program fills, and that
// everything below it reads.
//
//   RunConfig config = training_config("llama-tiny");  // or RunConfig{}: a measured linear stack
//   config.model.from_scratch = true;                  // a preset has no weights
//   config.data.path = "texts";
//   config.privacy.epsilon = 3;
//
// Its fields are the command line's options by another spelling: `--clip-norm` is clip_norm. Their
// names, as errors and stored settings use them, are in run/config_fields.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/samples.h"
#include "engine/executor.h"
#include "nn/attention.h"
#include "optim/learning_rate.h"
#include "privacy/mechanism.h"
#include "run/clip_choice.h"
#include "run/model_source.h"
#include "shard/options.h"

namespace veil {

enum class DeviceKind { automatic, cpu, gpu };
const NameTable<DeviceKind>& names(DeviceKind);
// norms: what a backward row spends on its reports is told apart from the rest of it.
enum class ProfileKind { phases, layers, norms, kernels, memory, none };
const NameTable<ProfileKind>& names(ProfileKind);
enum class Precision { fp32, bf16, fp16, fp64 };
const NameTable<Precision>& names(Precision);
DType dtype_of(Precision precision);

// What may differ from a diffusion transformer's config; its layers are ModelConfig::layers.
struct DiffusionChoice {
  std::optional<int64_t> image_size, patch, channels, classes, hidden, heads;
};

struct ModelConfig {
  std::string name = "linear-stack";  // a preset, a folder with config.json, or a hub id
  std::string hub_cache;              // where hub ids are looked for
  // A hub id that was not fetched is taken for the preset of its shape, with random weights.
  bool shapes_do = false;
  // Start with random weights. Without it a model that has none is an error, unless the run only
  // measures (shapes_do).
  bool from_scratch = false;
  int64_t seq_length = 1024;      // tokens in a sequence of a language model
  bool beyond_positions = false;  // which may then be more than the model was made for
  std::optional<Task> task;       // of a language model; none: as its config says
  std::optional<int64_t> labels;
  AttentionKind attention = AttentionKind::automatic;
  DiffusionChoice diffusion;
  int64_t input_size = 16384;     // width of the linear stack
  std::optional<int64_t> layers;  // of the linear stack: as many as there are ranks
  // Patterns of parameter names: those that are not trained, or all but those that are.
  std::vector<std::string> frozen, train_only;
  // Adapters of this rank are made and trained, and nothing else but what matches `train_also` and
  // a classifier's head. The rest is LoraSettings; alpha is twice the rank if not set.
  std::optional<int64_t> lora_rank;
  std::optional<double> lora_alpha;
  std::vector<std::string> lora_targets;  // empty: all
  bool lora_rslora = false;
  std::vector<std::string> train_also;
  std::string adapter;  // a folder with an adapter as PEFT writes it, which is trained on; "": none

  bool has_adapters() const { return lora_rank || !adapter.empty(); }
};

// How one step is computed and what it keeps in memory. Defaults are those of the FSDP tutorial of
// ODSC West 2024, on a stack of linear layers.
struct StepConfig {
  // Samples per rank and micro-batch. 0: as many as total_batch_size needs in `accumulation`
  // micro-batches. Otherwise total_batch_size decides how many micro-batches there are.
  int64_t batch_size = 8192;
  std::optional<int64_t> total_batch_size;  // samples of a logical batch over all ranks
  int accumulation = 1;                     // micro-batches in a logical batch
  AccumulateIn accumulate_in = AccumulateIn::shard;
  bool defer_update = false;
  Exchange exchange = Exchange::automatic;
  Strategy strategy = Strategy::zero3;
  bool cpu_offload = false;  // parameters and optimizer state
  bool offload_params = false, offload_optimizer = false;
  int forward_prefetch = 0;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  WrapPolicy wrap = WrapPolicy::module;
  int64_t min_num_params = 100'000'000;
  Checkpointing checkpointing = Checkpointing::none;
  Precision storage = Precision::fp32, compute = Precision::fp32, reduce = Precision::fp32,
            moments = Precision::fp32;
  bool tf32 = false, deterministic = false;
  GraphMode graph = GraphMode::automatic;
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::sgd;
  double learning_rate = 0.01, momentum = 0.9, weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;  // AdamW's
  // Of training: how the learning rate moves, the norm that plain training scales the whole
  // gradient down to (1 if not set, 0: never; in a private run it means C), and the decay of the
  // weights' moving average (0: none is kept).
  LearningRateKind schedule = LearningRateKind::cosine;
  int64_t warmup_steps = 0;
  double minimum_ratio = 0.1;  // of learning_rate, where a falling one ends
  std::optional<double> max_grad_norm;
  double average = 0;
};

inline constexpr const char* kShapes = "shapes";  // DataConfig::path: images drawn by rule
// CorpusOptions::user_key of images: class/user/file; otherwise it is the path of a listing
inline constexpr const char* kUsersByFolder = "folder";

struct DataConfig {
  // Text: a folder or a token store. Images: a folder or kShapes. "": synthetic samples, the same
  // in every step.
  std::string path;
  std::string tokenizer;  // "": the model's own; "bytes"
  std::string end_token;  // id or text; "": as the model's files say
  data::CorpusOptions corpus;
  std::optional<data::SampleKind> samples;  // none: as the model's task and the privacy unit need
  double held_out = 0.05;                   // part kept for evaluation
  bool held_out_required = false;           // an empty held-out part is then an error
  int64_t shapes = 4096;                    // images of kShapes
  int loader_threads = 2;                   // that decode images
  double label_drop = 0.1;                  // part of the images whose class is hidden
};

struct PrivacyConfig {
  ClipChoice method;  // whether the step is private, and how its clipping is computed
  std::optional<double> epsilon, sigma, delta;
  std::optional<double> clip_norm;  // C; 1 if not set
  privacy::ClipFunction clip = privacy::ClipFunction::abadi;
  std::vector<double> layer_norms;         // of per_layer; empty: equal ones that make clip_norm
  double quantile = 0.5, clip_rate = 0.2;  // of adaptive
  std::optional<double> count_noise;       // of adaptive
  privacy::SamplerKind sampler = privacy::SamplerKind::poisson;
  // none: a document of text with one sequence each, unless data.samples says packed; an image
  std::optional<privacy::PrivacyUnit> unit;
  privacy::AccountantKind accountant = privacy::AccountantKind::pld;
  NoiseGenerator rng = NoiseGenerator::hardened;
  std::optional<int64_t> data_size;  // samples or users as the public knows them
  // draws are cut to so many: a number, or "auto", the smallest that costs almost nothing. "": none
  std::string max_batch;
  std::string secret_file;            // "": drawn, and kept with the run
  bool allow_insecure_noise = false;  // export a model whose noise is not cryptographic
  // Samples that a coin each puts into the run or leaves out, for a lower bound of its epsilon.
  int64_t audit_canaries = 0;

  bool is_private() const { return method.mode != Mode::no_dp; }
  bool by_layer() const { return clip == privacy::ClipFunction::per_layer; }
};

// Where it runs.
struct PlacementConfig {
  DeviceKind device = DeviceKind::automatic;
  std::optional<int> ranks;  // local ones to start
  bool share_gpu = false;
  std::optional<int> simulate_world;
  int simulate_rank = 0;
  double link_gb_per_s = 200;  // of a simulated world
  bool ignore_memory = false;  // start a step on a CPU although its estimate exceeds the memory
  std::string prices_file;     // what `veil doctor --calibrate` measured; "": nothing
};

// How long a step is measured, and what is watched.
struct MeasureConfig {
  int64_t warmup = 5, iterations = 5;
  std::vector<ProfileKind> profile = {ProfileKind::phases, ProfileKind::memory};

  bool wants(ProfileKind kind) const;
};

// How long a model is trained, and what its folder gets.
struct TrainingConfig {
  std::optional<int64_t> steps;                      // in all
  std::optional<double> epochs;                      // instead; 3 if neither is set
  int64_t evaluate_every = 0, checkpoint_every = 0;  // steps; 0: at the end only
  int64_t evaluation_samples = 0;                    // 0: all held-out ones
  int keep_checkpoints = 2;
  std::string output_dir = "runs";      // parent of a new run's folder
  std::string resume;                   // a run's folder; of output_dir: "latest" or "auto"
  std::string export_folder;            // gets the trained model; "": none
  bool overwrite = false;               // replace an earlier export there
  bool merge = false;                   // export the whole model instead of its adapters
  std::optional<int64_t> profile_step;  // a trace of its kernels is written
};

struct RunConfig {
  ModelConfig model;
  StepConfig step;
  OptimizerConfig optimizer;
  DataConfig data;
  PrivacyConfig privacy;
  PlacementConfig placement;
  MeasureConfig measure;
  TrainingConfig training;
  int64_t seed = 0;  // of parameters, synthetic data and the samples' order
};

// The parts of it that a schedule is built from, for a world of `world`.
StepOptions step_options(const RunConfig& config, int world, bool on_gpu);
// What makes an executor's step private.
struct PrivateParts {
  privacy::ClipMethod method;
  privacy::PrivateStep step;
  bool varying = false;  // the number of samples differs from step to step
  // of every step, if it does not and the configuration's is another
  std::optional<int> micro_batches = {};
};
// Of a measured step, which protects nobody: its key is the seed's.
PrivateParts measured_privacy(const RunConfig& config, const ModelShape& shape,
                              const StepOptions& step, const privacy::ClipMethod& method);
// What its steps are priced by, to choose among clip methods and to predict their time: this
// machine's prices, or those of an H200 for a GPU if there is none here.
StepPrices step_prices(const RunConfig& config, bool on_gpu);
// The one place where an executor's options are filled; `initial` remains to be set where the
// parameters come from a file.
ExecutorOptions executor_options(const RunConfig& config, int world, Device device,
                                 const std::optional<PrivateParts>& privacy = {});
int64_t layer_count(const RunConfig& config, int world);
// Sets batch_size and accumulation so that they make total_batch_size, if that is given.
// UserError if they cannot. Settling twice changes nothing.
void settle_batch(RunConfig& config, int world);
// Samples per rank and micro-batch once that is settled.
int64_t rank_batch(const RunConfig& config, int world);
// The linear stack, a language model or a diffusion transformer, whose source is found by its name;
// what the configuration sets differently is in it.
ModelSource model_source(const RunConfig& config);
Model make_model(const RunConfig& config, const ModelSource& source, int world);
bool runs_on_gpu(const PlacementConfig& placement);
// Throw UserError for what contradicts itself, whatever the machine: in the step of any run, and in
// all of a measured one.
void check_step(const RunConfig& config);
void check_config(const RunConfig& config);

// Options that take less memory than these, best first: what a person can do if it runs out.
std::vector<std::string> remedies(const RunConfig& config, int world, bool on_gpu);

// "zero3_bs8192_in16384_l8_bwd-pre": names the folder of traces.
std::string configuration_name(const RunConfig& config, int world);

}  // namespace veil
