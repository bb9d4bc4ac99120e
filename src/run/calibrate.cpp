#include "run/calibrate.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "run/machine.h"
#include "run/profile_run.h"

namespace veil {
namespace {

// A model cut to few layers, and how it is run.
struct Cut {
  const char* model;
  int layers, batch;
  int tokens;  // of a diffusion transformer: the side of its images, 0: the usual one
  Mode mode;
  NoiseGenerator noise = NoiseGenerator::philox;
  Checkpointing checkpointing = Checkpointing::none;
  bool classifies = true;  // instead of predicting tokens
  bool adamw = false;
  int micro_batches = 1;
};

const std::vector<Cut>& gpu_cuts() {
  static const std::vector<Cut> cuts = {
      {"llama3.1-8b", 6, 2, 512, Mode::no_dp},
      {"llama3.1-8b", 6, 2, 1536, Mode::no_dp},
      {"llama3.1-8b", 4, 2, 3072, Mode::no_dp, NoiseGenerator::philox, Checkpointing::full},
      {"llama3.1-8b", 6, 2, 512, Mode::materialize},
      {"llama3.1-8b", 6, 2, 1536, Mode::materialize, NoiseGenerator::secure},
      {"llama3.1-8b", 4, 2, 3072, Mode::materialize, NoiseGenerator::hardened},
      {"llama3.1-8b", 6, 2, 512, Mode::bookkeeping},
      {"llama3.1-8b", 4, 2, 1536, Mode::bookkeeping},
      {"llama3.1-8b", 4, 2, 3072, Mode::flash_clip_bookkeeping},
      {"llama3.1-8b", 4, 2, 1536, Mode::flash},
      {"llama3.1-8b", 4, 2, 512, Mode::ghost},
      {"llama3.2-1b", 8, 4, 768, Mode::no_dp, NoiseGenerator::philox, Checkpointing::none, false,
       true},
      {"llama3.2-1b", 8, 4, 768, Mode::automatic, NoiseGenerator::hardened, Checkpointing::none,
       false, true},
      {"llama3.2-1b", 8, 4, 768, Mode::materialize, NoiseGenerator::secure, Checkpointing::none,
       false, false, 4},
      {"llama3.2-1b", 8, 8, 1536, Mode::flash, NoiseGenerator::secure, Checkpointing::full, false,
       true},
      {"llama3.2-1b", 8, 16, 256, Mode::bookkeeping, NoiseGenerator::philox, Checkpointing::none,
       false},
      {"llama3.2-1b", 8, 8, 512, Mode::bookkeeping, NoiseGenerator::philox, Checkpointing::none,
       false},
      {"llama3.2-1b", 8, 2, 896, Mode::flash, NoiseGenerator::philox, Checkpointing::none, false},
      {"llama3.2-1b", 8, 2, 3584, Mode::bookkeeping, NoiseGenerator::philox, Checkpointing::none,
       false},
      {"llama3.2-1b", 8, 2, 1792, Mode::ghost, NoiseGenerator::hardened, Checkpointing::full,
       false},
      {"llama3.1-8b", 4, 2, 3584, Mode::ghost},
      {"llama3.1-8b", 4, 2, 896, Mode::bookkeeping},
      {"llama3.1-8b", 4, 2, 1792, Mode::ghost},
      {"smollm2-135m", 30, 4, 256, Mode::no_dp, NoiseGenerator::philox, Checkpointing::none, false},
      {"smollm2-135m", 30, 4, 256, Mode::automatic, NoiseGenerator::secure, Checkpointing::none,
       false},
      {"dit-b/4", 12, 8, 0, Mode::no_dp},
      {"dit-b/4", 12, 8, 0, Mode::automatic}};
  return cuts;
}

// Tables of real vocabularies are in few of them: drawing noise for one takes seconds.
const std::vector<Cut>& cpu_cuts() {
  constexpr auto kPhilox = NoiseGenerator::philox, kSecure = NoiseGenerator::secure,
                 kHardened = NoiseGenerator::hardened;
  constexpr auto kNone = Checkpointing::none, kFull = Checkpointing::full;
  static const std::vector<Cut> cuts = {
      {"gpt2", 1, 2, 32, Mode::no_dp},
      {"gpt2", 1, 2, 128, Mode::no_dp, kPhilox, kFull},
      {"gpt2", 1, 1, 48, Mode::no_dp, kPhilox, kNone, false},
      {"gpt2", 1, 2, 64, Mode::materialize},
      {"dit-s/4", 2, 2, 64, Mode::no_dp},
      {"dit-s/4", 2, 2, 64, Mode::materialize, kSecure},
      {"dit-s/4", 2, 2, 64, Mode::bookkeeping, kHardened},
      {"dit-s/4", 2, 3, 48, Mode::flash},
      {"dit-s/4", 2, 3, 48, Mode::ghost, kPhilox, kFull},
      {"dit-s/4", 1, 1, 128, Mode::no_dp},
      {"llama-tiny", 4, 4, 48, Mode::no_dp, kPhilox, kNone, false, true},
      {"llama-tiny", 4, 4, 48, Mode::automatic, kHardened, kNone, false, true},
      {"llama-tiny", 3, 8, 96, Mode::materialize, kSecure, kNone, false, false, 4},
      {"llama-tiny", 3, 2, 192, Mode::bookkeeping, kPhilox, kNone, false},
      {"llama-tiny", 4, 8, 160, Mode::no_dp, kPhilox, kFull, false},
      {"llama-tiny", 4, 2, 96, Mode::flash, kHardened, kNone, false},
      {"gpt2-tiny", 4, 2, 48, Mode::no_dp, kPhilox, kNone, false},
      {"gpt2-tiny", 3, 4, 96, Mode::materialize, kHardened, kNone, false},
      {"gpt2-tiny", 3, 8, 192, Mode::bookkeeping, kSecure, kNone, false},
      {"gpt2-tiny", 4, 2, 160, Mode::ghost, kPhilox, kNone, false}};
  return cuts;
}

bool is_diffusion(const Cut& cut) {
  return std::string_view(cut.model).starts_with("dit");
}

RunConfig config_of(const Cut& cut, bool on_gpu, Precision compute) {
  RunConfig config;
  config.model.name = cut.model;
  config.model.layers = cut.layers;
  if (is_diffusion(cut)) {
    if (cut.tokens > 0) config.model.diffusion.image_size = cut.tokens;
  } else {
    config.model.seq_length = cut.tokens;
    config.model.task = cut.classifies ? Task::sequence_classification : Task::causal_lm;
  }
  config.step.batch_size = cut.batch;
  config.step.accumulation = cut.micro_batches;
  config.step.checkpointing = cut.checkpointing;
  config.step.storage = config.step.compute = config.step.reduce = compute;
  if (cut.adamw && dtype_bytes(dtype_of(compute)) < 4) config.step.storage = Precision::fp32;
  config.optimizer.kind = cut.adamw ? OptimizerKind::adamw : OptimizerKind::sgd;
  config.privacy.method.mode = cut.mode;
  config.privacy.rng = cut.noise;
  config.placement.device = on_gpu ? DeviceKind::gpu : DeviceKind::cpu;
  config.measure.profile = {ProfileKind::phases};
  // A GPU slows down to its power limit within the first second.
  config.measure.warmup = on_gpu ? 15 : 1;
  // A CPU's steps take milliseconds or seconds.
  const bool tiny = std::string_view(cut.model).ends_with("tiny");
  config.measure.iterations = on_gpu || tiny ? 9 : 3;
  return config;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The rows of a step on the compute lane, each with the median of its times, what lies between rows
// included; rows of the same work are one.
void observe(const Executor& executor, const std::vector<StepTime>& steps, NoiseGenerator noise,
             int number, std::vector<Observation>& all) {
  const StepWork work(executor.schedule(), executor.shape(), noise);
  const size_t first = all.size();
  for (size_t r = 0; r < steps.front().rows.size(); ++r) {
    const RowTime& row = steps.front().rows[r];
    if (row.lane != static_cast<int>(Lane::compute)) continue;
    std::vector<double> times;
    for (const StepTime& step : steps) times.push_back(step.rows[r].wait_ms + step.rows[r].ms());
    const Op& op = executor.schedule().parts[row.part][row.op];
    const Observation seen{work.of(op), median(times), 1, number};
    const auto same =
        std::find_if(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(),
                     [&](const Observation& other) { return other.work == seen.work; });
    if (same == all.end()) {
      all.push_back(seen);
    } else {
      same->ms = (same->ms * same->rows + seen.ms) / (same->rows + 1);
      ++same->rows;
    }
  }
}

}  // namespace

std::vector<CalibrationStep> calibration_steps(bool on_gpu, Precision compute) {
  std::vector<CalibrationStep> steps;
  for (const Cut& cut : on_gpu ? gpu_cuts() : cpu_cuts()) {
    std::string size = fmt::format("{} x {}", cut.batch, cut.tokens);
    if (is_diffusion(cut))
      size = fmt::format("{} images{}", cut.batch,
                         cut.tokens > 0 ? fmt::format(" of {} pixels", cut.tokens) : "");
    steps.push_back(
        {fmt::format("{} of {} layers, {}, {}{}", cut.model, cut.layers, size, name_of(cut.mode),
                     cut.checkpointing == Checkpointing::none ? "" : ", checkpointed"),
         config_of(cut, on_gpu, compute)});
  }
  return steps;
}

Calibration calibrate(Device device, Precision compute,
                      const std::function<void(const std::string&, int, int)>& told) {
  Calibration found;
  const std::vector<CalibrationStep> steps = calibration_steps(device.is_cuda(), compute);
  for (size_t i = 0; i < steps.size(); ++i) {
    told(steps[i].name, static_cast<int>(i), static_cast<int>(steps.size()));
    RunPlace place;
    place.on_steps = [&](const Executor& executor, const std::vector<StepTime>& times) {
      observe(executor, times, steps[i].config.privacy.rng, static_cast<int>(found.steps.size()),
              found.observations);
    };
    const Record record = run_experiment(steps[i].config, place);
    if (record.ok()) found.steps.push_back(steps[i].name);
  }
  const DType dtype = dtype_of(compute);
  found.prices = fitted_prices(found.observations, assumed_prices(device.is_cuda(), dtype));
  found.prices.machine = priced_machine(device, dtype);
  found.prices.source = fmt::format("measured on {} steps", found.steps.size());
  return found;
}

}  // namespace veil
