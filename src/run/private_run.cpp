#include "run/private_run.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/quantity.h"
#include "base/units.h"
#include "privacy/invariants.h"
#include "privacy/sampler.h"
#include "run/config_fields.h"
#include "run/private_mechanism.h"
#include "run/ranks.h"
#include "run/replay_facts.h"
#include "run/train_config.h"
#include "train/checkpoint.h"

namespace veil {
namespace {

using privacy::ClipFunction;
using privacy::SamplerKind;

// What rounding can add to a clipped sample's norm, relative to C.
double rounding_slack(Precision compute) {
  switch (compute) {
    case Precision::fp64:
      return 1e-10;
    case Precision::fp32:
      return 1e-5;
    case Precision::bf16:
    case Precision::fp16:
      return 0x1p-7;
  }
  check_failed(__FILE__, __LINE__, "not reached", "a precision without a case");
}

std::optional<std::string> checkpoint_of(const RunConfig& config, const std::string& folder) {
  return config.training.resume.empty() ? std::nullopt : newest_checkpoint(folder);
}

constexpr const char* kPrivacy = "privacy";  // in a checkpoint's state

privacy::JournalStart start_of(const std::string& checkpoint, const nlohmann::json& state) {
  const nlohmann::json stored = state.value(kPrivacy, nlohmann::json::object());
  privacy::JournalStart start;
  start.steps = state.value("steps", int64_t{0});
  start.segment = stored.value("segment", std::string());
  start.ledger = privacy::ledger_from_json(stored.value("events", nlohmann::json::array()),
                                           join_path(checkpoint, kStateFile));
  return start;
}

ModelShape shape_of(const RunConfig& config, const Model& model, Device device) {
  return model.shape(config.step.batch_size, dtype_of(config.step.compute), device.is_cuda());
}

privacy::Mechanism mechanism_of(const RunConfig& config, const std::string& folder, int world,
                                const TrainTask& task, const ModelShape& shape,
                                const std::vector<privacy::BasePhase>& base) {
  PrivateSetting setting;
  setting.base = base;
  setting.users = task.users() != nullptr;
  // Canaries count as samples whether their coins put them in or leave them out.
  setting.canaries = config.privacy.audit_canaries;
  if (setting.users && setting.canaries > 0)
    field_error("audit_canaries",
                "{} with users as the unit: a canary belongs to no user; leave it out",
                setting.canaries);
  setting.samples =
      setting.users ? task.users()->count() : task.samples()->count() + setting.canaries;
  setting.multiple = config.step.batch_size * world;
  setting.one_sequence_a_document = task.one_sample_a_document();
  setting.unit_text = task.unit_text();
  setting.expected_batch = expected_batch(config, world);
  setting.steps = config.training.steps;
  setting.epochs = config.training.epochs.value_or(1);
  setting.layers = privacy::clip_layers(shape, config.privacy.by_layer()).count;
  setting.slack = rounding_slack(config.step.compute);
  const auto checkpoint = checkpoint_of(config, folder);
  if (!checkpoint) return private_mechanism(config.privacy, setting);
  const nlohmann::json state = checkpoint_state(*checkpoint);
  return continued_mechanism(config.privacy, setting, start_of(*checkpoint, state),
                             state.value(kPrivacy, nlohmann::json::object()));
}

privacy::Together together_with(const std::optional<privacy::Statement>& base,
                                const PrivacyConfig& config, const TrainTask& task) {
  if (!base) return {};
  return together(*base, config.unit.value_or(privacy::PrivacyUnit::sample), config.sampler,
                  task.unit_text());
}

bool varies(const privacy::Mechanism& mechanism) {
  return mechanism.request().sampler == SamplerKind::poisson && mechanism.batch_maximum() == 0;
}

// Of every step, if draws are cut to a maximum.
std::optional<int> constant_micro_batches(const RunConfig& config, int world,
                                          const privacy::Mechanism& mechanism) {
  if (mechanism.batch_maximum() == 0) return {};
  return static_cast<int>(
      privacy::micro_batches_for(mechanism.batch_maximum(), config.step.batch_size, world));
}

privacy::ClipMethod method_of(const RunConfig& config, int world,
                              const privacy::Mechanism& mechanism, const ModelShape& shape,
                              Device device) {
  StepOptions step = step_options(config, world, device.is_cuda());
  step.varying = varies(mechanism);
  step.micro_batches =
      constant_micro_batches(config, world, mechanism).value_or(step.micro_batches);
  return clip_method(config.privacy.method, shape, step, config.privacy.by_layer(),
                     step_prices(config, device.is_cuda()));
}

constexpr const char* kClipPlan = "the clip plan";

nlohmann::json method_json(const privacy::ClipMethod& method) {
  std::vector<std::string> rules;
  for (const privacy::NormRule rule : method.rules) rules.push_back(name_of(rule));
  nlohmann::json json = {name_of(method.pass), rules, method.tile, method.layers};
  if (method.combine_every > 1) json.push_back(method.combine_every);
  return json;
}

// Prices may have been measured since the run's last segment, and another plan would be the fastest
// now. The one that the segment had is kept if all else is as it was: another one rounds otherwise,
// so nothing could be replayed. Nothing if there is none to keep.
std::optional<privacy::ClipMethod> plan_to_keep(const std::string& folder,
                                                const nlohmann::json& settings) {
  nlohmann::json before = privacy::journal_settings(folder);
  if (!before.is_object() || !before.contains(kClipPlan)) return {};
  const nlohmann::json plan = before[kClipPlan];
  before.erase(kClipPlan);
  if (before != settings) return {};
  try {
    privacy::ClipMethod method;
    if (!find_name(plan.at(0).get<std::string>(), method.pass)) return {};
    for (const nlohmann::json& name : plan.at(1)) {
      if (!find_name(name.get<std::string>(), method.rules.emplace_back())) return {};
    }
    method.tile = plan.at(2).get<int64_t>();
    method.layers = plan.at(3).get<bool>();
    if (plan.size() > 4) method.combine_every = plan.at(4).get<int>();
    if (method.combine_every < 1) return {};
    return method;
  } catch (const nlohmann::json::exception&) {  // what is damaged is told by the journal
    return {};
  }
}

}  // namespace

PrivateRun::PrivateRun(const RunConfig& config, const RankInfo& info, const std::string& folder,
                       const TrainTask& task, const Model& model, Device device,
                       const RunOrigin& origin, Communicator* lane)
    : config_(config),
      info_(info),
      origin_(origin),
      together_(together_with(origin.base, config.privacy, task)),
      mechanism_(mechanism_of(config, folder, info.world, task, shape_of(config, model, device),
                              together_.phases)),
      method_(method_of(config, info.world, mechanism_, shape_of(config, model, device), device)),
      users_(task.users()),
      last_step_(steps()) {
  const std::string all_ranks = facts_of_all_ranks(lane, device, rank_facts(info_, device));
  model_digest_ = digest_text(model_digest(task.source(), model));
  nlohmann::json settings = deciding_settings(device, all_ranks);
  if (keeps_journal() && computes_alike(device)) {
    const auto kept = plan_to_keep(folder, settings);
    if (kept && kept->rules.size() == method_.rules.size()) method_ = *kept;
  }
  method_ = method_of_rank_0(method_, device, lane);
  // Which rule and pass computes a sum decides how it is rounded.
  settings[kClipPlan] = method_json(method_);
  const auto checkpoint = checkpoint_of(config, folder);
  if (computes_alike(device) && !checkpoint)
    weights_digest_ =
        digest_text(weights_digest(origin.initial, model.params, dtype_of(config.step.storage)));
  if (!keeps_journal()) return;
  const PrivacyConfig& p = config_.privacy;
  privacy::JournalInput input;
  input.folder = folder;
  input.secret_file = p.secret_file;
  if (checkpoint) input.start = start_of(*checkpoint, checkpoint_state(*checkpoint));
  replayable_ = computes_alike(device) && program_facts().has_value();
  input.start.digest = checkpoint && replayable_ ? checkpoint_digest(*checkpoint) : weights_digest_;
  input.settings = settings;
  input.data = digest_text(task.data_digest());
  input.replayable = replayable_;
  input.generator = p.rng;
  journal_ = std::make_unique<privacy::Journal>(mechanism_, input);
  keys_ = {.noise = journal_->key(KeyDomain::noise),
           .sampling = journal_->key(KeyDomain::sampling),
           .clip_count = journal_->key(KeyDomain::clip_count),
           .draws = journal_->key(KeyDomain::draws),
           .canary_coins = journal_->key(KeyDomain::canary_coins)};
  if (p.epsilon && input.start.steps < steps()) {
    last_step_ = journal_->ledger().reach_within(*p.epsilon, p.accountant, *p.delta, steps());
    if (last_step_ <= input.start.steps) {
      field_error(
          "epsilon",
          "{}: {} is spent after step {}, and the next one would spend more; allowed is a larger "
          "one",
          *p.epsilon, format_epsilon(journal_->ledger().spent(p.accountant, *p.delta).epsilon),
          input.start.steps);
    }
  }
  curve_ =
      std::make_unique<privacy::SpentCurve>(journal_->ledger(), p.accountant, *p.delta, last_step_);
}

// Several GPUs add in an order that nothing here fixes.
bool PrivateRun::computes_alike(Device device) const {
  return !device.is_cuda() || (config_.step.deterministic && info_.world == 1);
}

nlohmann::json PrivateRun::deciding_settings(Device device, const std::string& all_ranks) const {
  nlohmann::json settings = deciding_json(config_);
  settings["the number of ranks"] = info_.world;
  settings.update(rank_facts(info_, device));
  settings.update(program_facts().value_or(nlohmann::json::object()));
  // By a digest: it differs if any rank's threads, processor, environment or program do.
  settings["the set of ranks"] = all_ranks;
  settings["the plan"] = mechanism_.json();
  settings["the digest of the model's configuration"] = model_digest_;
  if (origin_.base)
    settings["the model's statement"] = digest_text(sha256(origin_.base->json.dump()));
  return settings;
}

void PrivateRun::share(Communicator* lane, Device device, const TrainTask& task) {
  // A rank that takes itself for another one would go without journal and keys.
  VEIL_CHECK(lane ? lane->rank() == info_.rank && lane->size() == info_.world
                  : info_.rank == 0 && info_.world == 1,
             "rank {} of {} has another place among the ranks it talks to", info_.rank,
             info_.world);
  if (!lane) return;
  const SharedKeys shared =
      share_keys(*lane, device, secret_of_this_rank(config_.privacy.secret_file),
                 journal_ ? journal_->nonce() : RunNonce{}, keys_);
  keys_ = shared.keys;
  keys_sent_ = shared.sent;
  // Tell data, parameters and settings apart, and keep nothing secret.
  const Sha256Digest digests[] = {task.data_digest(), sha256(weights_digest_),
                                  sha256(deciding_json(config_).dump() + mechanism_.json().dump() +
                                         method_json(method_).dump() + model_digest_)};
  const auto size = static_cast<int64_t>(digests[0].size());
  // Where nothing arrives, -1 stays and fits no digest.
  Tensor numbers = empty_tensor({3 * size + 1}, at::kDouble, cpu_device()).fill_(-1);
  double* values = numbers.data_ptr<double>();
  if (lane->rank() == 0) {
    for (int i = 0; i < 3; ++i) std::copy(digests[i].begin(), digests[i].end(), values + i * size);
    values[3 * size] = static_cast<double>(last_step_);
  }
  numbers = numbers.to(device);
  lane->broadcast(numbers, 0)->wait();
  numbers = numbers.cpu();
  values = numbers.data_ptr<double>();
  last_step_ = static_cast<int64_t>(values[3 * size]);
  // A sample that has two numbers could be drawn twice. All wait for what each found, so that rank
  // 0 begins no run that cannot be.
  const auto equal = [&](int i) {
    return std::equal(digests[i].begin(), digests[i].end(), values + i * size);
  };
  const bool same_data = equal(0), same_weights = equal(1), same_settings = equal(2),
             same = same_data && same_weights && same_settings && shared.same_secret;
  Tensor others = empty_tensor({1}, at::kDouble, cpu_device()).fill_(same ? 0.0 : 1.0).to(device);
  lane->all_reduce(others)->wait();
  if (!same_data)
    user_error(
        "other samples were read here than on rank 0: allowed is the same data on every rank");
  if (!same_weights)
    user_error(
        "other parameters were read here than on rank 0: allowed are the same model and one run's "
        "folder that all ranks see");
  if (!shared.same_secret)
    field_error("secret_file",
                "{}: it holds another secret here than on rank 0; allowed is the same on every "
                "rank, or a file on rank 0 alone",
                config_.privacy.secret_file);
  if (!same_settings)
    user_error(
        "the settings, or the model's config.json or adapter_config.json, differ from rank 0's: "
        "allowed are the same on every rank");
  // until a rank that differs has told, which ends this one
  if (others.item<double>() > 0) lane->barrier();
}

PrivateParts PrivateRun::parts() const {
  VEIL_CHECK(std::any_of(std::begin(keys_.noise.word), std::end(keys_.noise.word),
                         [](uint32_t word) { return word != 0; }),
             "noise without a key");
  const privacy::MechanismRequest& request = mechanism_.request();
  PrivateParts parts;
  parts.method = method_;
  parts.varying = varies(mechanism_);
  parts.micro_batches = constant_micro_batches(config_, info_.world, mechanism_);
  parts.step.clip = request.clip;
  parts.step.clip_norms = request.clip == ClipFunction::per_layer
                              ? request.layer_norms
                              : std::vector<double>{request.clip_norm};
  parts.step.noise_multiplier = mechanism_.noise_deviation(1);
  parts.step.expected_batch = mechanism_.expected_batch();
  parts.step.noise = {config_.privacy.rng, keys_.noise};
  privacy::expect_planned(parts.step, mechanism_);
  return parts;
}

void PrivateRun::begin() {
  journal_->begin();
}

PrivateTraining PrivateRun::training(const nlohmann::ordered_json& state) {
  PrivateTraining training(mechanism_);
  training.generator = config_.privacy.rng;
  training.sampling = keys_.sampling;
  training.clip_count = keys_.clip_count;
  training.users = users_;
  training.draws = uint64_t{keys_.draws.word[1]} << 32 | keys_.draws.word[0];
  training.clip_norm = mechanism_.request().clip_norm;
  if (config_.privacy.clip == ClipFunction::adaptive && state.contains("privacy"))
    training.clip_norm = state["privacy"].value("clip_norm", training.clip_norm);
  training.last_step = last_step_;
  if (!keeps_journal()) return training;
  training.before_step = [this](int64_t step) {
    journal_->before_step(step, last_step_);
    privacy::expect_counted(journal_->event(), mechanism_, step);
  };
  training.epsilon = [this](int64_t step) { return curve_->at(step); };
  training.state = [this](int64_t step) {
    nlohmann::ordered_json stored;
    stored["segment"] = journal_->segment();
    stored["events"] = privacy::ledger_json(journal_->ledger_at(step));
    stored["delta"] = *config_.privacy.delta;
    stored["accountant"] = name_of(config_.privacy.accountant);
    if (config_.privacy.epsilon) stored[kTarget] = target_json(config_.privacy, steps());
    return stored;
  };
  if (replayable_) {
    training.checkpoint_written = [this](int64_t step, const std::string& folder) {
      journal_->checkpoint_written(step, checkpoint_digest(folder),
                                   config_.training.keep_checkpoints);
    };
  }
  return training;
}

std::vector<std::string> PrivateRun::warnings(const Model& model) const {
  std::vector<std::string> lines;
  if (config_.privacy.rng == NoiseGenerator::philox)
    lines.push_back(
        fmt::format("WARNING: `rng` {}: {}; pass `rng` hardened or secure to train on real data",
                    name_of(config_.privacy.rng), privacy::kInsecureNoise));
  if (!together_.one_figure())
    lines.push_back(
        fmt::format("the model was trained before, and no single epsilon covers a person whose "
                    "data is in both trainings: {}; `epsilon` bounds those that protect the "
                    "same as this one",
                    together_.why_apart));
  int64_t trained = 0;
  for (const ParamShape& param : model.params) trained += param.frozen ? 0 : param.numel();
  const double ratio = noise_to_signal(mechanism_, trained);
  if (ratio <= kLoudNoise) return lines;
  const auto batch = batch_that_is_heard(mechanism_, config_.privacy, trained);
  lines.push_back(fmt::format(
      "noise drowns the signal: in each step it is {:.0f} times as long as the mean of clipped "
      "gradients can be (sigma {:.3g} x sqrt({} parameters) / {:g} samples); {}",
      ratio, mechanism_.gradient_sigma(), format_count(static_cast<double>(trained)),
      mechanism_.expected_batch(),
      batch ? fmt::format("raise `total_batch_size` to {:.0f} or more, or train fewer parameters",
                          *batch)
            : fmt::format("no batch of this data is large enough: train fewer parameters (`lora`), "
                          "or allow {}",
                          config_.privacy.epsilon ? "fewer steps or a larger `epsilon`"
                                                  : "a smaller `sigma`")));
  return lines;
}

PrivateStart PrivateRun::start() const {
  const PrivacyConfig& p = config_.privacy;
  PrivateStart start(mechanism_, method_);
  start.steps = steps();
  start.last_step = last_step_;
  privacy::Ledger then = journal_->ledger();
  then.events.back().reached = std::max(then.events.back().reached, std::min(last_step_, steps()));
  start.spends = then.spent(p.accountant, *p.delta);
  if (p.sampler == SamplerKind::shuffled && together_.phases.empty() && then.events.size() == 1 &&
      std::isfinite(start.spends.epsilon)) {
    start.poisson_epsilon =
        privacy::make_accountant(p.accountant)
            ->epsilon({{.sigma = mechanism_.sigma(), .q = mechanism_.q(), .steps = steps()}},
                      *p.delta)
            .epsilon;
  }
  start.resumes = journal_->resumes();
  start.replays = journal_->replays();
  start.why_fresh = journal_->why_fresh();
  start.lost_steps = journal_->lost_steps();
  start.keys_sent = keys_sent_;
  start.json = mechanism_.json();
  start.json["steps"] = steps();
  start.json["rng"] = name_of(p.rng);
  start.json["pass_plan"] = name_of(method_.pass);
  if (method_.combine_every > 1) start.json["combine_every"] = method_.combine_every;
  start.json["exact_replay"] = journal_->replays();
  return start;
}

void PrivateRun::end(int64_t step) {
  journal_->end(step);
}

PrivateResult PrivateRun::result(int64_t step) const {
  const PrivacyConfig& p = config_.privacy;
  PrivateResult result;
  result.epsilon = journal_->ledger().spent(p.accountant, *p.delta).epsilon;
  result.budget_ended = step >= last_step_ && last_step_ < steps();
  result.steps = steps();
  result.guarantee = privacy::guarantee_line(journal_->ledger(), p.accountant, *p.delta);
  result.guarantee_json = privacy::guarantee_json(journal_->ledger(), p.accountant, *p.delta);
  if (const std::string& unit = mechanism_.request().unit_text; !unit.empty())
    result.guarantee_json["unit_is"] = unit;
  if (origin_.base) {
    result.guarantee =
        privacy::line_with_base(result.guarantee, *origin_.base, together_, p.accountant, *p.delta);
    result.guarantee_json =
        privacy::with_base(result.guarantee_json, *origin_.base, together_, p.accountant, *p.delta);
  }
  return result;
}

}  // namespace veil
