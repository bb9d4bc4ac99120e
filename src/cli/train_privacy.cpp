#include "cli/train_privacy.h"

#include <ATen/Parallel.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/build_info.h"
#include "base/error.h"
#include "base/quantity.h"
#include "cli/terminal.h"
#include "suite/machine.h"
#include "train/checkpoint.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using privacy::ClipFunction;
using privacy::SamplerKind;

// Options that change no bit of any step: where things lie and what is said. Whatever is not named here counts as deciding.
const std::set<std::string>& idle_options() {
  static const std::set<std::string> names = {
      "data",      "output-dir",       "resume",           "export",         "json",
      "log-every", "keep-checkpoints", "checkpoint-every", "evaluate-every", "evaluation-samples",
      "profile",   "config",           "secret-file",      "preset"};
  return names;
}

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

privacy::JournalStart start_of(const TrainCommand& command, const std::string& folder) {
  privacy::JournalStart start;
  const auto checkpoint = command.resume.empty() ? std::nullopt : newest_checkpoint(folder);
  if (!checkpoint) return start;
  const nlohmann::json state = checkpoint_state(*checkpoint);
  start.steps = state.value("steps", int64_t{0});
  const nlohmann::json stored = state.value("privacy", nlohmann::json::object());
  start.segment = stored.value("segment", std::string());
  start.ledger = privacy::ledger_from_json(stored.value("events", nlohmann::json::array()), *checkpoint);
  return start;
}

privacy::PrivacyPlan plan_of(const TrainCommand& c, const TrainTask& task, const ModelShape& shape) {
  PrivateSetting setting;
  setting.samples = task.samples()->count();
  setting.one_sequence_a_document = task.one_sample_a_document();
  setting.expected_batch = *c.expected_batch;
  setting.steps = c.steps;
  setting.epochs = c.epochs.value_or(1);
  setting.layers = privacy::clip_layers(shape, c.privacy.clip == ClipFunction::per_layer).count;
  setting.slack = rounding_slack(c.experiment.compute);
  return private_plan(c.privacy, setting);
}

ModelShape shape_of(const TrainCommand& c, const Model& model, Device device) {
  return model.shape(c.experiment.batch_size, dtype_of(c.experiment.compute), device.is_cuda());
}

std::string rules_line(const privacy::ClipPlan& plan) {
  std::vector<std::string> found;
  for (const privacy::NormRule rule : plan.rules) {
    if (std::find(found.begin(), found.end(), name_of(rule)) == found.end()) found.push_back(name_of(rule));
  }
  return found.empty() ? "per-sample gradients" : join(found, " and ");
}

// The commit is that of the last configuration: a program that was built again since is another one.
std::string program_facts() {
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  if (none) return "";
  return fmt::format("{} bytes, {}", fs::file_size(program, none),
                     fs::last_write_time(program, none).time_since_epoch().count());
}

