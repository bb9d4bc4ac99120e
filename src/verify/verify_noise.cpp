#include "verify/verify_noise.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/noise.h"
#include "run/ranks.h"
#include "train/update_probe.h"

namespace veil {
namespace {

constexpr int kSteps = 3;
// None of them is 1, and sigma C / E is exact in every type.
constexpr double kSigma = 3, kClipNorm = 0.5, kExpectedBatch = 4;
constexpr double kDeviation = kSigma * kClipNorm;

ChaChaKey key_of(int64_t seed) {
  ChaChaKey key;
  for (uint32_t i = 0; i < 8; ++i) key.word[i] = static_cast<uint32_t>(seed) * 2654435761u + i;
  return key;
}

// FNV-1a over the parameters' bytes.
uint64_t digest(const std::vector<Tensor>& params) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const Tensor& param : params) {
    const Tensor whole = param.contiguous();
    const auto* bytes = static_cast<const uint8_t*>(whole.data_ptr());
    for (size_t i = 0; i < whole.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  }
  return hash;
}

struct NoiseRun {
  NoiseRun(const VerifyOptions& options, const Model& model, const Batch& own, Strategy strategy,
           NoiseGenerator generator, const VerifyPlace& place, Device device, bool fixed = false) {
    RunConfig& config = own_config;
    config = options.config;
    config.step.strategy = strategy;
    config.step.exchange = verified_exchange(config.step);
    config.step.accumulation = 1;
    // bf16 parameters are rounded at random when they are updated: the noise itself is then no
    // longer to be seen.
    if (config.step.storage == Precision::bf16) config.step.storage = Precision::fp32;
    config.optimizer = {};
    if (fixed) {
      config.optimizer.kind = OptimizerKind::adamw;
      if (config.step.storage != Precision::fp64) config.step.storage = Precision::bf16;
    }
    config.measure.profile = {ProfileKind::none};
    ClipChoice& choice = config.privacy.method;
    for (const Mode mode : options.modes) {
      if (choice.mode == Mode::no_dp) choice.mode = mode;
    }
    if (choice.mode == Mode::no_dp) choice.mode = Mode::automatic;
    if (choice.pass == privacy::PassKind::per_layer) choice.pass.reset();
    if (fixed) choice = {.mode = Mode::materialize};
    StepOptions step = step_options(config, place.info.world, device.is_cuda());
    step.strategy = strategy;
    step.varying = !fixed;
    const ModelShape shape = model.shape(config.step.batch_size, step.compute, device.is_cuda());
    PrivateParts parts;
    parts.method = clip_method(choice, shape, step, /*by_layer=*/false);
    parts.varying = !fixed;
    parts.step.clip_norms = {kClipNorm};
    parts.step.noise_multiplier = kSigma;
    parts.step.expected_batch = kExpectedBatch;
    parts.step.noise = {generator, key_of(config.seed)};
    settings = executor_options(config, place.info.world, device, parts);
    settings.step.strategy = strategy;  // whatever the mode is called
    Batch data = own;
    if (fixed) {
      data = own.narrow(0, config.step.batch_size).each([&](const Tensor& tensor) {
        return tensor.clone().to(device);
      });
      data.counted.reset();
    }
    make = [&model, data, device, &options, &place, this] {
      auto executor =
          std::make_unique<Executor>(model, options.config.step.batch_size, settings, device, data,
                                     make_ranks(options.config, place.info, device));
      executor->prepare();
      return executor;
    };
  }
  RunConfig own_config;
  ExecutorOptions settings;
  std::function<std::unique_ptr<Executor>()> make;
};

std::vector<Tensor> parameters(Executor& executor) {
  std::vector<Tensor> all;
  for (size_t p = 0; p < executor.shape().params.size(); ++p)
    all.push_back(executor.parameter(static_cast<ParamId>(p)));
  return all;
}

// sigma C z(step, parameter, .) / E, straight from the generator; made where the step made it. A
// frozen parameter has none.
Tensor expected_noise(const Model& model, const Tensor& like, const NoiseSource& source,
                      int64_t step, ParamId id, Device device) {
  const Tensor noise = at::zeros({like.numel()}, like.options().device(device));
  if (!model.params[static_cast<size_t>(id)].frozen)
    add_noise(noise, NoiseKnobs{static_cast<double>(step), kDeviation}, source,
              static_cast<uint32_t>(id), 0);
  return noise.div_(kExpectedBatch).cpu().view(like.sizes());
}

// A rank's part of the noise in standard deviations: elements of every parameter that is trained,
// where they lie in its shard of the units.
std::vector<double> shard_values(const Model& model, const Layout& layout,
                                 const std::vector<Tensor>& noise, int rank) {
  std::vector<double> values;
  for (const UnitLayout& unit : layout.units) {
    const int64_t first = rank * unit.shard_numel, end = first + unit.shard_numel;
    for (const ParamSlot& slot : unit.slots) {
      const int64_t from = std::max(first, slot.offset),
                    to = std::min(end, slot.offset + slot.numel);
      if (from >= to || model.params[static_cast<size_t>(slot.param)].frozen) continue;
      const Tensor part = noise[static_cast<size_t>(slot.param)]
                              .view({-1})
                              .narrow(0, from - slot.offset, to - from)
                              .to(at::kDouble)
                              .mul(kExpectedBatch / kDeviation)
                              .contiguous();
      values.insert(values.end(), part.data_ptr<double>(), part.data_ptr<double>() + part.numel());
    }
  }
  return values;
}

// How far hardened noise may lie from the generator's: the sum is rounded to a lattice of
// 2^(floor(log2 deviation) - 10) at most (kernels/noise_values.h).
double lattice_allowance(NoiseGenerator generator) {
  return generator == NoiseGenerator::hardened ? kDeviation * 0x1p-11 / kExpectedBatch : 0;
}

double largest(const Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
}

}  // namespace

