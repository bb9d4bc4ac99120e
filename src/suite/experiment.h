// One experiment: a model, how its step is spread, how long it is measured, and what is recorded of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/attention.h"
#include "shard/options.h"
#include "suite/clip_choice.h"
#include "suite/model_source.h"
#include "train/executor.h"

namespace veil {

enum class DeviceKind { automatic, cpu, gpu };
const NameTable<DeviceKind>& names(DeviceKind);
// norms: what a backward row spends on its reports is told apart from the rest of it.
enum class ProfileKind { phases, layers, norms, kernels, memory, none };
const NameTable<ProfileKind>& names(ProfileKind);
enum class Precision { fp32, bf16, fp16, fp64 };
const NameTable<Precision>& names(Precision);
DType dtype_of(Precision precision);

// What may differ from a diffusion transformer's config; its layers are ExperimentOptions::layers.
struct DiffusionChoice {
  std::optional<int64_t> image_size, patch, channels, classes, hidden, heads;
};

// Defaults are seed 003's; for language models see use_language_defaults.
struct ExperimentOptions {
  std::string model = "linear-stack";
  std::string hub_cache;   // where hub ids are looked for
  bool shapes_do = false;  // a hub id that was not fetched is taken for the preset of its shape, with random weights
  int64_t seq_length = 1024;
  std::optional<Task> task;  // of a language model; none: as its config says
  std::optional<int64_t> labels;
  AttentionKind attention = AttentionKind::automatic;
  DiffusionChoice diffusion;
  std::string data, tokenizer;  // text for a language model's steps, and what reads it; "": synthetic tokens
  int64_t input_size = 16384;
  std::optional<int64_t> layers;  // as many as there are ranks
  int64_t batch_size = 8192;      // samples a rank and micro-batch
  std::optional<int64_t> total_batch_size;
  Strategy strategy = Strategy::zero3;
  bool cpu_offload = false;  // parameters and optimizer state
  bool offload_params = false, offload_optimizer = false;
  int forward_prefetch = 0;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  WrapPolicy wrap = WrapPolicy::module;
  int64_t min_num_params = 100'000'000;
  Checkpointing checkpointing = Checkpointing::none;
  int accumulation = 1;
  AccumulateIn accumulate_in = AccumulateIn::shard;
  Precision storage = Precision::fp32, compute = Precision::fp32, reduce = Precision::fp32, moments = Precision::fp32;
  OptimizerKind optimizer = OptimizerKind::sgd;
  double learning_rate = 0.01, momentum = 0.9, weight_decay = 0;
  int64_t seed = 0;
  bool tf32 = false, deterministic = false;
  std::vector<std::string> frozen, train_only;  // patterns of parameter names

  // A private step.
  ClipChoice clip_choice;
  privacy::ClipFunction clip = privacy::ClipFunction::abadi;
  double sigma = 1, clip_norm = 1;
  NoiseGenerator rng = NoiseGenerator::philox;
  std::string roofline_cache;  // "": an assumed one
  bool is_private() const { return clip_choice.mode != Mode::no_dp; }

  int64_t warmup = 5, iterations = 5;
  GraphMode graph = GraphMode::automatic;
  DeviceKind device = DeviceKind::automatic;
  std::vector<ProfileKind> profile = {ProfileKind::phases, ProfileKind::memory};

  std::optional<int> ranks;
  bool share_gpu = false;
  std::optional<int> simulate_world;
  int simulate_rank = 0;
  double link_gb_per_s = 200;  // of a simulated world

  bool wants(ProfileKind kind) const;
};

// The parts of it that a schedule is built from, for a world of `world`.
StepOptions step_options(const ExperimentOptions& options, int world, bool on_gpu);
// Makes the step private where the options say so; `device` is what the roofline is measured on where there is one to plan for.
void make_private(const ExperimentOptions& options, const ModelShape& shape, std::optional<Device> device,
                  ExecutorOptions& settings);
int64_t layer_count(const ExperimentOptions& options, int world);
// Samples a rank and micro-batch, from total_batch_size where that is given. UserError where it does not divide.
int64_t rank_batch(const ExperimentOptions& options, int world);
// The linear stack, a language model or a diffusion transformer, whose source is found by its name; what the options set differently is in it.
ModelSource model_source(const ExperimentOptions& options);
Model make_model(const ExperimentOptions& options, const ModelSource& source, int world);
// Throws UserError for what contradicts itself, whatever the machine.
void check_options(const ExperimentOptions& options);

// "zero3_bs8192_in16384_l8_bwd-pre": names the folder of traces.
std::string configuration_name(const ExperimentOptions& options, int world);

}  // namespace veil
