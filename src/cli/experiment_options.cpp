#include "cli/experiment_options.h"

#include "base/files.h"
#include "cli/clip_options.h"
#include "cli/hub_environment.h"

namespace veil {

void add_step_options(Options& options, ExperimentOptions& e, bool searched) {
  e.hub_cache = hub_cache_root(hub_variables_from_environment());
  options.add(
      "model", e.model,
      {.aliases = {"model_name"},
       .help = "a preset (llama3.1-8b, qwen1.5-1.8b, gpt2, llama-tiny, ..., dit-l/8, ..., linear-stack), a folder with "
               "config.json, or a fetched hub id",
       .value = "NAME"});
  options.add("seq-length", e.seq_length,
              {.aliases = {"seq", "seq_len", "max_length", "sequence_length"},
               .help = "tokens in a sequence of a language model",
               .minimum = 1,
               .maximum = 1 << 24});
  options.add("task", e.task, {.help = "of a language model; as its config says if not given"});
  options.add(
      "labels", e.labels,
      {.aliases = {"num_labels"}, .help = "classes of sequence classification", .minimum = 1, .maximum = 1 << 20});
  options.add("freeze", e.frozen,
              {.help = "parameters that are not trained, by name (* stands for anything): neither clipped nor noised"});
  options.add("train-only", e.train_only,
              {.help = "the other way round: all parameters but these are frozen, as in --train-only 'score.*'"});
  options.add("attention", e.attention, {.help = "cuDNN or flash as the device has it, or plain products"});
  options.add(
      "input-size", e.input_size,
      {.aliases = {"hidden_size", "width"}, .help = "width of the linear stack", .minimum = 1, .maximum = 1 << 20});
  options.add(
      "layers", e.layers,
      {.aliases = {"num_layers"}, .help = "layers; as many as ranks if not given", .minimum = 1, .maximum = 100000});
  DiffusionChoice& d = e.diffusion;
  options.add("image-size", d.image_size, {.help = "of a diffusion transformer: pixels of a side", .minimum = 1});
  options.add("patch-size", d.patch, {.help = "of a diffusion transformer: pixels of a patch's side", .minimum = 1});
  options.add(
      "channels", d.channels,
      {.aliases = {"in_channels"}, .help = "of a diffusion transformer: 3, or 1 for grey in training", .minimum = 1});
  options.add("classes", d.classes,
              {.aliases = {"num_classes"},
               .help = "of a diffusion transformer; in training as many as the data has",
               .minimum = 1});
  options.add("hidden-dim", d.hidden, {.help = "of a diffusion transformer: width of its hidden states", .minimum = 1});
  options.add("heads", d.heads,
              {.aliases = {"num_heads"}, .help = "of a diffusion transformer's attention", .minimum = 1});
  if (!searched) {
    options.add("batch-size", e.batch_size, {.help = "samples a rank and micro-batch", .minimum = 1});
    options.add("total-batch-size", e.total_batch_size,
                {.aliases = {"global_batch_size"},
                 .help = "samples of a logical batch over all ranks, instead of --batch-size",
                 .minimum = 1});
    options.add("strategy", e.strategy,
                {.aliases = {"data_parallel"}, .help = "how parameters, gradients and optimizer state are spread"});
  }
  options.add("cpu-offload", e.cpu_offload, {.help = "keep parameters and optimizer state in host memory"});
  options.add("offload-params", e.offload_params, {.help = "keep parameters in host memory"});
  options.add("offload-optimizer", e.offload_optimizer, {.help = "keep optimizer state in host memory"});
  options.add(
      "forward-prefetch", e.forward_prefetch,
      {.help = "units gathered ahead in forward; the bare flag is 1", .minimum = 0, .maximum = 1000, .bare = "1"});
  options.add(
      "backward-prefetch", e.backward_prefetch,
      {.help = "when backward gathers the next unit: before the current one runs, after it, or without overlap"});
  options.add("wrap", e.wrap,
              {.aliases = {"auto_wrap_policy", "wrap_policy"},
               .help = "what is gathered together: each module, modules up to --min-num-params, or all"});
  options.add("min-num-params", e.min_num_params,
              {.help = "parameters at which size-based wrapping closes a unit", .minimum = 0});
  options.add("checkpointing", e.checkpointing,
              {.aliases = {"activation_checkpointing"}, .help = "recompute activations in backward", .bare = "full"});
  options.add("accumulation", e.accumulation,
              {.aliases = {"gradient_accumulation_steps", "accumulate_steps"},
               .help = "micro-batches in a logical batch",
               .minimum = 1,
               .maximum = 1000000});
  options.add("accumulate", e.accumulate_in, {.help = "sum micro-batches in reduced shards, or whole and reduce once"});
  options.add("storage", e.storage, {.help = "type of parameters between steps"});
  options.add("compute", e.compute, {.aliases = {"dtype", "precision"}, .help = "type inside a step"});
  options.add("reduce", e.reduce, {.help = "type of gradients between ranks"});
  options.add("moments", e.moments, {.help = "type of the optimizer's moments: fp32, or bf16 in half the memory"});
  options.add("optimizer", e.optimizer, {.help = "update rule"});
  options.add("simulate-world", e.simulate_world,
              {.help = "measure one rank of a world of W in one process, without peers",
               .minimum = 1,
               .maximum = 65536,
               .value = "W"});
  options.add("simulate-rank", e.simulate_rank, {.help = "which rank of it", .minimum = 0});
  options.add("link", e.link_gb_per_s, {.help = "GB/s of a simulated world's links", .minimum = 1e-3, .value = "GB/S"});
}

void use_language_defaults(const Options& options, ExperimentOptions& e) {
  const ModelSource source = model_source(e);
  const bool diffusion = source.diffusion.has_value();
  if (!diffusion && !source.config) return;
  const bool gpu = e.device == DeviceKind::gpu || (e.device == DeviceKind::automatic && gpu_count() > 0);
  auto open = [&](const char* name) { return !options.has(name) || !options.given(name); };
  if (diffusion) {  // shown resolved
    const DitConfig& c = *source.diffusion;
    e.diffusion = {c.image_size, c.patch, c.channels, c.classes, c.hidden, c.heads};
    e.layers = c.layers;
  }
  if (open("batch-size")) e.batch_size = 2;
  if (open("optimizer")) e.optimizer = OptimizerKind::adamw;
  if (open("learning-rate")) e.learning_rate = 1e-5;
  if (open("weight-decay") && e.optimizer == OptimizerKind::adamw && !diffusion) e.weight_decay = 0.1;
  if (open("compute") && gpu) e.compute = Precision::bf16;
}

void add_private_step_options(Options& options, ExperimentOptions& e, const char* function) {
  e.roofline_cache = join_path(cache_root_from_environment(), "roofline.json");
  add_clip_options(options, e.clip_choice);
  options.add(function, e.clip, {.help = "of a private step: what turns a norm into a coefficient"});
  options.add("clip-norm", e.clip_norm,
              {.aliases = {"max_grad_norm"}, .help = "of a private step: C", .minimum = 1e-30});
  options.add("sigma", e.sigma,
              {.aliases = {"noise_multiplier"}, .help = "of a private step: noise multiplier", .minimum = 0});
  options.add("rng", e.rng,
              {.help = "of a private step's noise: secure for training, philox for comparisons of speed"});
}

void add_running_options(Options& options, ExperimentOptions& e, bool several_worlds) {
  options.add("learning-rate", e.learning_rate, {.aliases = {"lr"}, .help = "step size"});
  options.add("momentum", e.momentum, {.help = "of sgd-momentum", .minimum = 0, .maximum = 1});
  options.add("weight-decay", e.weight_decay,
              {.help = "decoupled for adamw, added to the gradient for sgd", .minimum = 0});
  options.add("seed", e.seed, {.help = "of parameters and synthetic data", .minimum = 0});
  options.add("tf32", e.tf32, {.help = "let fp32 products round to TF32 on the GPU"});
  options.add(
      "deterministic", e.deterministic,
      {.help = "the same bits each time on the same GPUs: flash attention instead of cuDNN's, fixed workspaces"});
  options.add("graph", e.graph, {.help = "capture the step in CUDA graphs"});
  options.add("device", e.device, {.help = "where it runs; auto takes a GPU if one answers"});
  if (!several_worlds) {
    options.add("ranks", e.ranks,
                {.aliases = {"nproc_per_node", "num_gpus"},
                 .help = "local ranks to start; those of mpirun, srun or torchrun otherwise",
                 .minimum = 1,
                 .maximum = 4096});
  }
  options.add("share-gpu", e.share_gpu, {.help = "let several ranks share a GPU, talking through host memory"});
}

void add_measuring_options(Options& options, ExperimentOptions& e) {
  add_running_options(options, e);
  options.add("data", e.data,
              {.aliases = {"data_folder"},
               .help = "folder of .txt, .json and .jsonl files, or a token store: text for a language model's steps; "
                       "synthetic tokens if not given",
               .value = "PATH"});
  options.add("tokenizer", e.tokenizer,
              {.help = "tokenizer.json, a folder that holds one, or byte; by default the model's own, else byte",
               .value = "PATH"});
  options.add("warmup", e.warmup,
              {.aliases = {"warmup_steps", "num_warmup", "warmup_iterations", "warmup_iter"},
               .help = "steps before measuring",
               .minimum = 0});
  options.add("iterations", e.iterations,
              {.aliases = {"steps", "num_steps", "num_iterations", "iters", "num_iter"},
               .help = "steps that are measured",
               .minimum = 1});
  options.add(
      "profile", e.profile,
      {.help = "what is watched: phases, layers, norms (apart from backward), kernels (Kineto), memory, or none"});
}

void add_experiment_presets(Options& options, bool measuring) {
  std::vector<std::pair<std::string, std::string>> tiny = {
      {"input-size", "256"}, {"batch-size", "128"}, {"layers", "4"}, {"min-num-params", "100000"}};
  if (measuring) tiny.insert(tiny.end(), {{"warmup", "2"}, {"iterations", "5"}});
  options.preset("tiny", tiny);
}

}  // namespace veil
