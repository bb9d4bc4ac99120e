#include "run/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/quantity.h"
#include "base/text.h"
#include "kernels/sample_products.h"
#include "models/adapter_task.h"
#include "models/adapters.h"
#include "models/classifier_labels.h"
#include "models/dit.h"
#include "models/family.h"
#include "models/linear_stack.h"
#include "profile/trace.h"
#include "run/size_check.h"

namespace veil {

const NameTable<DeviceKind>& names(DeviceKind) {
  static const NameTable<DeviceKind> table = {{DeviceKind::automatic, "auto"},
                                              {DeviceKind::cpu, "cpu"},
                                              {DeviceKind::gpu, "gpu", {"cuda"}}};
  return table;
}

const NameTable<ProfileKind>& names(ProfileKind) {
  static const NameTable<ProfileKind> table = {
      {ProfileKind::phases, "phases"}, {ProfileKind::layers, "layers"},
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

bool MeasureConfig::wants(ProfileKind kind) const {
  return std::find(profile.begin(), profile.end(), kind) != profile.end();
}

StepOptions step_options(const RunConfig& config, int world, bool on_gpu) {
  StepOptions step;
  step.strategy = config.step.strategy;
  step.world = world;
  step.forward_prefetch = config.step.forward_prefetch;
  step.backward_prefetch = config.step.backward_prefetch;
  step.wrap = config.step.wrap;
  step.min_params = config.step.min_num_params;
  step.offload_params = config.step.cpu_offload || config.step.offload_params;
  step.offload_optimizer = config.step.cpu_offload || config.step.offload_optimizer;
  step.checkpointing = config.step.checkpointing;
  step.micro_batches = config.step.accumulation;
  step.accumulate_in = config.step.accumulate_in;
  step.defer_update = config.step.defer_update;
  step.exchange = config.step.exchange;
  step.storage = dtype_of(config.step.storage);
  step.compute = dtype_of(config.step.compute);
  step.reduce = dtype_of(config.step.reduce);
  step.moments = dtype_of(config.step.moments);
  step.optimizer = config.optimizer.kind;
  step.on_gpu = on_gpu;
  step.sample_products = on_gpu && gpu_has_sample_products();
  if (sets_zero3(config.privacy.method.mode)) step.strategy = Strategy::zero3;
  return step;
}

PrivateParts measured_privacy(const RunConfig& config, const ModelShape& shape,
                              const StepOptions& step, const privacy::ClipMethod& method) {
  const PrivacyConfig& p = config.privacy;
  const int layers = privacy::clip_layers(shape, p.by_layer()).count;
  PrivateParts parts;
  parts.method = method;
  parts.step.clip = p.clip;
  parts.step.clip_norms = privacy::equal_layer_norms(p.clip_norm.value_or(1), layers);
  parts.step.noise_multiplier = p.sigma.value_or(1);
  parts.step.expected_batch = static_cast<double>(shape.batch) * step.micro_batches * step.world;
  parts.step.noise.generator = p.rng;
  parts.step.noise.key.word[0] = static_cast<uint32_t>(config.seed);
  parts.step.noise.key.word[1] = static_cast<uint32_t>(config.seed >> 32);
  return parts;
}

StepPrices step_prices(const RunConfig& config, bool on_gpu) {
  const DType compute = dtype_of(config.step.compute);
  StepPrices prices;
  prices.machine = on_gpu && gpu_count() == 0
                       ? known_prices(KnownGpu::h200, compute)
                       : prices_for(config.placement.prices_file,
                                    on_gpu ? gpu_device(0) : cpu_device(), compute);
  prices.link.bandwidth_bytes_per_s = config.placement.link_gb_per_s * 1e9;
  prices.noise = config.privacy.rng;
  return prices;
}

ExecutorOptions executor_options(const RunConfig& config, int world, Device device,
                                 const std::optional<PrivateParts>& privacy) {
  ExecutorOptions options;
  options.step = step_options(config, world, device.is_cuda());
  options.optimizer.kind = config.optimizer.kind;
  options.optimizer.momentum = config.optimizer.momentum;
  options.optimizer.weight_decay = config.optimizer.weight_decay;
  options.optimizer.beta1 = config.optimizer.beta1;
  options.optimizer.beta2 = config.optimizer.beta2;
  options.optimizer.epsilon = config.optimizer.epsilon;
  options.seed = static_cast<uint64_t>(config.seed);
  options.graph = config.step.graph;
  options.time_reports = config.measure.wants(ProfileKind::norms);
  options.time_rows = options.time_reports || config.measure.wants(ProfileKind::phases) ||
                      config.measure.wants(ProfileKind::layers);
  options.watch_memory = config.measure.wants(ProfileKind::memory);
  if (privacy) {
    options.step.clip = privacy->method;
    options.step.varying = privacy->varying;
    options.step.micro_batches = privacy->micro_batches.value_or(options.step.micro_batches);
    options.privacy = privacy->step;
  } else if (config.optimizer.max_grad_norm) {
    options.step.grad_norm = true;
    options.max_grad_norm = *config.optimizer.max_grad_norm;
  }
  return options;
}

int64_t layer_count(const RunConfig& config, int world) {
  return config.model.layers.value_or(world);
}

void settle_batch(RunConfig& config, int world) {
  StepConfig& step = config.step;
  if (step.batch_size > kMostBatch)
    field_error("batch_size", "{}: allowed is at most {}", step.batch_size, kMostBatch);
  if (!step.total_batch_size) return;
  if (*step.total_batch_size > kMostTotalBatch)
    field_error("total_batch_size", "{}: allowed is at most {}", *step.total_batch_size,
                kMostTotalBatch);
  const int64_t total = *step.total_batch_size, parts = int64_t{world} * step.accumulation;
  if (step.batch_size == 0) {
    if (total % parts != 0)
      field_error("total_batch_size",
                  "{}: {} with {} micro-batches each cannot share it evenly; allowed are "
                  "multiples of {}",
                  total, quantity(world, "rank"), step.accumulation, parts);
    step.batch_size = total / parts;
    return;
  }
  const int64_t round = world * step.batch_size;  // a micro-batch of every rank
  if (total % round != 0)
    field_error("total_batch_size",
                "{}: {} with micro-batches of `batch_size` {} cannot share it evenly; "
                "allowed are multiples of {}",
                total, quantity(world, "rank"), step.batch_size, round);
  const int64_t micro_batches = total / round;
  if (step.accumulation != 1 && step.accumulation != micro_batches)
    field_error("accumulation",
                "{}: `total_batch_size` {} in micro-batches of {} on {} makes {}; leave one of the "
                "three out",
                step.accumulation, total, step.batch_size, quantity(world, "rank"), micro_batches);
  if (micro_batches > kMostAccumulation)
    field_error("total_batch_size",
                "{}: in micro-batches of `batch_size` {} on {} it takes {} of them, and {} are "
                "allowed",
                total, step.batch_size, quantity(world, "rank"), micro_batches, kMostAccumulation);
  step.accumulation = static_cast<int>(micro_batches);
}

int64_t rank_batch(const RunConfig& config, int world) {
  RunConfig settled = config;
  settle_batch(settled, world);
  return settled.step.batch_size;
}

namespace {

void set_diffusion(const RunConfig& config, ModelSource& source) {
  const DiffusionChoice& choice = config.model.diffusion;
  DitConfig dit = source.diffusion.value_or(DitConfig{});
  const auto set = [&](const char* name, const std::optional<int64_t>& wish, int64_t& field) {
    if (!wish) return;
    if (!source.diffusion)
      field_error(name, "{}: it belongs to a diffusion transformer, and {} is none; presets are {}",
                  *wish, config.model.name, join(dit_preset_names(), ", "));
    if (source.has_weights() && *wish != field)
      field_error(name, "{}: the model's weights decide it, and they have {}", *wish, field);
    field = *wish;
  };
  set("image_size", choice.image_size, dit.image_size);
  set("patch_size", choice.patch, dit.patch);
  set("channels", choice.channels, dit.channels);
  set("classes", choice.classes, dit.classes);
  set("hidden_dim", choice.hidden, dit.hidden);
  set("heads", choice.heads, dit.heads);
  if (!source.diffusion) return;
  set("layers", config.model.layers, dit.layers);
  source.diffusion = dit;
  check_config(dit, "`model` " + config.model.name);
}

// The task: as requested, else as the adapter was made for, else as the model's config says.
void settle_task(const ModelConfig& wanted, ModelSource& source) {
  if (wanted.task) source.config->task = *wanted.task;
  if (!source.adapter) return;
  const std::optional<Task> made_for = adapter_task(source.adapter->config);
  if (!made_for) return;
  if (wanted.task && *wanted.task != *made_for)
    field_error("task",
                "{}: `adapter` {} is for {} (task_type {} in its {}); leave one of them out",
                name_of(*wanted.task), wanted.adapter, name_of(*made_for), peft_task(*made_for),
                kAdapterConfig);
  source.config->task = *made_for;
}

// How many labels the adapter's own head has; nothing if the head is the base's, or new.
std::optional<int64_t> adapter_labels(const ModelSource& source) {
  if (!source.adapter) return {};
  return stored_labels(
      join_path(source.adapter->folder, std::string(kAdapterWeights) + ".safetensors"),
      adapter_name(""), family_of(*source.config).classifier_head);
}

bool has_head(const ModelSource& source) {
  const LanguageFamily& family = family_of(*source.config);
  return source.has_weights() &&
         stored_labels(source.folder, family.weight_prefix, family.classifier_head);
}

// Earlier versions began runs with fewer names than labels, which can be resumed.
void check_label_names(const std::vector<std::string>& names, int64_t labels, bool resumes) {
  const std::set<std::string> different(names.begin(), names.end());
  if (different.size() < names.size())
    field_error("label_names", "{}: a name is there twice; each label has its own",
                join(names, ","));
  if (std::ssize(names) > labels || (std::ssize(names) < labels && !resumes))
    field_error("label_names",
                "{}: {}, and the model has {}; name each of them, in the order of their numbers",
                join(names, ","), quantity(std::ssize(names), "name"), quantity(labels, "label"));
}

std::vector<std::string> folded(std::vector<std::string> names) {
  for (std::string& name : names) name = canonical(name);
  return names;
}

// The number of labels: as requested, else as the adapter's head has; a head that starts at random
// has as many as names are given; else as the model's config says.
void settle_labels(const RunConfig& config, ModelSource& source) {
  const std::optional<int64_t>& wanted = config.model.labels;
  const std::vector<std::string>& names = config.data.corpus.label_names;
  int64_t& labels = source.config->labels;
  if (source.config->task != Task::sequence_classification) {
    if (wanted) field_error("labels", "{}: pass `task` sequence-classification too", *wanted);
    return;
  }
  const std::optional<int64_t> of_adapter = adapter_labels(source);
  labels = wanted.value_or(of_adapter.value_or(labels));
  if (names.empty()) return;
  if (!of_adapter && has_head(source)) {
    // Spelled otherwise they may be the same, and a head may be trained for other classes.
    const std::vector<std::string> own = folded(named_labels(source.config->source)),
                                   given = folded(names);
    if (own != given && std::is_permutation(own.begin(), own.end(), given.begin(), given.end()))
      field_error(
          "label_names",
          "{}: the head of {} was trained for another order (id2label has {}); leave it out",
          join(names, ","), source.name, printable(join(named_labels(source.config->source), ",")));
  } else if (!of_adapter && !wanted) {
    labels = std::ssize(names);
  }
  check_label_names(names, labels, !config.training.resume.empty());
}

}  // namespace

ModelSource model_source(const RunConfig& config) {
  std::string name = config.model.name;
  if (config.model.shapes_do && !is_fetched(name, config.model.hub_cache))
    name = preset_of_hub_id(name).value_or(name);
  ModelSource source = find_model(name, config.model.hub_cache);
  source.from_scratch = config.model.from_scratch;
  set_diffusion(config, source);
  if (!source.config) {
    if (config.model.has_adapters())
      field_error(
          config.model.lora_rank ? "lora" : "adapter",
          "{}: adapters belong to a language model, and {} is none",
          config.model.lora_rank ? std::to_string(*config.model.lora_rank) : config.model.adapter,
          config.model.name);
    if (config.model.task || config.model.labels)
      user_error("`task` and `labels`: {} has neither", config.model.name);
    return source;
  }
  if (!config.model.adapter.empty()) {
    source.adapter = read_adapter(config.model.adapter);
    const std::string line = other_base_notice(*source.adapter, config.model.name, source.folder);
    if (!line.empty()) source.adapter->notices.push_back(line);
  }
  settle_task(config.model, source);
  settle_labels(config, source);
  if (config.model.layers) {
    if (source.has_weights())
      field_error("layers", "{}: the model's weights decide it", *config.model.layers);
    source.config->layers = *config.model.layers;
  }
  return source;
}

namespace {

std::optional<LoraSettings> lora_settings(const ModelConfig& model, const ModelSource& source) {
  if (source.adapter) return source.adapter->lora;
  if (!model.lora_rank) return {};
  LoraSettings lora;
  lora.rank = *model.lora_rank;
  lora.alpha = model.lora_alpha.value_or(2 * static_cast<double>(lora.rank));
  lora.rslora = model.lora_rslora;
  if (!model.lora_targets.empty()) lora.targets = model.lora_targets;
  return lora;
}

// What is trained besides adapters: what was requested, what the adapter's folder has whole, and a
// classifier's head, as PEFT does it.
std::vector<std::string> trained_whole(const ModelConfig& config, const ModelSource& source) {
  std::vector<std::string> also = config.train_also;
  if (source.adapter)
    also.insert(also.end(), source.adapter->also.begin(), source.adapter->also.end());
  if (source.config->task != Task::sequence_classification) return also;
  const std::vector<std::string>& head = family_of(*source.config).classifier_head;
  also.insert(also.end(), head.begin(), head.end());
  return also;
}

// The model's config, for sequences of the length that is asked for. Learned positions end where
// their table ends.
LanguageConfig language_config(const ModelConfig& model, const ModelSource& source) {
  LanguageConfig config = *source.config;
  if (!model.beyond_positions || model.seq_length <= config.positions) return config;
  if (config.rope_theta == 0)
    field_error("beyond_positions", "this model learned its {} positions, and has no others",
                config.positions);
  config.positions = model.seq_length;
  return config;
}

}  // namespace

Model make_model(const RunConfig& config, const ModelSource& source, int world) {
  // Ranks need not share a private batch evenly: its size varies anyway.
  const StepConfig& step = config.step;
  const int64_t at_once = step.batch_size > 0 ? step.batch_size
                                              : step.total_batch_size.value_or(1) /
                                                    (int64_t{world} * step.accumulation);
  check_sizes(source, {.batch = std::max<int64_t>(1, at_once),
                       .seq_length = config.model.seq_length,
                       .stack_width = config.model.input_size,
                       .layers = layer_count(config, world)});
  Model model = source.diffusion ? dit_model(*source.diffusion, config.model.attention)
                : source.config  ? language_model(language_config(config.model, source),
                                                  {.tokens = config.model.seq_length,
                                                   .attention = config.model.attention,
                                                   .lora = lora_settings(config.model, source)})
                                : linear_stack(config.model.input_size, layer_count(config, world));
  if (source.diffusion || source.config) model.name = source.name;
  if (model.lora) train_adapters(model, trained_whole(config.model, source));
  if (!config.model.frozen.empty()) freeze(model, config.model.frozen, /*others=*/false);
  if (!config.model.train_only.empty()) freeze(model, config.model.train_only, /*others=*/true);
  return model;
}

bool runs_on_gpu(const PlacementConfig& placement) {
  return placement.device == DeviceKind::gpu ||
         (placement.device == DeviceKind::automatic && gpu_count() > 0);
}

namespace {

void check_optimizer(const OptimizerConfig& optimizer) {
  if (!(optimizer.learning_rate >= 0 && std::isfinite(optimizer.learning_rate)))
    field_error("learning_rate", "{}: allowed is 0 or more", optimizer.learning_rate);
  const std::pair<const char*, double> decays[] = {
      {"momentum", optimizer.momentum}, {"beta1", optimizer.beta1}, {"beta2", optimizer.beta2}};
  for (const auto& [field, decay] : decays) {
    if (!(decay >= 0 && decay < 1))
      field_error(field, "{}: allowed is from 0 to less than 1", decay);
  }
}

}  // namespace

namespace {

void check_adapters(const ModelConfig& model) {
  if (model.has_adapters() && (!model.frozen.empty() || !model.train_only.empty()))
    field_error(model.frozen.empty() ? "train_only" : "freeze",
                "{}: adapters freeze the rest of the model; name with `train_also` what else is "
                "trained",
                join(model.frozen.empty() ? model.train_only : model.frozen, ","));
  if (model.lora_rank && !model.adapter.empty())
    field_error("lora", "{}: `adapter` {} decides the rank; leave one of them out",
                *model.lora_rank, model.adapter);
  if (model.lora_rank) return;
  const char* const field = model.lora_alpha              ? "lora_alpha"
                            : !model.lora_targets.empty() ? "lora_targets"
                            : model.lora_rslora           ? "lora_rslora"
                                                          : nullptr;
  if (field)
    field_error(field, "belongs to new adapters: pass `lora` RANK too{}",
                model.adapter.empty() ? "" : ", or leave it to those of `adapter`");
  if (!model.train_also.empty() && model.adapter.empty())
    field_error("train_also", "{}: it goes with `lora` or `adapter`; without them use `train_only`",
                join(model.train_also, ","));
}

// A table's gradient is summed in the type that the step computes in, or in that of its sums
// (kernels/embedding_grad.h). A private step chooses its own types.
void check_gradient_types(const RunConfig& config) {
  const PrivacyConfig& p = config.privacy;
  const ModelConfig& m = config.model;
  const bool has_table = canonical(m.name).rfind("linear", 0) != 0;
  const bool trains_all = !m.has_adapters() && m.frozen.empty() && m.train_only.empty();
  if (!has_table || !trains_all || p.is_private() || p.epsilon || p.sigma) return;
  const StepConfig& s = config.step;
  const Precision sums = s.compute == Precision::fp64 ? Precision::fp64 : Precision::fp32;
  if (s.reduce != s.compute && s.reduce != sums)
    field_error("reduce", "{}: with `compute` {} allowed is {}", name_of(s.reduce),
                name_of(s.compute),
                s.compute == sums ? std::string(name_of(sums))
                                  : fmt::format("{} or {}", name_of(s.compute), name_of(sums)));
  if (s.accumulation > 1 && s.storage == Precision::fp64 && s.compute != Precision::fp64)
    field_error("storage", "fp64: micro-batches are then summed in fp64; pass `compute` fp64 too");
}

}  // namespace

void check_step(const RunConfig& config) {
  check_optimizer(config.optimizer);
  const PrivacyConfig& p = config.privacy;
  // Within what fp32 holds; so large that nothing is clipped is allowed.
  constexpr double kLeastClipNorm = 1e-12, kMostClipNorm = 1e30, kMostSigma = 1e12;
  const auto expect_clip_norm = [&](const char* field, double norm) {
    if (!(norm > 0)) field_error(field, "must be positive, got {}", norm);
    if (norm < kLeastClipNorm || norm > kMostClipNorm)
      field_error(field, "{}: allowed is from {} to {}", norm, kLeastClipNorm, kMostClipNorm);
  };
  if (p.clip_norm) expect_clip_norm("clip_norm", *p.clip_norm);
  for (const double norm : p.layer_norms) expect_clip_norm("layer_norms", norm);
  if (p.sigma && !(*p.sigma >= 0)) field_error("sigma", "{}: allowed is 0 or more", *p.sigma);
  if (p.sigma && *p.sigma > kMostSigma)
    field_error("sigma", "{}: allowed is at most {}", *p.sigma, kMostSigma);
  const StepConfig& s = config.step;
  if (s.batch_size < 0) field_error("batch_size", "must be positive, got {}", s.batch_size);
  if (s.accumulation < 1) field_error("accumulation", "must be positive, got {}", s.accumulation);
  if (s.total_batch_size && *s.total_batch_size < 1)
    field_error("total_batch_size", "must be positive, got {}", *s.total_batch_size);
  if (!config.model.frozen.empty() && !config.model.train_only.empty())
    user_error("`freeze` and `train_only`: each says all; allowed is one of them");
  check_adapters(config.model);
  check_gradient_types(config);
  if (config.step.storage == Precision::fp16)
    field_error("storage", "fp16: parameters are stored in fp32, bf16 or fp64");
  if (config.step.moments != Precision::fp32 && config.step.moments != Precision::bf16)
    field_error(
        "moments",
        "{}: an optimizer's moments are stored in fp32 or bf16 (in fp64 with `storage` fp64)",
        name_of(config.step.moments));
  if (!config.placement.simulate_world && config.placement.simulate_rank != 0) {
    field_error("simulate_rank",
                "{}: it is a rank of a simulated world; pass `simulate_world` W too",
                config.placement.simulate_rank);
  }
  if (config.placement.simulate_world) {
    if (config.placement.simulate_rank >= *config.placement.simulate_world) {
      field_error("simulate_rank", "{}: a world of {} has the ranks 0 to {}",
                  config.placement.simulate_rank, *config.placement.simulate_world,
                  *config.placement.simulate_world - 1);
    }
    if (config.placement.ranks.value_or(1) != 1)
      field_error("simulate_world",
                  "{} with `ranks` {}: a simulated world is measured in one process",
                  *config.placement.simulate_world, *config.placement.ranks);
  }
}

void check_config(const RunConfig& config) {
  check_step(config);
  if (!config.data.path.empty() && canonical(config.model.name).rfind("linear", 0) == 0)
    field_error("data", "{}: the linear stack reads no text; name a language model with `model`",
                config.data.path);
  if (config.data.path.empty() && !config.data.tokenizer.empty())
    field_error("tokenizer", "{}: it reads the text of `data`; pass `data` PATH too",
                config.data.tokenizer);
  if (config.data.path.empty() && !config.data.end_token.empty())
    field_error("end_token", "{}: it ends the texts of `data`; pass `data` PATH too",
                config.data.end_token);
  if (!config.data.path.empty() && !std::filesystem::exists(config.data.path))
    field_error("data", "{}: no such folder or token store", config.data.path);
  const ClipChoice& method = config.privacy.method;
  if (method.mode == Mode::no_dp && method.sets_a_part())
    field_error(method.rule            ? "rule"
                : method.pass          ? "pass_plan"
                : method.tile          ? "tile_size"
                : method.combine_every ? "combine_every"
                                       : "memory_budget",
                "belongs to a private step: pass `mode` too, as auto");
  if (config.measure.wants(ProfileKind::none) && config.measure.profile.size() > 1)
    field_error("profile", "none stands alone");
}

std::string configuration_name(const RunConfig& config, int world) {
  std::vector<std::pair<std::string, std::string>> parts;
  const bool linear = canonical(config.model.name).rfind("linear", 0) == 0,
             diffusion = dit_preset(config.model.name).has_value();
  std::string name = diffusion ? canonical(config.model.name)
                               : config.model.name.substr(config.model.name.find_last_of('/') + 1);
  std::replace(name.begin(), name.end(), '/', '-');  // dit-l/8
  if (!linear) parts.push_back({"", name});
  parts.push_back({"", name_of(config.step.strategy)});
  parts.push_back({"w", std::to_string(world)});
  parts.push_back({"bs", std::to_string(rank_batch(config, world))});
  if (linear) {
    parts.push_back({"in", std::to_string(config.model.input_size)});
    parts.push_back({"l", std::to_string(layer_count(config, world))});
  } else if (!diffusion) {
    parts.push_back({"seq", std::to_string(config.model.seq_length)});
  } else {
    if (config.model.diffusion.image_size)
      parts.push_back({"img", std::to_string(*config.model.diffusion.image_size)});
    if (config.model.diffusion.patch)
      parts.push_back({"p", std::to_string(*config.model.diffusion.patch)});
  }
  const ClipChoice& clip = config.privacy.method;
  if (clip.mode != Mode::no_dp) parts.push_back({"", name_of(clip.mode)});
  if (clip.rule) parts.push_back({"rule-", name_of(*clip.rule)});
  if (clip.pass) parts.push_back({"pass-", name_of(*clip.pass)});
  if (clip.tile) parts.push_back({"tile", std::to_string(*clip.tile)});
  if (clip.combine_every) parts.push_back({"every", std::to_string(*clip.combine_every)});
  if (clip.memory_budget_gib)
    parts.push_back({"budget", fmt::format("{}", *clip.memory_budget_gib)});
  if (config.model.attention != AttentionKind::automatic)
    parts.push_back({"attn-", name_of(config.model.attention)});
  parts.push_back({"bwd-", name_of(config.step.backward_prefetch)});
  parts.push_back({"wrap-", name_of(config.step.wrap)});
  if (config.step.forward_prefetch)
    parts.push_back({"fwd", std::to_string(config.step.forward_prefetch)});
  if (config.step.cpu_offload || config.step.offload_params || config.step.offload_optimizer)
    parts.push_back({"offload", ""});
  if (config.step.checkpointing != Checkpointing::none) parts.push_back({"ckpt", ""});
  if (config.step.accumulation > 1)
    parts.push_back({"acc", std::to_string(config.step.accumulation)});
  if (config.step.defer_update) parts.push_back({"deferred", ""});
  if (config.step.exchange != Exchange::automatic)
    parts.push_back({"exchange-", name_of(config.step.exchange)});
  if (config.step.compute != Precision::fp32) parts.push_back({"", name_of(config.step.compute)});
  return config_folder_name(parts);
}

}  // namespace veil