NoiseLaw noise_law(std::vector<double> values) {
  NoiseLaw law;
  law.count = static_cast<int64_t>(values.size());
  if (values.empty()) return law;
  const double n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (double value : values) {
    sum += value;
    squares += value * value;
  }
  law.mean_z = sum / std::sqrt(n);
  law.variance_z = (squares / n - 1) * std::sqrt(n / 2);  // a normal's square has the variance 2
  std::sort(values.begin(), values.end());
  double distance = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double below = 0.5 * std::erfc(-values[i] / std::sqrt(2.0));
    distance = std::max(
        {distance, below - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - below});
  }
  law.kolmogorov = distance * std::sqrt(n);
  return law;
}

double correlation_z(const std::vector<double>& a, const std::vector<double>& b) {
  const size_t n = std::min(a.size(), b.size());
  if (n == 0) return 0;
  double product = 0, of_a = 0, of_b = 0;
  for (size_t i = 0; i < n; ++i) {
    product += a[i] * b[i];
    of_a += a[i] * a[i];
    of_b += b[i] * b[i];
  }
  return of_a > 0 && of_b > 0 ? product / std::sqrt(of_a * of_b) * std::sqrt(static_cast<double>(n))
                              : 0;
}

namespace {

// [steps][shards]: what was found in the noise, in standard deviations.
using ShardValues = std::vector<std::vector<std::vector<double>>>;

void judge_law(const ShardValues& values, int world_size, VerifyNoiseRow& row,
               const std::function<void(const std::string&)>& fail) {
  NoiseLaw worst;
  double between_shards = 0, between_steps = 0;
  auto larger = [](double& kept, double value) {
    if (!(std::abs(value) <= std::abs(kept))) kept = value;
  };
  for (size_t step = 0; step < kSteps; ++step) {
    for (size_t rank = 0; rank < values[step].size(); ++rank) {
      const NoiseLaw law = noise_law(values[step][rank]);
      worst.count += law.count;
      larger(worst.mean_z, law.mean_z);
      larger(worst.variance_z, law.variance_z);
      larger(worst.kolmogorov, law.kolmogorov);
      const std::string where = fmt::format("on rank {}'s shard at step {}", rank, step + 1);
      if (!(std::abs(law.mean_z) <= kLargestZ))
        fail(fmt::format("a mean {:.1f} deviations off {}", law.mean_z, where));
      if (!(std::abs(law.variance_z) <= kLargestZ)) {
        const double variance = 1 + law.variance_z * std::sqrt(2 / static_cast<double>(law.count)),
                     world = world_size;
        const bool by_world = world > 1 && (std::abs(variance * world - 1) < 0.1 ||
                                            std::abs(variance / world - 1) < 0.1);
        fail(fmt::format("a variance of {:.3g} instead of 1 {}{}", variance, where,
                         by_world ? ": noise is off by sqrt(W)" : ""));
      }
      if (!(law.kolmogorov <= kLargestKolmogorov))
        fail(fmt::format("not a normal's distribution {} (Kolmogorov-Smirnov {:.1f})", where,
                         law.kolmogorov));
      for (size_t other = rank + 1; other < values[step].size(); ++other) {
        const double z = correlation_z(values[step][rank], values[step][other]);
        larger(between_shards, z);
        if (!(std::abs(z) <= kLargestZ))
          fail(fmt::format("shards of rank {} and {} share noise", rank, other));
      }
      for (size_t later = step + 1; later < kSteps; ++later) {
        const double z = correlation_z(values[step][rank], values[later][rank]);
        larger(between_steps, z);
        if (!(std::abs(z) <= kLargestZ))
          fail(fmt::format("steps {} and {} share noise", step + 1, later + 1));
      }
    }
  }
  row.draws = worst.count;
  row.mean_z = worst.mean_z;
  row.variance_z = worst.variance_z;
  row.kolmogorov = worst.kolmogorov;
  row.between_shards_z = between_shards;
  row.between_steps_z = between_steps;
}

VerifyNoiseRow described_noise(const NoiseRun& run, Strategy strategy, NoiseGenerator generator,
                               int world, bool fixed) {
  VerifyNoiseRow row;
  row.strategy = name_of(strategy);
  row.world = world;
  row.rng = name_of(generator);
  row.batch = fixed ? "fixed" : "varying";
  row.optimizer = name_of(run.own_config.optimizer.kind);
  row.storage = name_of(run.own_config.step.storage);
  row.sigma = kSigma;
  row.clip_norm = kClipNorm;
  row.expected_batch = kExpectedBatch;
  return row;
}

}  // namespace

