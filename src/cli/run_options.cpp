#include "cli/run_options.h"

#include <algorithm>
#include <map>

#include "base/files.h"
#include "cli/hub_environment.h"
#include "models/classifier_labels.h"
#include "models/config_fields.h"
#include "run/size_check.h"

namespace veil {

namespace {

// Titles of the help, under which several functions here list their options.
constexpr const char* kModelSection = "model";
constexpr const char* kDataSection = "data";
constexpr const char* kDiffusionSection = "diffusion transformers";
constexpr const char* kBatchSection = "batch";
constexpr const char* kOptimizerSection = "optimizer";
constexpr const char* kShardingSection = "ranks, memory and number types";
constexpr const char* kPrivateSection = "privacy";
constexpr const char* kRunSection = "run";

}  // namespace

void add_step_options(Options& options, RunConfig& c, bool searched) {
  c.model.hub_cache = hub_cache_root(hub_variables_from_environment());
  options.section(kModelSection);
  options.add("model", c.model.name,
              {.aliases = {"model_name", "model_name_or_path"},
               .help = "a preset (llama3.1-8b, qwen1.5-1.8b, gpt2, llama-tiny, ..., dit-l/8, ..., "
                       "linear-stack), a folder with "
                       "config.json, or a fetched hub id",
               .value = "NAME"});
  options.add("from-scratch", c.model.from_scratch,
              {.help = "start with random weights, also if the model has weights"});
  options.add("seq-length", c.model.seq_length,
              {.aliases = {"seq", "seq_len", "max_length", "sequence_length", "max_seq_length"},
               .help = "tokens in a sequence of a language model",
               .minimum = 1,
               .maximum = 1 << 24});
  options.add(
      "beyond-positions", c.model.beyond_positions,
      {.help = "let --seq-length exceed the positions that the model was trained for, if it "
               "computes them (rotary); what it makes of them is not known"});
  options.add("task", c.model.task,
              {.help = "task of a language model; by default as its config says"});
  options.add(
      "labels", c.model.labels,
      {.aliases = {"num_labels"},
       .help = "classes of sequence classification; by default those of --adapter, as many as "
               "--label-names has, or as the model's config says (3 if it does not)",
       .minimum = 1,
       .maximum = kMostLabels});
  options.add("freeze", c.model.frozen,
              {.help = "parameters that are not trained, by name (* stands for anything): neither "
                       "clipped nor noised"});
  options.add(
      "train-only", c.model.train_only,
      {.help = "the opposite: freeze all parameters except these, as in --train-only 'score.*'"});
  options.add("lora", c.model.lora_rank,
              {.aliases = {"lora_r", "lora_rank"},
               .help = "train low-rank adapters (LoRA) of this rank instead of the model, and a "
                       "classifier's head",
               .minimum = 1,
               .maximum = 1 << 16,
               .value = "RANK"});
  options.add(
      "lora-alpha", c.model.lora_alpha,
      {.help = "adapters are scaled by this over the rank; by default twice the rank (PEFT: "
               "8)",
       .minimum = 0,
       .maximum = 1e9});
  options.add("lora-targets", c.model.lora_targets,
              {.aliases = {"lora_target_modules", "target_modules"},
               .help = "projections that have adapters: all, attention, or names and patterns, as "
                       "in q_proj,v_proj; by default all"});
  options.add("lora-rslora", c.model.lora_rslora,
              {.aliases = {"use_rslora"},
               .help = "scale adapters by alpha over the square root of the rank"});
  options.add("train-also", c.model.train_also,
              {.aliases = {"modules_to_save"},
               .help = "parameters that are trained besides the adapters, by name, as in "
                       "--train-also 'lm_head.*'"});
  options.add("adapter", c.model.adapter,
              {.help = "a folder with adapters of the model as PEFT writes them "
                       "(adapter_config.json): they are loaded and trained on",
               .value = "DIR"});
  add_attention_option(options, c);
  options.add("input-size", c.model.input_size,
              {.aliases = {"hidden_size", "width"},
               .help = "width of the linear stack",
               .minimum = 1,
               .maximum = 1 << 20});
  options.add("layers", c.model.layers,
              {.aliases = {"num_layers"},
               .help = "number of layers; by default as many as ranks",
               .minimum = 1,
               .maximum = kMostLayers});
  DiffusionChoice& d = c.model.diffusion;
  options.section(kDiffusionSection, "diffusion");
  options.add("image-size", d.image_size, {.help = "pixels per side of an image", .minimum = 1});
  options.add("patch-size", d.patch, {.help = "pixels per side of a patch", .minimum = 1});
  options.add("channels", d.channels,
              {.aliases = {"in_channels"},
               .help = "color channels; training takes 3, or 1 for gray",
               .minimum = 1});
  options.add("classes", d.classes,
              {.aliases = {"num_classes"},
               .help = "classes; training takes as many as the data has",
               .minimum = 1});
  options.add("hidden-dim", d.hidden, {.help = "width of the hidden states", .minimum = 1});
  options.add("heads", d.heads,
              {.aliases = {"num_heads"}, .help = "attention heads", .minimum = 1});
  options.section(kBatchSection);
  if (!searched) {
    add_batch_option(options, c);
    options.add("total-batch-size", c.step.total_batch_size,
                {.aliases = {"global_batch_size"},
                 .help = "samples in a logical batch over all ranks; with --batch-size it "
                         "determines --accumulation",
                 .minimum = 1,
                 .maximum = kMostTotalBatch});
  }
  options.add("accumulation", c.step.accumulation,
              {.aliases = {"gradient_accumulation_steps", "accumulate_steps"},
               .help = "micro-batches in a logical batch",
               .minimum = 1,
               .maximum = kMostAccumulation});
  options.section(kShardingSection, "sharding");
  if (!searched) {
    options.add(
        "strategy", c.step.strategy,
        {.aliases = {"data_parallel"},
         .help = "how parameters, gradients and optimizer state are sharded over the ranks"});
  }
  options.add("cpu-offload", c.step.cpu_offload,
              {.help = "keep parameters and optimizer state in host memory"});
  options.add("offload-params", c.step.offload_params, {.help = "keep parameters in host memory"});
  options.add("offload-optimizer", c.step.offload_optimizer,
              {.help = "keep optimizer state in host memory"});
  options.add("forward-prefetch", c.step.forward_prefetch,
              {.help = "units gathered ahead in forward; the bare flag is 1",
               .minimum = 0,
               .maximum = 1000,
               .bare = "1"});
  options.add("backward-prefetch", c.step.backward_prefetch,
              {.help = "when backward gathers the next unit: before the current one runs, after "
                       "it, or without overlap"});
  options.add(
      "wrap", c.step.wrap,
      {.aliases = {"auto_wrap_policy", "wrap_policy"},
       .help = "what is gathered together: each module, modules up to --min-num-params, or all"});
  options.add("min-num-params", c.step.min_num_params,
              {.help = "parameters at which size-based wrapping closes a unit", .minimum = 0});
  options.add("checkpointing", c.step.checkpointing,
              {.aliases = {"activation_checkpointing"},
               .help = "recompute activations in backward",
               .bare = "full"});
  options.add("accumulate", c.step.accumulate_in,
              {.help = "sum micro-batches in reduced shards, or whole and reduce once"});
  options.add("defer-update", c.step.defer_update,
              {.help = "reduce and update under the next step's forward: the same sums, less "
                       "waiting for the network, and no graphs"});
  options.add(
      "exchange", c.step.exchange,
      {.help = "what ranks send of gradients kept per sample: kept sends those during backward, "
               "sums sends clipped sums after it; auto takes kept if it sends no more bytes and no "
               "update is deferred"});
  options.add("storage", c.step.storage, {.help = "type of parameters between steps"});
  add_compute_option(options, c);
  options.add("reduce", c.step.reduce,
              {.help = "type of summed gradients between ranks; in private steps fp32, or fp64"});
  options.add("moments", c.step.moments,
              {.help = "type of the optimizer's moments: fp32, or bf16 in half the memory"});
  options.section(kOptimizerSection);
  options.add("optimizer", c.optimizer.kind, {.aliases = {"optim"}, .help = "update rule"});
  options.section(kShardingSection, "sharding");
  options.add("simulate-world", c.placement.simulate_world,
              {.help = "measure one rank of a world of W in one process, without peers",
               .minimum = 1,
               .maximum = 65536,
               .value = "W"});
  options.add("simulate-rank", c.placement.simulate_rank,
              {.help = "rank to simulate", .minimum = 0});
  options.add("link", c.placement.link_gb_per_s,
              {.help = "GB/s of a simulated world's links", .minimum = 1e-3, .value = "GB/S"});
}

void add_batch_option(Options& options, RunConfig& c) {
  options.add("batch-size", c.step.batch_size,
              {.aliases = {"per_device_train_batch_size"},
               .help = "samples per rank and micro-batch",
               .minimum = 1,
               .maximum = kMostBatch});
}

void add_overwrite_option(Options& options, bool& overwrite, const char* help) {
  options.add("overwrite", overwrite, {.help = help});
}

void add_attention_option(Options& options, RunConfig& c) {
  options.add("attention", c.model.attention,
              {.help = "attention kernel: the fastest that the device has (cuDNN or flash), or "
                       "plain matrix products"});
}

void add_compute_option(Options& options, RunConfig& c) {
  options.add("compute", c.step.compute,
              {.aliases = {"dtype", "precision"}, .help = "type of the numbers inside a step"});
}

void add_device_option(Options& options, RunConfig& c, const char* device_help) {
  options.add("device", c.placement.device, {.help = device_help});
}

void show_defaults(Options& options, RunConfig& config, const std::vector<UsualValue>& table,
                   const std::vector<std::string>& except) {
  const RunConfig before = config;
  std::map<std::string, std::vector<DefaultCase>> cases;
  for (const UsualValue& usual : table) {
    const std::string name = usual.option;
    if (!options.has(name) || std::find(except.begin(), except.end(), name) != except.end())
      continue;
    config = before;
    usual.set(config);
    const std::string unless =
        usual.unless.empty()
            ? ""
            : fmt::format("--{} is given",
                          join({usual.unless.begin(), usual.unless.end()}, " or --"));
    cases[name].push_back({options.shown(name), usual.when.words(), unless});
  }
  config = before;
  for (const auto& [name, list] : cases) options.defaults(name, list);
}

void show_model_resolved(RunConfig& c, const ModelSource& source) {
  if (!source.diffusion) return;
  const DitConfig& d = *source.diffusion;
  c.model.diffusion = {d.image_size, d.patch, d.channels, d.classes, d.hidden, d.heads};
  c.model.layers = d.layers;
}

void use_defaults(const Options& options, RunConfig& c, const ModelSource& source,
                  const std::vector<UsualValue>& table) {
  use_defaults(c, source, table,
               [&](const char* name) { return options.has(name) && options.is_set(name); });
}

void use_model_defaults(const Options& options, RunConfig& c) {
  // A logical batch that is given alone is cut into `accumulation` micro-batches.
  const bool batch_follows =
      c.step.total_batch_size && !(options.has("batch-size") && options.given("batch-size"));
  const ModelSource source = model_source(c);
  show_model_resolved(c, source);
  use_defaults(options, c, source, measuring_defaults());
  if (batch_follows) c.step.batch_size = 0;
}

void add_clip_part_options(Options& options, ClipChoice& choice) {
  options.add(
      "rule", choice.rule,
      {.help =
           "how the per-sample norms of a parameter are computed; by default as the mode says"});
  options.add(
      "pass-plan", choice.pass,
      {.aliases = {"pass"},
       .help = "what is kept until the clip coefficients are known; by default as the mode says"});
  options.add("tile-size", choice.tile,
              {.help = "side of the tiles in which norms are computed; 1024 on a GPU, 256 on a CPU "
                       "unless given",
               .minimum = 1,
               .maximum = 1 << 20});
  options.add(
      "combine-every", choice.combine_every,
      {.help = "with kept gradients and several micro-batches: add those of N micro-batches "
               "to the sum at once, which is faster and keeps N times as many; ranks then "
               "accumulate whole gradients; 1 unless given or chosen by --memory-budget",
       .minimum = 1,
       .maximum = 4096});
  options.add("memory-budget", choice.memory_budget_gib,
              {.help = "memory that a private step may use, where its clip plan is chosen",
               .minimum = 0,
               .value = "GIB"});
}

namespace {

void add_clip_options(Options& options, ClipChoice& choice) {
  options.add("mode", choice.mode,
              {.aliases = {"experiment"},
               .help = fmt::format("how per-sample norms are computed and what is kept: {}; modes "
                                   "that end in _fsdp also set zero3",
                                   join(all_names<Mode>(), ", ")),
               .value = "MODE"});
  add_clip_part_options(options, choice);
}

void add_noise_options(Options& options, PrivacyConfig& p) {
  options.add("sigma", p.sigma,
              {.aliases = {"noise_multiplier"},
               .help = "noise multiplier; 0 clips without noise, which is not private"});
  options.add("rng", p.rng,
              {.help = "generator of the noise. hardened: ChaCha20, with defences against "
                       "floating-point attacks; secure: ChaCha20, a single draw; philox: not "
                       "cryptographic, for speed comparisons"});
}

}  // namespace

void add_clip_function_options(Options& options, PrivacyConfig& p, const char* function,
                               bool or_max_grad_norm) {
  std::vector<std::string> aliases = {"clipping"}, c_aliases;
  if (function == std::string("clip")) aliases.push_back("clip_function");
  if (or_max_grad_norm) c_aliases.push_back("max_grad_norm");
  options.add(function, p.clip,
              {.aliases = aliases,
               .help = "abadi: min(1, C / norm); automatic: C / norm; psac: C / norm, less for the "
                       "smallest; per-layer: a C for each layer; adaptive: a C that follows a "
                       "quantile of the norms"});
  options.add("clip-norm", p.clip_norm,
              {.aliases = c_aliases,
               .help = "C, the norm to which each sample's gradient is clipped",
               .fallback = "1"});
}

void add_private_step_options(Options& options, RunConfig& c, const char* function) {
  c.placement.prices_file = prices_file_from_environment();
  c.privacy.sigma = c.privacy.sigma.value_or(1);
  c.privacy.clip_norm = c.privacy.clip_norm.value_or(1);
  c.privacy.rng = NoiseGenerator::philox;
  options.section(kPrivateSection, "privacy");
  add_clip_options(options, c.privacy.method);
  add_clip_function_options(options, c.privacy, function, /*or_max_grad_norm=*/true);
  add_noise_options(options, c.privacy);
}

void add_privacy_options(Options& options, PrivacyConfig& p) {
  options.section("privacy (--epsilon or --sigma makes the run private)", "privacy");
  options.add(
      "epsilon", p.epsilon,
      {.aliases = {"target_epsilon"},
       .help = "privacy budget; without --sigma, Veil computes the noise that it requires"});
  options.add("delta", p.delta,
              {.aliases = {"target_delta"},
               .help = "delta of the guarantee; must be far below 1 / number of samples"});
  add_noise_options(options, p);
  add_clip_function_options(options, p, "clip", /*or_max_grad_norm=*/false);
  options.add("layer-norms", p.layer_norms,
              {.help = "with --clip per-layer: C of each layer, in order; by default equal ones "
                       "whose squares add up to that of --clip-norm"});
  options.add("clip-quantile", p.quantile,
              {.help = "with --clip adaptive: fraction of samples whose norm should be below C"});
  options.add("clip-rate", p.clip_rate, {.help = "with --clip adaptive: how fast C changes"});
  options.add("count-noise", p.count_noise,
              {.help = "of adaptive: deviation of the noise on the count that moves C; if not "
                       "given a twentieth of the batch, and no less than sigma"});
  options.add("sampler", p.sampler,
              {.help = "each sample by a secret draw of its own, or shuffled batches of one size, "
                       "which cost more"});
  options.add("privacy-unit", p.unit,
              {.help = "what is protected: each sequence (sample), each document, or each user "
                       "with all their documents or images (--unit-key)"});
  options.add("accountant", p.accountant,
              {.help = "accountant that computes epsilon; gdp is an approximation and cannot "
                       "enforce a budget"});
  options.add(
      "data-size", p.data_size,
      {.aliases = {"dataset_size"},
       .help = "samples (with --privacy-unit user: users) as the public knows them; counted, and "
               "so declared public, if not given",
       .minimum = 1});
  options.add("max-batch", p.max_batch,
              {.help = "cut Poisson draws to this maximum, so that every step has the same shapes; "
                       "part of delta pays for it. auto: the smallest that costs at most a "
                       "thousandth of delta",
               .bare = "auto",
               .value = "N|auto"});
  options.add("secret-file", p.secret_file,
              {.help = "32 random bytes or 64 hexadecimal digits that only you can read: a run "
                       "that can be repeated; drawn and kept with the run if not given. If every "
                       "rank can read it, no key is sent between ranks",
               .value = "FILE"});
  options.add("allow-insecure-noise", p.allow_insecure_noise,
              {.help = "let --export write a model that was trained with --rng philox, whose noise "
                       "is not cryptographic"});
  options.add("audit-canaries", p.audit_canaries,
              {.help = "add so many samples of random content, each put in or left out by a secret "
                       "coin, and bound epsilon from below at the end; 0: none",
               .minimum = 0,
               .maximum = 10000000});
  add_clip_options(options, p.method);
}

void add_running_options(Options& options, RunConfig& c, bool several_worlds) {
  options.section(kOptimizerSection);
  options.add("learning-rate", c.optimizer.learning_rate, {.aliases = {"lr"}, .help = "step size"});
  options.add("momentum", c.optimizer.momentum,
              {.help = "momentum of --optimizer sgd-momentum", .minimum = 0, .maximum = 1});
  options.add("weight-decay", c.optimizer.weight_decay,
              {.help = "decoupled for adamw, added to the gradient for sgd", .minimum = 0});
  options.section(kRunSection);
  options.add("seed", c.seed,
              {.help = "random seed of initial parameters and synthetic data", .minimum = 0});
  options.section(kShardingSection, "sharding");
  options.add("tf32", c.step.tf32, {.help = "let fp32 products round to TF32 on the GPU"});
  options.add("deterministic", c.step.deterministic,
              {.help = "give the same bits each time on the same GPUs; uses flash attention "
                       "instead of cuDNN's, and fixed workspaces"});
  options.add("graph", c.step.graph, {.help = "capture the step in CUDA graphs"});
  options.section(kRunSection);
  add_device_option(options, c);
  options.section(kShardingSection, "sharding");
  if (!several_worlds) {
    options.add("ranks", c.placement.ranks,
                {.aliases = {"nproc_per_node", "num_gpus"},
                 .help = "local ranks to start; by default those of mpirun, srun or torchrun, or 1",
                 .minimum = 1,
                 .maximum = 4096});
  }
  options.add("ignore-memory", c.placement.ignore_memory,
              {.help = "start on a CPU although the estimated memory is more than is available"});
  options.add("share-gpu", c.placement.share_gpu,
              {.help = "let several ranks share a GPU and communicate through host memory"});
}

void add_timeout_option(Options& options, double& seconds) {
  options.section(kShardingSection, "sharding");
  options.add("collective-timeout", seconds,
              {.help = "end the run, naming the rank, if the others have waited so long for it; a "
                       "line says after 30 s who is waited for. 0: wait for ever",
               .minimum = 0,
               .maximum = 1e6,
               .value = "SECONDS"});
}

void add_data_options(Options& options, RunConfig& c) {
  options.section(kDataSection, "data");
  options.add("data", c.data.path,
              {.aliases = {"data_folder", "train_file"},
               .help = "text: folder of .txt, .json, .jsonl, .csv and .tsv files, plain or packed "
                       "(.gz, .zst), or a token store of `veil tokenize`; in training also images: "
                       "folder of PNG and JPEG files, one "
                       "sub-folder per class, or shapes, drawn by rule",
               .value = "PATH"});
  options.add("tokenizer", c.data.tokenizer,
              {.help = "tokenizer.json, a folder that holds one, or bytes; by default the model's "
                       "own. A model with a vocabulary of at most 512 reads bytes",
               .value = "PATH"});
  options.add(
      "end-token", c.data.end_token,
      {.help = "token that ends each text, by number or as text; by default what the model's "
               "generation_config.json, config.json or tokenizer says, in this order",
       .value = "TOKEN"});
}

void add_chat_template_option(Options& options, data::CorpusOptions& corpus) {
  options.add(
      "chat-template", corpus.chat_template,
      {.help = "chat format of conversations: chatml, llama3, mistral, gemma, phi3, or none; "
               "by default the tokenizer's own template",
       .value = "NAME"});
}

void add_corpus_options(Options& options, data::CorpusOptions& corpus, const char* label_names) {
  options.add("format", corpus.format,
              {.help = "what a record holds: messages (chat), prompt and completion, instruction "
                       "and output, or text; auto: as the first record's keys say"});
  options.add("loss-on", corpus.loss_on,
              {.help = "tokens that are trained on; by default replies, and all of plain text"});
  add_chat_template_option(options, corpus);
  options.add("text-key", corpus.text_key,
              {.help = "key of the text in a JSON object", .value = "KEY"});
  options.add("label-key", corpus.label_key,
              {.help = "key of the label in a JSON object; by default `label` when a classifier is "
                       "trained, otherwise labels are not read",
               .value = "KEY"});
  options.add(
      label_names, corpus.label_names,
      {.aliases = label_names == std::string("labels") ? std::vector<std::string>{"label_names"}
                                                       : std::vector<std::string>{},
       .help =
           "names of the labels as the data spells them, words or numbers, in the order of their "
           "numbers from 0; by default the model's own, if it has some"});
  options.add("skip-bad", corpus.skip_bad,
              {.help = "skip bad lines or images and count them, instead of stopping"});
}

void add_measuring_options(Options& options, RunConfig& c) {
  c.data.held_out = 0;  // a measured step reads all
  add_running_options(options, c);
  add_data_options(options, c);
  options.section("measurement");
  options.add("warmup", c.measure.warmup,
              {.aliases = {"warmup_steps", "num_warmup", "warmup_iterations", "warmup_iter"},
               .help = "steps before measuring",
               .minimum = 0});
  options.add("iterations", c.measure.iterations,
              {.aliases = {"steps", "num_steps", "num_iterations", "iters", "num_iter"},
               .help = "steps that are measured",
               .minimum = 1});
  options.add("profile", c.measure.profile,
              {.help = "what is watched: phases, layers, norms (apart from backward), kernels "
                       "(Kineto), memory, or none"});
}

void print_settings(const Options& options, bool json) {
  fmt::print("{}", json ? options.json().dump(1) + "\n" : options.table());
}

void add_experiment_presets(Options& options, bool measuring) {
  std::vector<std::pair<std::string, std::string>> tiny = {
      {"input-size", "256"}, {"batch-size", "128"}, {"layers", "4"}, {"min-num-params", "100000"}};
  if (measuring) tiny.insert(tiny.end(), {{"warmup", "2"}, {"iterations", "5"}});
  options.preset("tiny", tiny);
}

}  // namespace veil
