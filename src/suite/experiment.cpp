#include "suite/experiment.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "models/dit.h"
#include "models/language_model.h"
#include "models/linear_stack.h"
#include "models/presets.h"
#include "profile/trace.h"

namespace veil {

const NameTable<DeviceKind>& names(DeviceKind) {
  static const NameTable<DeviceKind> table = {
      {DeviceKind::automatic, "auto"}, {DeviceKind::cpu, "cpu"}, {DeviceKind::gpu, "gpu", {"cuda"}}};
  return table;
}

const NameTable<ProfileKind>& names(ProfileKind) {
  static const NameTable<ProfileKind> table = {{ProfileKind::phases, "phases"}, {ProfileKind::layers, "layers"},
                                               {ProfileKind::norms, "norms"},   {ProfileKind::kernels, "kernels"},
                                               {ProfileKind::memory, "memory"}, {ProfileKind::none, "none", {"off"}}};
  return table;
}

const NameTable<Precision>& names(Precision) {
  static const NameTable<Precision> table = {{Precision::fp32, "fp32", {"float32"}},
                                             {Precision::bf16, "bf16", {"bfloat16"}},
                                             {Precision::fp16, "fp16", {"float16"}},
                                             {Precision::fp64, "fp64", {"float64"}}};
  return table;
}

DType dtype_of(Precision precision) {
  return parse_dtype(name_of(precision));
}

bool ExperimentOptions::wants(ProfileKind kind) const {
  return std::find(profile.begin(), profile.end(), kind) != profile.end();
}

StepOptions step_options(const ExperimentOptions& options, int world, bool on_gpu) {
  StepOptions step;
  step.strategy = options.strategy;
  step.world = world;
  step.forward_prefetch = options.forward_prefetch;
  step.backward_prefetch = options.backward_prefetch;
  step.wrap = options.wrap;
  step.min_params = options.min_num_params;
  step.offload_params = options.cpu_offload || options.offload_params;
  step.offload_optimizer = options.cpu_offload || options.offload_optimizer;
  step.checkpointing = options.checkpointing;
  step.micro_batches = options.accumulation;
  step.accumulate_in = options.accumulate_in;
  step.storage = dtype_of(options.storage);
  step.compute = dtype_of(options.compute);
  step.reduce = dtype_of(options.reduce);
  step.moments = dtype_of(options.moments);
  step.optimizer = options.optimizer;
  step.on_gpu = on_gpu;
  if (sets_zero3(options.clip_choice.mode)) step.strategy = Strategy::zero3;
  return step;
}

void make_private(const ExperimentOptions& options, const ModelShape& shape, std::optional<Device> device,
                  ExecutorOptions& settings) {
  if (!options.is_private()) return;
  const bool by_layer = options.clip == privacy::ClipFunction::per_layer;
  std::optional<Roofline> roofline;
  if (device && !options.roofline_cache.empty())
    roofline = cached_roofline(options.roofline_cache, *device, settings.step.compute);
  settings.step.clip = clip_plan(options.clip_choice, shape, settings.step, by_layer, roofline);
  settings.privacy.emplace();
  settings.privacy->clip = options.clip;
  settings.privacy->clip_norms =
      privacy::equal_layer_norms(options.clip_norm, privacy::clip_layers(shape, by_layer).count);
  settings.privacy->noise_multiplier = options.sigma;
  settings.privacy->expected_batch =
      static_cast<double>(shape.batch) * settings.step.micro_batches * settings.step.world;
  settings.privacy->noise.generator = options.rng;
  // A measured step protects nobody: its key is the seed's.
  settings.privacy->noise.key.word[0] = static_cast<uint32_t>(options.seed);
  settings.privacy->noise.key.word[1] = static_cast<uint32_t>(options.seed >> 32);
}

int64_t layer_count(const ExperimentOptions& options, int world) {
  return options.layers.value_or(world);
}

int64_t rank_batch(const ExperimentOptions& options, int world) {
  if (!options.total_batch_size) return options.batch_size;
  const int64_t parts = static_cast<int64_t>(world) * options.accumulation;
  if (*options.total_batch_size % parts != 0) {
    user_error(
        "--total-batch-size {}: {} ranks with {} micro-batches each cannot share it evenly; allowed are multiples of "
        "{}",
        *options.total_batch_size, world, options.accumulation, parts);
  }
  return *options.total_batch_size / parts;
}

namespace {

void set_diffusion(const ExperimentOptions& options, ModelSource& source) {
  const DiffusionChoice& choice = options.diffusion;
  DitConfig config = source.diffusion.value_or(DitConfig{});
  const auto set = [&](const char* name, const std::optional<int64_t>& wish, int64_t& field) {
    if (!wish) return;
    if (!source.diffusion)
      user_error("--{} {}: it belongs to a diffusion transformer, and {} is none; presets are {}", name, *wish,
                 options.model, join(dit_preset_names(), ", "));
    if (source.has_weights() && *wish != field)
      user_error("--{} {}: the model's weights decide it, and they have {}", name, *wish, field);
    field = *wish;
  };
  set("image-size", choice.image_size, config.image_size);
  set("patch-size", choice.patch, config.patch);
  set("channels", choice.channels, config.channels);
  set("classes", choice.classes, config.classes);
  set("hidden-dim", choice.hidden, config.hidden);
  set("heads", choice.heads, config.heads);
  if (!source.diffusion) return;
  set("layers", options.layers, config.layers);
  source.diffusion = config;
  check_config(config, "--model " + options.model);
}

}  // namespace

ModelSource model_source(const ExperimentOptions& options) {
  std::string name = options.model;
  if (options.shapes_do && !is_fetched(name, options.hub_cache)) name = preset_of_hub_id(name).value_or(name);
  ModelSource source = find_model(name, options.hub_cache);
  set_diffusion(options, source);
  if (!source.config) {
    if (options.task || options.labels) user_error("--task and --labels: {} has neither", options.model);
    return source;
  }
  if (options.task) source.config->task = *options.task;
  if (options.labels) {
    if (source.config->task != Task::sequence_classification)
      user_error("--labels {}: pass --task sequence-classification too", *options.labels);
    source.config->labels = *options.labels;
  }
  if (options.layers) {
    if (source.has_weights()) user_error("--layers {}: the model's weights decide it", *options.layers);
    source.config->layers = *options.layers;
  }
  return source;
}

Model make_model(const ExperimentOptions& options, const ModelSource& source, int world) {
  Model model = source.diffusion ? dit_model(*source.diffusion, options.attention)
                : source.config
                    ? language_model(*source.config, {.tokens = options.seq_length, .attention = options.attention})
                    : linear_stack(options.input_size, layer_count(options, world));
  if (source.diffusion || source.config) model.name = source.name;
  if (!options.frozen.empty()) freeze(model, options.frozen, /*others=*/false);
  if (!options.train_only.empty()) freeze(model, options.train_only, /*others=*/true);
  return model;
}

void check_options(const ExperimentOptions& options) {
  if (!options.frozen.empty() && !options.train_only.empty())
    user_error("--freeze and --train-only: each says all; allowed is one of them");
  if (options.storage == Precision::fp16) user_error("--storage fp16: parameters are stored in fp32, bf16 or fp64");
  if (options.moments != Precision::fp32 && options.moments != Precision::bf16)
    user_error("--moments {}: an optimizer's moments are stored in fp32 or bf16 (in fp64 with --storage fp64)",
               name_of(options.moments));
  if (!options.simulate_world && options.simulate_rank != 0) {
    user_error("--simulate-rank {}: it is a rank of a simulated world; pass --simulate-world W too",
               options.simulate_rank);
  }
  if (options.simulate_world) {
    if (options.simulate_rank >= *options.simulate_world) {
      user_error("--simulate-rank {}: a world of {} has the ranks 0 to {}", options.simulate_rank,
                 *options.simulate_world, *options.simulate_world - 1);
    }
    if (options.ranks.value_or(1) != 1)
      user_error("--simulate-world {} with --ranks {}: a simulated world is measured in one process",
                 *options.simulate_world, *options.ranks);
  }
  if (!options.data.empty() && canonical(options.model).rfind("linear", 0) == 0)
    user_error("--data {}: the linear stack reads no text; name a language model with --model", options.data);
  if (options.data.empty() && !options.tokenizer.empty())
    user_error("--tokenizer {}: it reads the text of --data; pass --data PATH too", options.tokenizer);
  if (!options.data.empty() && !std::filesystem::exists(options.data))
    user_error("--data {}: no such folder or token store", options.data);
  if (options.wants(ProfileKind::none) && options.profile.size() > 1) user_error("--profile none stands alone");
}

std::string configuration_name(const ExperimentOptions& options, int world) {
  std::vector<std::pair<std::string, std::string>> parts;
  const bool linear = canonical(options.model).rfind("linear", 0) == 0,
             diffusion = dit_preset(options.model).has_value();
  std::string name = diffusion ? canonical(options.model) : options.model.substr(options.model.find_last_of('/') + 1);
  std::replace(name.begin(), name.end(), '/', '-');  // dit-l/8
  if (!linear) parts.push_back({"", name});
  parts.push_back({"", name_of(options.strategy)});
  parts.push_back({"w", std::to_string(world)});
  parts.push_back({"bs", std::to_string(rank_batch(options, world))});
  if (linear) {
    parts.push_back({"in", std::to_string(options.input_size)});
    parts.push_back({"l", std::to_string(layer_count(options, world))});
  } else if (!diffusion) {
    parts.push_back({"seq", std::to_string(options.seq_length)});
  }
  parts.push_back({"bwd-", name_of(options.backward_prefetch)});
  parts.push_back({"wrap-", name_of(options.wrap)});
  if (options.forward_prefetch) parts.push_back({"fwd", std::to_string(options.forward_prefetch)});
  if (options.cpu_offload || options.offload_params || options.offload_optimizer) parts.push_back({"offload", ""});
  if (options.checkpointing != Checkpointing::none) parts.push_back({"ckpt", ""});
  if (options.accumulation > 1) parts.push_back({"acc", std::to_string(options.accumulation)});
  if (options.compute != Precision::fp32) parts.push_back({"", name_of(options.compute)});
  return config_folder_name(parts);
}

}  // namespace veil