VerifyNoiseRow verify_noise(const VerifyOptions& options, const Model& model,
                            const VerifyReference& reference, const Batch& own, Strategy strategy,
                            NoiseGenerator generator, const VerifyPlace& place, Device device) {
  NoiseRun run(options, model, own, strategy, generator, place, device);
  VerifyNoiseRow row = described_noise(run, strategy, generator, place.info.world, false);
  std::vector<std::string> failures;
  auto fail = [&](const std::string& text) {
    if (failures.size() < 4) failures.push_back(text);
  };
  auto larger = [](double& kept, double value) {
    if (!(std::abs(value) <= std::abs(kept))) kept = value;
  };

  // Alone.
  run.settings.initial = [](ParamId, int64_t, const Tensor& out) {
    out.zero_();
    return true;
  };
  ShardValues values(kSteps);
  bool bits = true;
  {
    std::unique_ptr<Executor> executor = run.make();
    std::vector<Tensor> before = parameters(*executor), expected = before;
    for (int step = 0; step < kSteps; ++step) {
      executor->load({});
      executor->step(1.0);
      const std::vector<Tensor> after = parameters(*executor);
      std::vector<Tensor> noise;
      for (size_t p = 0; p < after.size(); ++p) {
        noise.push_back(before[p].sub(after[p]));
        expected[p] =
            expected[p].sub(expected_noise(model, expected[p], run.settings.privacy->noise,
                                           step + 1, static_cast<ParamId>(p), device));
        if (at::equal(after[p], expected[p])) continue;
        if (bits)
          fail(fmt::format("{} at step {}: the noise is not that of its own elements",
                           model.params[p].name, step + 1));
        bits = false;
      }
      for (int rank = 0; rank < place.info.world; ++rank)
        values[static_cast<size_t>(step)].push_back(
            shard_values(model, executor->schedule().layout, noise, rank));
      before = after;
    }
    row.digest = fmt::format("{:016x}", digest(before));
  }
  judge_law(values, place.info.world, row, fail);

  // With samples: in two micro-batches at least, for noise comes once per logical batch.
  run.settings.initial = initial_from(reference.params);
  Batch samples = own;
  if (own.inputs.size(0) == options.config.step.batch_size)
    samples = own.each([](const Tensor& tensor) { return at::cat({tensor, tensor}); });
  std::vector<Tensor> noisy, silent;
  for (const double multiplier : {kSigma, 0.0}) {
    run.settings.privacy->noise_multiplier = multiplier;
    std::unique_ptr<Executor> executor = run.make();
    executor->load(samples);
    executor->step(1.0);
    (multiplier > 0 ? noisy : silent) = parameters(*executor);
  }
  double difference = 0;
  const double tolerance =
      verify_tolerance(run.settings.step.compute == at::kDouble ? at::kDouble : at::kFloat);
  for (size_t p = 0; p < noisy.size(); ++p) {
    const Tensor expected = expected_noise(model, noisy[p], run.settings.privacy->noise, 1,
                                           static_cast<ParamId>(p), device);
    const double scale = 1 + std::max(largest(noisy[p]), largest(silent[p]));
    const double of_param = largest(silent[p].sub(noisy[p]).sub(expected)) / scale;
    larger(difference, of_param);
    if (!(of_param <= tolerance + lattice_allowance(generator)))
      fail(fmt::format("{}: a step with samples has other noise than its one draw",
                       model.params[p].name));
  }

  row.bits_are_the_generators = bits;
  row.difference_with_samples = difference;
  row.failures = failures;
  row.verdict = failures.empty() ? kPass : kFail;
  return row;
}

