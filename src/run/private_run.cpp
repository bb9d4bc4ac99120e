#include "run/private_run.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/build_info.h"
#include "base/error.h"
#include "base/units.h"
#include "run/config_fields.h"
#include "run/machine.h"
#include "run/train_config.h"
#include "train/checkpoint.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
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

// The files that a model starts from, by name, size and time.
nlohmann::json file_facts(const std::string& folder) {
  nlohmann::json facts = nlohmann::json::object();
  if (folder.empty()) return facts;
  for (const auto& entry : fs::directory_iterator(folder)) {
    struct stat file {};
    if (stat(entry.path().c_str(), &file) != 0) continue;
    facts[entry.path().filename().string()] =
        fmt::format("{} bytes, {}.{:09}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  }
  return facts;
}

privacy::JournalStart start_of(const RunConfig& config, const std::string& folder) {
  privacy::JournalStart start;
  const auto checkpoint = config.training.resume.empty() ? std::nullopt : newest_checkpoint(folder);
  if (!checkpoint) return start;
  const nlohmann::json state = checkpoint_state(*checkpoint);
  start.steps = state.value("steps", int64_t{0});
  const nlohmann::json stored = state.value("privacy", nlohmann::json::object());
  start.segment = stored.value("segment", std::string());
  start.ledger =
      privacy::ledger_from_json(stored.value("events", nlohmann::json::array()), *checkpoint);
  return start;
}

ModelShape shape_of(const RunConfig& config, const Model& model, Device device) {
  return model.shape(config.step.batch_size, dtype_of(config.step.compute), device.is_cuda());
}

privacy::Mechanism mechanism_of(const RunConfig& config, int world, const TrainTask& task,
                                const ModelShape& shape) {
  PrivateSetting setting;
  setting.samples = task.samples()->count();
  setting.one_sequence_a_document = task.one_sample_a_document();
  setting.unit_text = task.unit_text();
  setting.expected_batch = expected_batch(config, world);
  setting.steps = config.training.steps;
  setting.epochs = config.training.epochs.value_or(1);
  setting.layers = privacy::clip_layers(shape, config.privacy.by_layer()).count;
  setting.slack = rounding_slack(config.step.compute);
  return private_mechanism(config.privacy, setting);
}

bool varies(const RunConfig& config) {
  return config.privacy.sampler == SamplerKind::poisson;
}

privacy::ClipMethod method_of(const RunConfig& config, int world, const ModelShape& shape,
                              Device device, const std::optional<Roofline>& roofline) {
  StepOptions step = step_options(config, world, device.is_cuda());
  step.varying = varies(config);
  return clip_method(config.privacy.method, shape, step, config.privacy.by_layer(), roofline);
}

std::optional<std::string> build_of(const fs::path& file) {
  std::error_code failed;
  const auto bytes = fs::file_size(file, failed);
  if (failed) return {};
  const auto written = fs::last_write_time(file, failed);
  if (failed) return {};
  return fmt::format("{} bytes, {}", bytes, written.time_since_epoch().count());
}

// The program, and the shared library that this code is linked into, if it is one: the commit is
// that of the last configuration, and what was built again since is another program. Nothing where
// that cannot be told.
std::optional<nlohmann::json> program_facts() {
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  const auto main = failed ? std::nullopt : build_of(program);
  if (!main) return {};
  Dl_info object{};
  if (dladdr(reinterpret_cast<void*>(&build_of), &object) == 0 || !object.dli_fname) return {};
  const std::string name = object.dli_fname;
  if (name.find(".so") == std::string::npos) return *main;
  const auto library = build_of(name);
  if (!library) return {};
  return nlohmann::json{*main, *library};
}

// All that can make a device's arithmetic other.
nlohmann::json device_facts(Device device) {
  const Machine machine = this_machine();
  if (!device.is_cuda()) return machine.cpu_model;
  nlohmann::json facts = {machine.cpu_model, machine.cuda_runtime, machine.cudnn};
  for (const GpuInfo& gpu : machine.gpus) facts.push_back(gpu.name);
  return facts;
}

}  // namespace

double noise_to_signal(const privacy::Mechanism& mechanism, int64_t trained_parameters) {
  return mechanism.gradient_sigma() * std::sqrt(static_cast<double>(trained_parameters)) /
         mechanism.expected_batch();
}

privacy::Mechanism private_mechanism(const PrivacyConfig& c, const PrivateSetting& setting) {
  privacy::MechanismRequest request;
  request.sampler = c.sampler;
  request.unit = c.unit.value_or(privacy::PrivacyUnit::sample);
  request.unit_text = setting.unit_text;
  request.one_sequence_a_document = setting.one_sequence_a_document;
  request.data_size = c.data_size.value_or(setting.samples);
  request.size_from_data = !c.data_size;
  request.expected_batch = setting.expected_batch;
  if (setting.expected_batch > static_cast<double>(setting.samples))
    user_error(
        "the data has {} samples, fewer than the expected batch of {}: give more, or a smaller "
        "`total_batch_size`",
        setting.samples, setting.expected_batch);
  if (c.sampler == SamplerKind::shuffled && c.data_size && *c.data_size != setting.samples) {
    field_error("data_size",
                "{} with shuffled batches of {} samples: allowed is their number, for it "
                "decides how often a "
                "sample comes; leave it out, or take `sampler` poisson",
                *c.data_size, setting.samples);
  }
  request.clip = c.clip;
  request.clip_norm = c.clip_norm.value_or(1);
  if (c.clip == ClipFunction::per_layer) {
    request.layer_norms = c.layer_norms.empty()
                              ? privacy::equal_layer_norms(request.clip_norm, setting.layers)
                              : c.layer_norms;
    if (static_cast<int>(request.layer_norms.size()) != setting.layers)
      user_error("`layer_norms`: {} are given, the model has {} layers that are clipped apart",
                 request.layer_norms.size(), setting.layers);
    request.clip_norm = 0;
  }
  request.slack = setting.slack;
  request.sigma = c.sigma;
  request.epsilon = c.epsilon;
  request.delta = *c.delta;
  request.accountant = c.accountant;
  if (setting.steps) {
    request.steps = setting.steps;
  } else {
    const double q = setting.expected_batch / static_cast<double>(request.data_size);
    const int64_t an_epoch =
        request.data_size / std::max<int64_t>(1, static_cast<int64_t>(setting.expected_batch));
    request.steps =
        c.sampler == SamplerKind::poisson
            ? privacy::steps_of_epochs(setting.epochs, q)
            : std::max<int64_t>(1, std::llround(setting.epochs * static_cast<double>(an_epoch)));
  }
  if (c.clip == ClipFunction::adaptive) {
    request.adaptive = {.quantile = c.quantile,
                        .rate = c.clip_rate,
                        .count_deviation = c.count_noise.value_or(setting.expected_batch / 20)};
    // The usual twentieth of a small batch would leave the gradients no budget.
    if (!c.count_noise) {
      const double sigma = c.sigma ? *c.sigma : [&] {
        privacy::MechanismRequest flat = request;
        flat.clip = ClipFunction::abadi;
        return make_mechanism(flat).sigma();
      }();
      request.adaptive.count_deviation = std::max(request.adaptive.count_deviation, sigma);
    }
  }
  return make_mechanism(request);
}

PrivateRun::PrivateRun(const RunConfig& config, const RankInfo& info, const std::string& folder,
                       const TrainTask& task, const Model& model, Device device,
                       const std::optional<Roofline>& roofline)
    : config_(config),
      info_(info),
      mechanism_(mechanism_of(config, info.world, task, shape_of(config, model, device))),
      method_(method_of(config, info.world, shape_of(config, model, device), device, roofline)),
      last_step_(steps()) {
  if (!keeps_journal()) return;
  const PrivacyConfig& p = config_.privacy;
  privacy::JournalInput input;
  input.folder = folder;
  input.secret_file = p.secret_file;
  input.start = start_of(config, folder);
  // An epoch's border would be elsewhere for the ledger than for the loader, which continues inside
  // the epoch it was in.
  for (const privacy::LedgerEvent& event : input.start.ledger.events) {
    if (event.sampler == SamplerKind::shuffled &&
        event.data_size != mechanism_.request().data_size) {
      user_error(
          "the run was begun with {} samples in shuffled batches, now there are {}: allowed is the "
          "same data, or a new run",
          event.data_size, mechanism_.request().data_size);
    }
  }
  input.settings = deciding_settings(task.source().folder, device);
  input.add_data = [&](privacy::SecretTag& tag) { task.add_data(tag); };
  // Several GPUs add in an order that nothing here fixes.
  input.replayable = (!device.is_cuda() || (config_.step.deterministic && info_.world == 1)) &&
                     program_facts().has_value();
  input.generator = p.rng;
  journal_ = std::make_unique<privacy::Journal>(mechanism_, input);
  noise_ = journal_->key(KeyDomain::noise);
  sampling_ = journal_->key(KeyDomain::sampling);
  clip_count_ = journal_->key(KeyDomain::clip_count);
  draws_ = journal_->key(KeyDomain::draws);
  if (p.epsilon && input.start.steps < steps()) {
    last_step_ = journal_->ledger().reach_within(*p.epsilon, p.accountant, *p.delta, steps());
    if (last_step_ <= input.start.steps) {
      field_error(
          "epsilon",
          "{}: {:.4f} is spent after step {}, and the next one would spend more; allowed is a "
          "larger one",
          *p.epsilon, journal_->ledger().spent(p.accountant, *p.delta).epsilon, input.start.steps);
    }
  }
  curve_ =
      std::make_unique<privacy::SpentCurve>(journal_->ledger(), p.accountant, *p.delta, last_step_);
}

nlohmann::json PrivateRun::deciding_settings(const std::string& model_folder, Device device) const {
  nlohmann::json settings = deciding_json(config_);
  const BuildInfo& build = build_info();
  settings["the ranks"] = info_.world;
  settings["the threads"] = at::get_num_threads();
  settings["the device"] = device_facts(device);
  settings["the build"] = {build.version, build.commit, build.compiler, build.flags,
                           build.torch_version};
  settings["the program"] = program_facts().value_or("not known");
  settings["the model's files"] = file_facts(model_folder);
  settings["the plan"] = mechanism_.json();
  // Which rule and pass computes a sum decides how it is rounded.
  settings["the clip plan"] = method_json();
  return settings;
}

nlohmann::json PrivateRun::method_json() const {
  std::vector<std::string> rules;
  for (const privacy::NormRule rule : method_.rules) rules.push_back(name_of(rule));
  return {name_of(method_.pass), rules, method_.tile, method_.layers};
}

void PrivateRun::share(Communicator* lane, Device device, const TrainTask& task) {
  // A rank that takes itself for another one would go without journal and keys.
  VEIL_CHECK(lane ? lane->rank() == info_.rank && lane->size() == info_.world
                  : info_.rank == 0 && info_.world == 1,
             "rank {} of {} has another place among the ranks it talks to", info_.rank,
             info_.world);
  if (!lane) return;
  // Tell data and settings apart, and keep nothing secret.
  privacy::SecretTag read({}, "ranks"), set({}, "ranks' settings");
  task.add_data(read);
  set.add(deciding_json(config_).dump() + mechanism_.json().dump() + method_json().dump());
  const RunNonce data_tag = read.value(), set_tag = set.value();
  const int64_t tag = static_cast<int64_t>(data_tag.size()), data_at = 33, set_at = data_at + tag;
  ChaChaKey* const keys[] = {&noise_, &sampling_, &clip_count_, &draws_};
  // Where nothing arrives, -1 stays and fits no tag.
  Tensor numbers = empty_tensor({set_at + tag}, at::kDouble, cpu_device()).fill_(-1);
  double* values = numbers.data_ptr<double>();
  if (lane->rank() == 0) {
    values[32] = static_cast<double>(last_step_);
    std::copy(data_tag.begin(), data_tag.end(), values + data_at);
    std::copy(set_tag.begin(), set_tag.end(), values + set_at);
    for (int key = 0; key < 4; ++key) {
      for (int word = 0; word < 8; ++word) values[8 * key + word] = keys[key]->word[word];
    }
  }
  numbers = numbers.to(device);
  lane->broadcast(numbers, 0)->wait();
  numbers = numbers.cpu();
  values = numbers.data_ptr<double>();
  last_step_ = static_cast<int64_t>(values[32]);
  // A sample that has two numbers could be drawn twice. All wait for what each found, so that rank
  // 0 begins no run that cannot be.
  const bool same_data = std::equal(data_tag.begin(), data_tag.end(), values + data_at),
             same_settings = std::equal(set_tag.begin(), set_tag.end(), values + set_at),
             same = same_data && same_settings;
  Tensor others = empty_tensor({1}, at::kDouble, cpu_device()).fill_(same ? 0.0 : 1.0).to(device);
  lane->all_reduce(others)->wait();
  if (!same_data)
    user_error(
        "other samples were read here than on rank 0: allowed is the same data on every rank");
  if (!same_settings)
    user_error("the settings differ from rank 0's: allowed are the same on every rank");
  // until a rank that differs has told, which ends this one
  if (others.item<double>() > 0) lane->barrier();
  for (int key = 0; key < 4; ++key) {
    for (int word = 0; word < 8; ++word)
      keys[key]->word[word] = static_cast<uint32_t>(values[8 * key + word]);
  }
}

PrivateParts PrivateRun::parts() const {
  VEIL_CHECK(std::any_of(std::begin(noise_.word), std::end(noise_.word),
                         [](uint32_t word) { return word != 0; }),
             "noise without a key");
  const privacy::MechanismRequest& request = mechanism_.request();
  PrivateParts parts;
  parts.method = method_;
  parts.varying = varies(config_);
  parts.step.clip = request.clip;
  parts.step.clip_norms = request.clip == ClipFunction::per_layer
                              ? request.layer_norms
                              : std::vector<double>{request.clip_norm};
  parts.step.noise_multiplier = mechanism_.noise_deviation(1);
  parts.step.expected_batch = mechanism_.expected_batch();
  parts.step.noise = {config_.privacy.rng, noise_};
  return parts;
}

void PrivateRun::begin() {
  journal_->begin();
}

PrivateTraining PrivateRun::training(const nlohmann::ordered_json& state) {
  PrivateTraining training(mechanism_);
  training.generator = config_.privacy.rng;
  training.sampling = sampling_;
  training.clip_count = clip_count_;
  training.draws = uint64_t{draws_.word[1]} << 32 | draws_.word[0];
  training.clip_norm = mechanism_.request().clip_norm;
  if (config_.privacy.clip == ClipFunction::adaptive && state.contains("privacy"))
    training.clip_norm = state["privacy"].value("clip_norm", training.clip_norm);
  training.last_step = last_step_;
  if (!keeps_journal()) return training;
  training.before_step = [this](int64_t step) { journal_->before_step(step, last_step_); };
  training.epsilon = [this](int64_t step) { return curve_->at(step); };
  training.state = [this](int64_t step) {
    nlohmann::ordered_json stored;
    stored["segment"] = journal_->segment();
    stored["events"] = privacy::ledger_json(journal_->ledger_at(step));
    stored["delta"] = *config_.privacy.delta;
    stored["accountant"] = name_of(config_.privacy.accountant);
    return stored;
  };
  return training;
}

std::string PrivateRun::noise_warning(const Model& model) const {
  int64_t trained = 0;
  for (const ParamShape& param : model.params) trained += param.frozen ? 0 : param.numel();
  const double ratio = noise_to_signal(mechanism_, trained);
  if (ratio <= kLoudNoise) return "";
  return fmt::format(
      "noise drowns the signal: in each step it is {:.0f} times as long as the mean of clipped "
      "gradients can be (sigma {:.3g} x sqrt({} parameters) / {:g} samples); raise "
      "`total_batch_size` to {:.0f} or more, or train fewer parameters",
      ratio, mechanism_.gradient_sigma(), format_count(static_cast<double>(trained)),
      mechanism_.expected_batch(), std::ceil(mechanism_.expected_batch() * ratio / kLoudNoise));
}

PrivateStart PrivateRun::start() const {
  const PrivacyConfig& p = config_.privacy;
  PrivateStart start(mechanism_, method_);
  start.steps = steps();
  start.last_step = last_step_;
  start.spends = mechanism_.epsilon_after(steps());
  if (p.sampler == SamplerKind::shuffled && std::isfinite(start.spends.epsilon)) {
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
  start.json = mechanism_.json();
  start.json["steps"] = steps();
  start.json["rng"] = name_of(p.rng);
  start.json["pass_plan"] = name_of(method_.pass);
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
  return result;
}

}  // namespace veil
