// The fields of a RunConfig by name, in one list: what errors, stored settings and the command line
// call them. `--clip-norm` is the field clip_norm and the stored key "clip-norm".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "run/config.h"

namespace veil {

// Calls visit("clip_norm", config.privacy.clip_norm) and so on, for every field. Each group is
// taken apart as a whole, so a field that is added to one does not compile until it is listed here.
template <typename Config, typename Visit>
void visit_fields(Config& config, Visit&& visit) {
  auto& [model, step, optimizer, data, privacy, placement, measure, training, seed] = config;
  {
    auto& [name, hub_cache, shapes_do, from_scratch, seq_length, beyond_positions, task, labels,
           attention, diffusion, input_size, layers, frozen, train_only, lora_rank, lora_alpha,
           lora_targets, lora_rslora, train_also, adapter] = model;
    auto& [image_size, patch, channels, classes, hidden, heads] = diffusion;
    visit("model", name);
    visit("hub_cache", hub_cache);
    visit("shapes_do", shapes_do);
    visit("from_scratch", from_scratch);
    visit("seq_length", seq_length);
    visit("beyond_positions", beyond_positions);
    visit("task", task);
    visit("labels", labels);
    visit("attention", attention);
    visit("image_size", image_size);
    visit("patch_size", patch);
    visit("channels", channels);
    visit("classes", classes);
    visit("hidden_dim", hidden);
    visit("heads", heads);
    visit("input_size", input_size);
    visit("layers", layers);
    visit("freeze", frozen);
    visit("train_only", train_only);
    visit("lora", lora_rank);
    visit("lora_alpha", lora_alpha);
    visit("lora_targets", lora_targets);
    visit("lora_rslora", lora_rslora);
    visit("train_also", train_also);
    visit("adapter", adapter);
  }
  {
    auto& [batch_size, total_batch_size, accumulation, accumulate_in, defer_update, exchange,
           strategy, cpu_offload, offload_params, offload_optimizer, forward_prefetch,
           backward_prefetch, wrap, min_num_params, checkpointing, storage, compute, reduce,
           moments, tf32, deterministic, graph] = step;
    visit("batch_size", batch_size);
    visit("total_batch_size", total_batch_size);
    visit("accumulation", accumulation);
    visit("accumulate", accumulate_in);
    visit("defer_update", defer_update);
    visit("exchange", exchange);
    visit("strategy", strategy);
    visit("cpu_offload", cpu_offload);
    visit("offload_params", offload_params);
    visit("offload_optimizer", offload_optimizer);
    visit("forward_prefetch", forward_prefetch);
    visit("backward_prefetch", backward_prefetch);
    visit("wrap", wrap);
    visit("min_num_params", min_num_params);
    visit("checkpointing", checkpointing);
    visit("storage", storage);
    visit("compute", compute);
    visit("reduce", reduce);
    visit("moments", moments);
    visit("tf32", tf32);
    visit("deterministic", deterministic);
    visit("graph", graph);
  }
  {
    auto& [kind, learning_rate, momentum, weight_decay, beta1, beta2, epsilon, schedule,
           warmup_steps, minimum_ratio, max_grad_norm, average] = optimizer;
    visit("optimizer", kind);
    visit("learning_rate", learning_rate);
    visit("momentum", momentum);
    visit("weight_decay", weight_decay);
    visit("beta1", beta1);
    visit("beta2", beta2);
    visit("epsilon_adam", epsilon);
    visit("schedule", schedule);
    visit("warmup_steps", warmup_steps);
    visit("minimum_lr", minimum_ratio);
    visit("max_grad_norm", max_grad_norm);
    visit("ema", average);
  }
  {
    auto& [path, tokenizer, end_token, corpus, samples, held_out, held_out_required, shapes,
           loader_threads, label_drop] = data;
    auto& [text_key, label_key, label_names, skip_bad, user_key, format, loss_on, chat_template] =
        corpus;
    visit("data", path);
    visit("tokenizer", tokenizer);
    visit("end_token", end_token);
    visit("text_key", text_key);
    visit("label_key", label_key);
    visit("label_names", label_names);
    visit("skip_bad", skip_bad);
    visit("unit_key", user_key);
    visit("format", format);
    visit("loss_on", loss_on);
    visit("chat_template", chat_template);
    visit("samples", samples);
    visit("held_out", held_out);
    visit("held_out_required", held_out_required);
    visit("shapes", shapes);
    visit("loader_threads", loader_threads);
    visit("label_drop", label_drop);
  }
  {
    auto& [method, epsilon, sigma, delta, clip_norm, clip, layer_norms, quantile, clip_rate,
           count_noise, sampler, unit, accountant, rng, data_size, max_batch, secret_file,
           allow_insecure_noise, audit_canaries] = privacy;
    auto& [mode, rule, pass, tile, combine_every, memory_budget_gib] = method;
    visit("mode", mode);
    visit("rule", rule);
    visit("pass_plan", pass);
    visit("tile_size", tile);
    visit("combine_every", combine_every);
    visit("memory_budget", memory_budget_gib);
    visit("epsilon", epsilon);
    visit("sigma", sigma);
    visit("delta", delta);
    visit("clip_norm", clip_norm);
    visit("clip", clip);
    visit("layer_norms", layer_norms);
    visit("clip_quantile", quantile);
    visit("clip_rate", clip_rate);
    visit("count_noise", count_noise);
    visit("sampler", sampler);
    visit("privacy_unit", unit);
    visit("accountant", accountant);
    visit("rng", rng);
    visit("data_size", data_size);
    visit("max_batch", max_batch);
    visit("secret_file", secret_file);
    visit("allow_insecure_noise", allow_insecure_noise);
    visit("audit_canaries", audit_canaries);
  }
  {
    auto& [device, ranks, share_gpu, simulate_world, simulate_rank, link_gb_per_s, ignore_memory,
           prices_file] = placement;
    visit("device", device);
    visit("ranks", ranks);
    visit("share_gpu", share_gpu);
    visit("simulate_world", simulate_world);
    visit("simulate_rank", simulate_rank);
    visit("link", link_gb_per_s);
    visit("ignore_memory", ignore_memory);
    visit("prices_file", prices_file);
  }
  {
    auto& [warmup, iterations, profile] = measure;
    visit("warmup", warmup);
    visit("iterations", iterations);
    visit("profile", profile);
  }
  {
    auto& [steps, epochs, evaluate_every, checkpoint_every, evaluation_samples, keep_checkpoints,
           output_dir, resume, export_folder, overwrite, merge, profile_step] = training;
    visit("steps", steps);
    visit("epochs", epochs);
    visit("evaluate_every", evaluate_every);
    visit("checkpoint_every", checkpoint_every);
    visit("evaluation_samples", evaluation_samples);
    visit("keep_checkpoints", keep_checkpoints);
    visit("output_dir", output_dir);
    visit("resume", resume);
    visit("export", export_folder);
    visit("overwrite", overwrite);
    visit("merge", merge);
    visit("profile_step", profile_step);
  }
  visit("seed", seed);
}

// "clip_norm" -> "clip-norm"
std::string stored_key(std::string field);
// Every field under its stored key, as checkpoints keep them.
nlohmann::json settings_json(const RunConfig& config);

// The fields that change no bit of any training step: where files are, what is reported and how
// often, and what only a measurement reads. Every other field decides, a new one too.
const std::vector<std::string>& idle_fields();
// settings_json without them: what decides whether a private run's nonce may be kept.
nlohmann::json deciding_json(const RunConfig& config);

}  // namespace veil