StepOptions private_step_options(const TrainCommand& c, const RankInfo& info, Device device) {
  StepOptions step = step_options(c.experiment, info.world, device.is_cuda());
  step.varying = c.privacy.sampler == SamplerKind::poisson;
  return step;
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

void settle_private_batch(TrainCommand& command, const Options& options, int world) {
  ExperimentOptions& e = command.experiment;
  if (!e.total_batch_size) {
    command.expected_batch = static_cast<double>(e.batch_size * e.accumulation * world);
    return;
  }
  const int64_t total = *e.total_batch_size, share = (total + world - 1) / world;
  command.expected_batch = static_cast<double>(total);
  if (!options.given("batch-size")) e.batch_size = (share + e.accumulation - 1) / e.accumulation;
  const int64_t micro_batches = (share + e.batch_size - 1) / e.batch_size;
  if (command.privacy.sampler == SamplerKind::shuffled && micro_batches * e.batch_size * world != total) {
    user_error(
        "--total-batch-size {}: {} ranks with micro-batches of {} cannot share it evenly; allowed are multiples of {}, "
        "or --sampler poisson",
        total, world, e.batch_size, world * e.batch_size);
  }
  e.accumulation = static_cast<int>(micro_batches);
}

TrainPrivacy::TrainPrivacy(const TrainCommand& command, const Options& options, const RankInfo& info,
                           const std::string& folder, const TrainTask& task, const Model& model, Device device)
    : choice_(command.privacy),
      info_(info),
      plan_(plan_of(command, task, shape_of(command, model, device))),
      clip_plan_(veil::clip_plan(choice_.clip_choice, shape_of(command, model, device),
                                 private_step_options(command, info, device), choice_.clip == ClipFunction::per_layer)),
      last_step_(steps()) {
  if (!speaks()) return;
  privacy::JournalInput input;
  input.folder = folder;
  input.secret_file = choice_.secret_file;
  input.start = start_of(command, folder);
  // An epoch's border would fall elsewhere for the ledger than for the loader, which goes on inside the epoch it was in.
  for (const privacy::LedgerEvent& event : input.start.ledger.events) {
    if (event.sampler == SamplerKind::shuffled && event.data_size != plan_.request().data_size) {
      user_error(
          "the run was begun with {} samples in shuffled batches, now there are {}: allowed is the same data, or a new "
          "run",
          event.data_size, plan_.request().data_size);
    }
  }
  input.settings = deciding_settings(options, task.model_folder(), device);
  input.add_data = [&](privacy::SecretTag& tag) { task.add_data(tag); };
  // Several GPUs add in an order that nothing here fixes.
  input.replayable = !device.is_cuda() || (command.experiment.deterministic && info_.world == 1);
  input.generator = choice_.rng;
  journal_ = std::make_unique<privacy::Journal>(plan_, input);
  noise_ = journal_->key(KeyDomain::noise);
  sampling_ = journal_->key(KeyDomain::sampling);
  clip_count_ = journal_->key(KeyDomain::clip_count);
  draws_ = journal_->key(KeyDomain::draws);
  if (choice_.epsilon && input.start.steps < steps()) {
    last_step_ = journal_->ledger().reach_within(*choice_.epsilon, choice_.accountant, *choice_.delta, steps());
    if (last_step_ <= input.start.steps) {
      user_error(
          "--epsilon {}: {:.4f} is spent after step {}, and the next one would spend more; allowed is a larger "
          "--epsilon",
          *choice_.epsilon, journal_->ledger().spent(choice_.accountant, *choice_.delta).epsilon, input.start.steps);
    }
  }
  curve_ = std::make_unique<privacy::SpentCurve>(journal_->ledger(), choice_.accountant, *choice_.delta, last_step_);
}

nlohmann::json TrainPrivacy::deciding_settings(const Options& options, const std::string& model_folder,
                                               Device device) const {
  nlohmann::json settings = options.json();
  for (const std::string& name : idle_options()) settings.erase(name);
  const BuildInfo& build = build_info();
  settings["the ranks"] = info_.world;
  settings["the threads"] = at::get_num_threads();
  settings["the device"] = device_facts(device);
  settings["the build"] = {build.version, build.commit, build.compiler, build.flags, build.torch_version};
  settings["the program"] = program_facts();
  settings["the model's files"] = file_facts(model_folder);
  settings["the plan"] = plan_.json();
  // Which rule and pass computes a sum decides how it is rounded.
  std::vector<std::string> rules;
  for (const privacy::NormRule rule : clip_plan_.rules) rules.push_back(name_of(rule));
  settings["the clip plan"] = {name_of(clip_plan_.pass), rules, clip_plan_.tile, clip_plan_.layers};
  return settings;
}

void TrainPrivacy::share(Communicator* lane, Device device, const TrainTask& task) {
  if (!lane) return;
  privacy::SecretTag read({}, "ranks");  // tells data apart, and keeps nothing secret
  task.add_data(read);
  const RunNonce tag = read.value();
  ChaChaKey* const keys[] = {&noise_, &sampling_, &clip_count_, &draws_};
  Tensor numbers = empty_tensor({33 + static_cast<int64_t>(tag.size())}, at::kDouble, cpu_device()).zero_();
  double* values = numbers.data_ptr<double>();
  values[32] = static_cast<double>(last_step_);
  std::copy(tag.begin(), tag.end(), values + 33);
  for (int key = 0; key < 4; ++key) {
    for (int word = 0; word < 8; ++word) values[8 * key + word] = keys[key]->word[word];
  }
  numbers = numbers.to(device);
  lane->broadcast(numbers, 0)->wait();
  numbers = numbers.cpu();
  values = numbers.data_ptr<double>();
  last_step_ = static_cast<int64_t>(values[32]);
  // A sample that has two numbers could be drawn twice. All wait for what each found, so that rank 0 begins no run that cannot be.
  const bool same = std::equal(tag.begin(), tag.end(), values + 33);
  Tensor others = empty_tensor({1}, at::kDouble, cpu_device()).fill_(same ? 0.0 : 1.0).to(device);
  lane->all_reduce(others)->wait();
  if (!same) user_error("other samples were read here than on rank 0: allowed is the same data on every rank");
  if (others.item<double>() > 0) lane->barrier();  // until a rank that differs has told, which ends this one
  for (int key = 0; key < 4; ++key) {
    for (int word = 0; word < 8; ++word) keys[key]->word[word] = static_cast<uint32_t>(values[8 * key + word]);
  }
}

privacy::PrivateStep TrainPrivacy::private_step() const {
  const privacy::PlanRequest& request = plan_.request();
  privacy::PrivateStep step;
  step.clip = request.clip;
  step.clip_norms =
      request.clip == ClipFunction::per_layer ? request.layer_norms : std::vector<double>{request.clip_norm};
  step.noise_multiplier = plan_.noise_deviation(1);
  step.expected_batch = plan_.expected_batch();
  step.noise = {choice_.rng, noise_};
  return step;
}

void TrainPrivacy::begin() {
  journal_->begin();
}

PrivateTraining TrainPrivacy::training(const nlohmann::ordered_json& state) {
  PrivateTraining training(plan_);
  training.generator = choice_.rng;
  training.sampling = sampling_;
  training.clip_count = clip_count_;
  training.draws = uint64_t{draws_.word[1]} << 32 | draws_.word[0];
  training.clip_norm = plan_.request().clip_norm;
  if (choice_.clip == ClipFunction::adaptive && state.contains("privacy"))
    training.clip_norm = state["privacy"].value("clip_norm", training.clip_norm);
  training.last_step = last_step_;
  if (!speaks()) return training;
  training.before_step = [this](int64_t step) { journal_->before_step(step, last_step_); };
  training.epsilon = [this](int64_t step) { return curve_->at(step); };
  training.state = [this](int64_t step) {
    nlohmann::ordered_json stored;
    stored["segment"] = journal_->segment();
    stored["events"] = privacy::ledger_json(journal_->ledger_at(step));
    stored["delta"] = *choice_.delta;
    stored["accountant"] = name_of(choice_.accountant);
    return stored;
  };
  return training;
}

void TrainPrivacy::announce() const {
  fmt::print("private   yes: each sample's gradient is clipped, and noise is added to their sum\n");
  for (const std::string& line : plan_.summary()) fmt::print("  {}\n", line);
  const privacy::Spent then = plan_.epsilon_after(steps());
  if (std::isfinite(then.epsilon))
    fmt::print("  spends      epsilon {:.4f} in {}, {:.4g} epochs\n", then.epsilon, quantity(steps(), "step"),
               static_cast<double>(steps()) * plan_.q());
  if (choice_.sampler == SamplerKind::shuffled && std::isfinite(then.epsilon)) {
    const double poisson = privacy::make_accountant(choice_.accountant)
                               ->epsilon({{.sigma = plan_.sigma(), .q = plan_.q(), .steps = steps()}}, *choice_.delta)
                               .epsilon;
    fmt::print(
        "  gap         epsilon {:.4f} for shuffled batches; Poisson samples of the same size would spend {:.4f}, which "
        "does not hold here\n",
        then.epsilon, poisson);
  }
  fmt::print("  computed    {}, {} (mode {}), noise by {}\n", rules_line(clip_plan_), name_of(clip_plan_.pass),
             name_of(choice_.clip_choice.mode), name_of(choice_.rng));
  fmt::print(
      "  not private loss, samples drawn, bad samples, times, held-out figures: kept owner-only, not exported\n");
  if (!journal_->resumes()) return;
  if (journal_->replays()) {
    fmt::print("  goes on     as an exact replay, under the run's own nonce\n");
  } else {
    fmt::print("  goes on     under a fresh nonce, for {}{}\n", journal_->why_fresh(),
               journal_->lost_steps() > 0
                   ? fmt::format("; {} begun before {} counted",
                                 quantity(journal_->lost_steps(), "step that was", "steps that were"),
                                 journal_->lost_steps() == 1 ? "stays" : "stay")
                   : "");
  }
  if (last_step_ < steps()) fmt::print("  budget      allows {} of {}\n", last_step_, quantity(steps(), "step"));
}

nlohmann::json TrainPrivacy::json() const {
  nlohmann::json result = plan_.json();
  result["steps"] = steps();
  result["rng"] = name_of(choice_.rng);
  result["pass_plan"] = name_of(clip_plan_.pass);
  if (journal_) result["exact_replay"] = journal_->replays();
  return result;
}

void TrainPrivacy::end(int64_t step) {
  journal_->end(step);
}

std::string TrainPrivacy::budget_line(int64_t step) const {
  if (step < last_step_ || last_step_ >= steps()) return "";
  return fmt::format("ended after step {} of {}: one more would spend more than epsilon {:g}", step, steps(),
                     *choice_.epsilon);
}

std::string TrainPrivacy::guarantee_line() const {
  return privacy::guarantee_line(journal_->ledger(), choice_.accountant, *choice_.delta);
}

nlohmann::json TrainPrivacy::guarantee_json() const {
  return privacy::guarantee_json(journal_->ledger(), choice_.accountant, *choice_.delta);
}

}  // namespace veil
