#include "run/train_config.h"

#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/sha256.h"
#include "base/text.h"
#include "data/encode.h"
#include "data/tokenizer.h"
#include "models/classifier_labels.h"
#include "privacy/journal.h"
#include "run/config_fields.h"
#include "run/defaults.h"
#include "run/text_data.h"
#include "train/checkpoint.h"

namespace veil {
namespace {

using privacy::ClipFunction;
using privacy::SamplerKind;

std::string shown(const nlohmann::json& value) {
  if (value.empty() || value == "") return "nothing";  // null and a list without entries too
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool same_place(const std::string& one, const std::string& other) {
  std::error_code ignored;
  return one == other || std::filesystem::equivalent(one, other, ignored);
}

bool same_setting(const nlohmann::json& a, const nlohmann::json& b) {
  if (a == b) return true;
  if (!a.is_string() || !b.is_string()) return false;
  const std::string one = a.get<std::string>(), other = b.get<std::string>();
  return canonical(one) == canonical(other) || same_place(one, other);
}

std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "nothing" : join(names, ",");
}

std::string text_of(const nlohmann::json& settings, const char* field) {
  const nlohmann::json value = settings.value(stored_key(field), nlohmann::json());
  return value.is_string() ? value.get<std::string>() : "";
}

// A tokenizer's digest; nothing if it cannot be loaded, as after it was moved.
std::optional<std::string> tokenizer_digest(const std::string& name) {
  try {
    return data::load_tokenizer(name)->identity().hash;
  } catch (const UserError&) {
    return {};
  }
}

// How the data is read: other keys, label names or another tokenizer make other samples of the same
// files. Unlike options, keys and names are told apart by case.
void check_reading(const nlohmann::json& begun, const nlohmann::json& now,
                   const std::string& run_folder, const ModelSource& source) {
  const auto refuse = [&](const char* field, const std::string& given, const std::string& before) {
    field_error(field,
                "{}: the run in {} was begun with {}, which reads the data differently; leave it "
                "out to keep that, or begin a new run",
                given, run_folder, before);
  };
  for (const char* field : {"text_key", "label_key"}) {
    const std::string key = stored_key(field);
    if (begun.contains(key) && begun[key] != now[key])
      refuse(field, shown(now[key]), shown(begun[key]));
  }
  const auto names_of = [&](const nlohmann::json& settings) {
    const nlohmann::json given = settings.value(stored_key("label_names"), nlohmann::json());
    if (given.is_array() && !given.empty()) return given.get<std::vector<std::string>>();
    return source.config ? named_labels(source.config->source) : std::vector<std::string>();
  };
  if (begun.contains(stored_key("label_names")) && names_of(begun) != names_of(now))
    refuse("label_names", listed(names_of(now)), listed(names_of(begun)));
  if (!source.config || !begun.contains(stored_key("tokenizer"))) return;
  const auto named = [&](const nlohmann::json& settings) {
    const std::string name = tokenizer_name(text_of(settings, "tokenizer"), source);
    return name == "bytes" ? "byte" : name;
  };
  const std::string before = named(begun), given = named(now);
  if (same_place(before, given)) return;
  const auto digest = before.empty() ? std::nullopt : tokenizer_digest(before);
  if (before.empty() || (digest && digest != tokenizer_digest(given)))
    refuse("tokenizer", given.empty() ? "nothing" : given, before.empty() ? "nothing" : before);
}

void check_privacy(const PrivacyConfig& p) {
  if (!p.epsilon && !p.sigma)
    field_error("mode", "{}: a private run needs noise; pass `epsilon` or `sigma`",
                name_of(p.method.mode));
  if (p.epsilon && !(*p.epsilon > 0))
    field_error("epsilon", "{}: allowed is more than 0", *p.epsilon);
  if (!p.delta)
    field_error(
        "delta",
        "is missing: the chance that epsilon does not hold, far below 1 / samples, as 1e-6");
  privacy::check_delta(*p.delta);
  if (p.clip != ClipFunction::per_layer && !p.layer_norms.empty())
    user_error("`layer_norms`: they go with `clip` per-layer");
  if (!p.layer_norms.empty() && p.clip_norm)
    user_error("`layer_norms` and `clip_norm`: one of them is allowed");
}

// What only a private run has. A user who sets it wants one, and must not get another by forgetting
// the noise.
void check_not_private(const PrivacyConfig& p) {
  const PrivacyConfig usual;
  const std::pair<const char*, bool> fields[] = {
      {"delta", p.delta.has_value()},
      {"clip_norm", p.clip_norm.has_value()},
      {"clip", p.clip != usual.clip},
      {"layer_norms", !p.layer_norms.empty()},
      {"count_noise", p.count_noise.has_value()},
      {"sampler", p.sampler != usual.sampler},
      {"privacy_unit", p.unit.has_value()},
      {"data_size", p.data_size.has_value()},
      {"max_batch", !p.max_batch.empty()},
      {"secret_file", !p.secret_file.empty()},
      {"allow_insecure_noise", p.allow_insecure_noise},
      {"audit_canaries", p.audit_canaries != 0},
      {"rule", p.method.rule.has_value()},
      {"pass_plan", p.method.pass.has_value()},
      {"tile_size", p.method.tile.has_value()},
      {"combine_every", p.method.combine_every.has_value()},
      {"memory_budget", p.method.memory_budget_gib.has_value()}};
  for (const auto& [field, is_set] : fields) {
    if (is_set) field_error(field, "belongs to a private run: pass `epsilon` or `sigma` too");
  }
}

// Micro-batches of batch_size, as many as the expected batch needs.
void settle_private_batch(RunConfig& config, int world) {
  StepConfig& step = config.step;
  if (!step.total_batch_size) {
    if (step.batch_size < 1) field_error("batch_size", "must be positive, got {}", step.batch_size);
    return;
  }
  const int64_t total = *step.total_batch_size, share = (total + world - 1) / world;
  if (step.batch_size == 0) step.batch_size = (share + step.accumulation - 1) / step.accumulation;
  const int64_t micro_batches = (share + step.batch_size - 1) / step.batch_size;
  if (step.accumulation != 1 && step.accumulation != micro_batches)
    field_error("accumulation",
                "{}: `total_batch_size` {} in micro-batches of {} on {} makes {}; leave one of the "
                "three out",
                step.accumulation, total, step.batch_size, quantity(world, "rank"), micro_batches);
  if (config.privacy.sampler == SamplerKind::shuffled &&
      micro_batches * step.batch_size * world != total) {
    field_error("total_batch_size",
                "{}: {} ranks with micro-batches of {} cannot share it evenly; allowed are "
                "multiples of {}, or `sampler` poisson",
                total, world, step.batch_size, world * step.batch_size);
  }
  step.accumulation = static_cast<int>(micro_batches);
}

// Text is protected by document, one sequence each, unless packed sequences are requested.
void settle_unit(RunConfig& config) {
  using privacy::PrivacyUnit;
  std::optional<PrivacyUnit>& unit = config.privacy.unit;
  std::optional<data::SampleKind>& samples = config.data.samples;
  const std::string& key = config.data.corpus.user_key;
  const bool images = !model_source(config).config;
  if (unit == PrivacyUnit::user && key.empty())
    field_error("unit_key", "is missing: `privacy_unit` user needs {}",
                images ? "folder (class/user/file), or a .jsonl listing with file and user"
                       : "the key under which each JSON object names its user");
  if (unit != PrivacyUnit::user && !key.empty())
    field_error("unit_key", "{}: it goes with `privacy_unit` user", key);
  if (unit == PrivacyUnit::user && samples == data::SampleKind::packed)
    field_error("privacy_unit",
                "user with `samples` packed: packed sequences mix users; allowed is `samples` "
                "document");
  if (unit == PrivacyUnit::document && samples == data::SampleKind::packed)
    field_error("privacy_unit",
                "document with `samples` packed: packed sequences mix documents; allowed is "
                "`samples` document");
  if (images) {
    if (!unit) unit = PrivacyUnit::sample;  // an image
    return;
  }
  if (!samples)
    samples = unit == PrivacyUnit::sample ? data::SampleKind::packed : data::SampleKind::document;
  if (!unit)
    unit = samples == data::SampleKind::packed ? PrivacyUnit::sample : PrivacyUnit::document;
}

void settle_privacy(RunConfig& config, int world) {
  PrivacyConfig& p = config.privacy;
  // In DP-SGD's own words max_grad_norm is C.
  if (const std::optional<double> norm = config.optimizer.max_grad_norm) {
    if (p.clip_norm)
      field_error("max_grad_norm",
                  "{} and `clip_norm` {}: in a private run they mean the same, one of them is "
                  "allowed",
                  *norm, *p.clip_norm);
    if (!(*norm > 0))
      field_error("max_grad_norm", "{}: in a private run it is C; allowed is more than 0", *norm);
    p.clip_norm = norm;
    config.optimizer.max_grad_norm.reset();
  }
  check_privacy(p);
  if (p.rng == NoiseGenerator::philox && !config.training.export_folder.empty() &&
      !p.allow_insecure_noise)
    field_error("rng",
                "{} with `export`: this noise is not cryptographic, and whoever finds its key can "
                "take it off the exported model; allowed are `rng` hardened and secure, or "
                "`allow_insecure_noise` for a model that protects nobody",
                name_of(p.rng));
  if (sets_zero3(p.method.mode)) config.step.strategy = Strategy::zero3;
  settle_unit(config);
  if (!p.max_batch.empty()) maximum_of(p.max_batch);
  settle_private_batch(config, world);
}

}  // namespace

RunConfig training_config(const std::string& model, const std::string& hub_cache) {
  RunConfig config;
  config.model.name = model;
  config.model.hub_cache = hub_cache;
  config.measure.profile = {ProfileKind::none};
  const ModelSource source = model_source(config);
  // How long it trains is settled later, from steps or epochs.
  use_defaults(config, source, training_defaults(),
               [](const char* option) { return option == std::string("epochs"); });
  return config;
}

void write_settings(const RunConfig& config, const std::string& run_folder) {
  nlohmann::json settings = settings_json(config);
  settings[kSettingsCheck] = digest_text(sha256(settings.dump()));
  write_file_atomically(join_path(run_folder, kRunSettings), settings.dump(1) + "\n");
}

nlohmann::json stored_settings(const std::string& run_folder) {
  if (const auto checkpoint = newest_checkpoint(run_folder))
    return checkpoint_state(*checkpoint).value("settings", nlohmann::json::object());
  const std::string path = join_path(run_folder, kRunSettings);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return nlohmann::json::object();
  nlohmann::json found = try_json(read_file(path));
  const nlohmann::json check =
      found.is_object() ? found.value(kSettingsCheck, nlohmann::json()) : nlohmann::json();
  if (found.is_object()) found.erase(kSettingsCheck);
  // Earlier versions wrote no check value.
  if (!found.is_object() || (!check.is_null() && check != digest_text(sha256(found.dump()))))
    user_error(
        "{}: damaged or changed since Veil wrote it; restore it, or remove it and give all options "
        "of the run again",
        path);
  return found;
}

int64_t maximum_of(const std::string& max_batch) {
  if (canonical(max_batch) == "auto") return 0;
  int64_t most = 0;
  const char* const end = max_batch.data() + max_batch.size();
  const auto [read, failed] = std::from_chars(max_batch.data(), end, most);
  if (failed != std::errc() || read != end || most < 1)
    field_error("max_batch", "{}: allowed is a whole number from 1, or auto", max_batch);
  return most;
}

double expected_batch(const RunConfig& config, int world) {
  return static_cast<double>(config.step.total_batch_size.value_or(
      config.step.batch_size * config.step.accumulation * world));
}

RunConfig settled_for_training(RunConfig config, int world) {
  check_step(config);
  TrainingConfig& training = config.training;
  if (config.data.path.empty())
    field_error("data", "is missing: a folder of text, or a token store of `veil tokenize`");
  if (config.step.tf32)
    user_error("`tf32`: training multiplies fp32 whole; `veil profile` can measure it");
  PrivacyConfig& p = config.privacy;
  if ((p.epsilon || p.sigma) && !p.is_private()) p.method.mode = Mode::automatic;
  if (p.is_private()) {
    settle_privacy(config, world);
  } else {
    check_not_private(p);
    if (!config.data.corpus.user_key.empty())
      field_error("unit_key", "belongs to a private run: pass `epsilon` or `sigma` too");
    settle_batch(config, world);
    if (!config.optimizer.max_grad_norm) config.optimizer.max_grad_norm = 1;
  }
  if (config.placement.simulate_world)
    user_error("`simulate_world`: training needs real ranks; `veil profile` simulates");
  if (training.steps && training.epochs)
    field_error("steps", "{} and `epochs` {}: one of them is allowed", *training.steps,
                *training.epochs);
  if (training.steps && *training.steps < 1)
    field_error("steps", "must be at least 1, got {}", *training.steps);
  if (!training.steps && !training.epochs) training.epochs = kUsualEpochs;
  if (training.epochs && !(*training.epochs > 0 && std::isfinite(*training.epochs)))
    field_error("epochs", "must be positive, got {}", *training.epochs);
  const ModelSource source = model_source(config);
  if (!source.config && !source.diffusion)
    field_error("model",
                "{}: `veil train` trains language models and diffusion transformers; `veil "
                "profile` measures the linear stack",
                config.model.name);
  if (source.config && config.data.path == kShapes && !std::filesystem::exists(kShapes))
    field_error("data",
                "shapes: they are images, and {} is a language model; give a folder of text",
                config.model.name);
  std::optional<data::SampleKind>& samples = config.data.samples;
  if (source.config && source.config->task == Task::sequence_classification) {
    samples = data::SampleKind::labelled;
    if (config.data.corpus.label_key.empty()) config.data.corpus.label_key = "label";
  } else if (samples == data::SampleKind::labelled) {
    field_error("samples", "labelled: pass `task` sequence-classification too");
  }
  if (!samples)
    samples = source.config && data::one_sample_a_record(config.data.path, config.data.corpus)
                  ? data::SampleKind::document
                  : data::SampleKind::packed;
  if (training.merge && (!config.model.has_adapters() || training.export_folder.empty()))
    field_error("merge",
                "adds adapters to the model that `export` writes: pass `export` DIR and "
                "`lora` RANK or `adapter` DIR too");
  if (training.resume.empty() || training.resume == "auto")
    check_folder_can_be_made(training.output_dir);
  return config;
}

void check_resumed(const RunConfig& config, const std::string& run_folder, int world) {
  const bool is_private = config.privacy.is_private();
  const auto checkpoint = newest_checkpoint(run_folder);
  const bool was_private = privacy::holds_journal(run_folder) ||
                           (checkpoint && checkpoint_state(*checkpoint).contains("privacy"));
  if (was_private && !is_private)
    user_error(
        "the run in {} is private: pass `epsilon` or `sigma` as before, or train in another folder",
        run_folder);
  // Users by another key are other users, and a guarantee has one unit.
  const nlohmann::json before = stored_settings(run_folder);
  if (const std::string key = stored_key("unit_key");
      was_private && before.contains(key) &&
      !same_setting(before[key], config.data.corpus.user_key))
    field_error("unit_key", "{}: the run in {} was begun with {}, and a guarantee has one unit",
                shown(config.data.corpus.user_key), run_folder, shown(before[key]));
  if (!checkpoint) return;
  if (is_private && !was_private)
    user_error(
        "the run in {} is not private, and noise added now would not make it so: begin a new one",
        run_folder);
  // Settings of earlier versions of the program have the same keys; what they do not have is not
  // compared.
  const nlohmann::json state = checkpoint_state(*checkpoint),
                       begun = state.value("settings", nlohmann::json::object()),
                       now = settings_json(config);
  for (const char* field :
       {"model",      "task",       "labels",    "layers",     "seq_length",   "seed",
        "samples",    "held_out",   "optimizer", "image_size", "patch_size",   "channels",
        "classes",    "hidden_dim", "heads",     "shapes",     "label_drop",   "ema",
        "freeze",     "train_only", "lora",      "lora_alpha", "lora_targets", "lora_rslora",
        "train_also", "adapter",    "format",    "loss_on",    "chat_template"}) {
    const std::string key = stored_key(field);
    if (!begun.contains(key) || same_setting(begun[key], now[key])) continue;
    // Runs of earlier versions: names of labels did not decide a head's size, which the checkpoint's
    // weights tell in any case, and bad lines could be skipped without a format.
    if (field == std::string("labels") && begun[key].is_null()) continue;
    if (field == std::string("format") && is_private && config.data.corpus.skip_bad &&
        same_setting(begun[key], name_of(data::DataFormat::automatic)))
      continue;
    field_error(
        field,
        "{}: the run in {} was begun with {}; strategy, ranks, checkpointing and device may "
        "change, this may not",
        shown(now[key]), run_folder, shown(begun[key]));
  }
  check_reading(begun, now, run_folder, model_source(config));
  const int64_t batch = is_private ? std::llround(expected_batch(config, world))
                                   : rank_batch(config, world) * config.step.accumulation * world;
  const int64_t began_with = state.value("global_batch", batch);
  if (began_with != batch)
    user_error(
        "`batch_size`: {} samples per step over all ranks, the run in {} was begun with {}; pass "
        "`total_batch_size` {}",
        batch, run_folder, began_with, began_with);
}

std::string other_data_notice(const RunConfig& config, const std::string& run_folder) {
  const auto checkpoint = newest_checkpoint(run_folder);
  if (!checkpoint) return "";
  const std::string before =
      text_of(checkpoint_state(*checkpoint).value("settings", nlohmann::json::object()), "data");
  if (before.empty() || same_place(before, config.data.path)) return "";
  return fmt::format("the run was begun with `data` {}; it continues with {}", before,
                     config.data.path);
}

}  // namespace veil