VerifyNoiseRow verify_fixed_noise(const VerifyOptions& options, const Model& model,
                                  const VerifyReference& reference, const Batch& own,
                                  Strategy strategy, NoiseGenerator generator,
                                  const VerifyPlace& place, Device device) {
  NoiseRun run(options, model, own, strategy, generator, place, device, /*fixed=*/true);
  VerifyNoiseRow row = described_noise(run, strategy, generator, place.info.world, true);
  const auto fail = [&](const std::string& text) {
    if (row.failures.size() < 4) row.failures.push_back(text);
  };
  run.settings.initial = initial_from(reference.params);
  const std::unique_ptr<Executor> executor = run.make();
  UpdateProbe probe(*executor, run.settings.optimizer, kDeviation / kExpectedBatch);
  const Batch samples = own.narrow(0, options.config.step.batch_size);
  // The sums are the same ones; what is read from moments is fp32 and better.
  const double tolerance =
      verify_tolerance(run.settings.step.storage == at::kDouble ? at::kDouble : at::kFloat);
  ShardValues values(kSteps);
  // What the update sums itself, against the sums that the rows above are about. A GPU's backward may
  // add otherwise each time: then the two are as far apart as those sums may be from the reference.
  executor->load(samples);
  const std::vector<Tensor> sums = executor->gradients();
  const bool repeats = !device.is_cuda() || options.config.step.deterministic;
  const double sums_tolerance =
      repeats ? tolerance : std::max(tolerance, verify_tolerance(run.settings.step.compute));
  double largest_sum = 0;
  for (const Tensor& sum : sums) largest_sum = std::max(largest_sum, largest(sum));
  for (int step = 0; step < kSteps; ++step) {
    Tensor with_noise, without;
    for (const bool silent : {false, true}) {
      probe.rewind(step);
      executor->silence_noise(silent);
      executor->load(samples);
      executor->step(probe.learning_rate(1e-3));
      (silent ? without : with_noise) = probe.gradient();
    }
    if (probe.frozen_moved()) fail("a frozen parameter got an update");
    std::vector<Tensor> noise(model.params.size());
    for (size_t p = 0; p < model.params.size(); ++p) noise[p] = at::zeros({0});
    for (const UpdateProbe::Place& at : probe.places()) {
      const auto part = [&](const Tensor& all) { return all.narrow(0, at.first, at.numel); };
      const Tensor found = part(with_noise).sub(part(without));
      const DType real = run.settings.step.storage == at::kDouble ? at::kDouble : at::kFloat;
      const Tensor expected =
          expected_noise(model, at::zeros({at.numel}, real), run.settings.privacy->noise, step + 1,
                         at.param, device);
      const Tensor sum =
          sums[static_cast<size_t>(at.param)].view({-1}).to(at::kDouble).div(kExpectedBatch);
      const double apart = largest(part(without).sub(sum)),
                   scale = repeats ? largest(sum) : largest_sum / kExpectedBatch,
                   allowed = (sums_tolerance + probe.resolution()) * scale;
      if (!(apart <= allowed))
        fail(
            fmt::format("{}: the update of a fixed batch sums otherwise than its clipped gradients",
                        model.params[static_cast<size_t>(at.param)].name));
      const double off = largest(found.sub(expected)) / (1 + largest(part(with_noise)));
      if (!(off <= row.difference_with_samples)) row.difference_with_samples = off;
      if (!(off <= tolerance + lattice_allowance(generator)) && row.bits_are_the_generators) {
        row.bits_are_the_generators = false;
        fail(
            fmt::format("{} at step {}: the update of a fixed batch has other noise than its one "
                        "draw",
                        model.params[static_cast<size_t>(at.param)].name, step + 1));
      }
      noise[static_cast<size_t>(at.param)] = found;
    }
    for (int rank = 0; rank < place.info.world; ++rank)
      values[static_cast<size_t>(step)].push_back(
          shard_values(model, executor->schedule().layout, noise, rank));
  }
  judge_law(values, place.info.world, row, fail);
  row.verdict = row.failures.empty() ? kPass : kFail;
  return row;
}

}  // namespace veil
