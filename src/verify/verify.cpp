#include "verify/verify.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/quantity.h"
#include "run/phases.h"
#include "run/ranks.h"
#include "verify/verify_cause.h"
#include "verify/verify_noise.h"
#include "verify/verify_reference.h"

namespace veil {
namespace {

constexpr int kTimedSteps = 3;
constexpr double kZeroDeviation = 0.1;
constexpr int64_t kStackLayers = 3;  // of the linear stack, the same in every world

std::vector<std::vector<double>> rows_of(const Tensor& matrix) {
  std::vector<std::vector<double>> rows;
  const Tensor whole = matrix.contiguous();
  for (int64_t r = 0; r < whole.size(0); ++r) {
    const double* first = whole.data_ptr<double>() + r * whole.size(1);
    rows.emplace_back(first, first + whole.size(1));
  }
  return rows;
}

std::vector<VerifyParamKind> param_kinds(const ModelShape& shape, const Schedule& schedule) {
  std::vector<VerifyParamKind> kinds(shape.params.size(), VerifyParamKind::weight);
  for (size_t p = 0; p < shape.params.size(); ++p) {
    if (shape.params[p].name.ends_with("bias")) kinds[p] = VerifyParamKind::bias;
  }
  for (const BlockShape& block : shape.blocks) {
    for (const Report& report : block.reports) {
      if (report.by == Report::By::embedding)
        kinds[static_cast<size_t>(report.param)] = report.param == schedule.tied_table
                                                       ? VerifyParamKind::tied_table
                                                       : VerifyParamKind::table;
    }
  }
  return kinds;
}

// The first block that has each parameter, by its name; what a person calls its layer.
std::vector<std::string> layer_names(const ModelShape& shape) {
  std::vector<std::string> names(shape.params.size());
  auto name = [&](const BlockShape& block) {
    for (ParamId id : block.params) {
      std::string& own = names[static_cast<size_t>(id)];
      if (own.empty()) own = block.name;
    }
  };
  for (const BlockShape& block : shape.blocks) name(block);
  name(shape.loss);
  return names;
}

struct RowSetting {
  Mode mode;
  Strategy strategy;
};

std::vector<RowSetting> row_settings(const VerifyOptions& options) {
  std::vector<RowSetting> settings;
  for (const Mode mode : options.modes) {
    if (sets_zero3(mode)) {
      settings.push_back({mode, Strategy::zero3});
      continue;
    }
    for (const Strategy strategy : options.strategies) settings.push_back({mode, strategy});
  }
  return settings;
}

// Diffusion transformers and new adapters start with nothing but zeros in what lets gradients
// through, which would leave little to verify: here that is random.
Model verified_model(const VerifyOptions& options, const ModelSource& source, int world) {
  Model model = make_model(options.config, source, world);
  for (ParamShape& param : model.params) {
    const bool opens = model.condition || param.name.ends_with(kLoraB);
    if (opens && param.init.kind == Init::Kind::constant && param.init.scale == 0)
      param.init = {Init::Kind::normal, kZeroDeviation};
  }
  return model;
}

// One model on the ranks that this process belongs to.
class Verifier {
 public:
  Verifier(const VerifyOptions& options, const VerifyPlace& place)
      : options_(options),
        place_(place),
        device_(choose_device(options.config, place.info)),
        source_(model_source(options.config)),
        model_(verified_model(options, source_, place.info.world)),
        share_(options.config.step.batch_size * options.config.step.accumulation),
        samples_(verify_samples(model_, source_, share_ * place.info.world,
                                dtype_of(options.config.step.compute),
                                static_cast<uint64_t>(options.config.seed))),
        reference_(
            verify_reference(options, model_, source_, samples_, device_, place.info.local_world)) {
    const int64_t count = samples_.batch.inputs.size(0), first = share_ * place.info.rank;
    Tensor counted = empty_tensor({count}, at::kByte, cpu_device()).fill_(1);
    if (count > 1) counted.narrow(0, count - 1, 1).zero_();
    own_ = samples_.batch;
    own_.counted = counted;
    own_ =
        own_.narrow(first, share_).each([](const Tensor& tensor) { return tensor.contiguous(); });
  }

  VerifyRow row(const RowSetting& setting) {
    RunConfig config = options_.config;
    config.step.strategy = setting.strategy;
    config.step.exchange = verified_exchange(config.step);
    config.privacy.method.mode = setting.mode;
    config.optimizer = {};
    config.measure.profile = {options_.phases ? ProfileKind::phases : ProfileKind::none};
    const bool is_private = config.privacy.is_private();
    VerifyRow row = described(setting);
    std::optional<PrivateParts> parts;
    if (is_private) parts = private_parts(config, row);
    ExecutorOptions settings = executor_options(config, place_.info.world, device_, parts);
    settings.initial = initial_from(reference_.params);
    Batch data = own_;
    if (!is_private) {
      data.counted.reset();
      data = data.each([&](const Tensor& tensor) { return tensor.to(device_); });
    }
    Executor executor(model_, options_.config.step.batch_size, settings, device_, data,
                      make_ranks(options_.config, place_.info, device_));
    measure(executor, is_private, row);
    if (options_.phases) time_phases(executor, is_private, row);
    return row;
  }

  VerifyNoiseRow noise(Strategy strategy, NoiseGenerator generator, bool fixed) {
    VerifyNoiseRow row = (fixed ? verify_fixed_noise : verify_noise)(
        options_, model_, reference_, own_, strategy, generator, place_, device_);
    row.model = model_.name;
    row.task = task();
    return row;
  }

  const std::string& name() const { return model_.name; }

 private:
  std::string task() const { return source_.config ? name_of(source_.config->task) : "-"; }

  VerifyRow described(const RowSetting& setting) const {
    const StepConfig& step = options_.config.step;
    return {.model = model_.name,
            .task = task(),
            .mode = name_of(setting.mode),
            .strategy = name_of(setting.strategy),
            .dtype = name_of(step.compute),
            .checkpointing = name_of(step.checkpointing),
            .world = place_.info.world,
            .batch_size = step.batch_size,
            .micro_batches = step.accumulation};
  }

  PrivateParts private_parts(const RunConfig& config, VerifyRow& row) const {
    StepOptions step = step_options(config, place_.info.world, device_.is_cuda());
    step.varying = true;
    const ModelShape shape = model_.shape(config.step.batch_size, step.compute, device_.is_cuda());
    PrivateParts parts;
    parts.method = clip_method(config.privacy.method, shape, step, config.privacy.by_layer());
    parts.varying = true;
    parts.step.clip = config.privacy.clip;
    parts.step.clip_norms = reference_.clip_norms;
    row.pass_plan = name_of(parts.method.pass);
    std::vector<std::string> rules;
    for (const privacy::NormRule rule : parts.method.rules) {
      const std::string text = name_of(rule);
      if (std::find(rules.begin(), rules.end(), text) == rules.end()) rules.push_back(text);
    }
    row.rules = rules;
    row.clip = name_of(config.privacy.clip);
    row.clip_norm = privacy::layer_sensitivity(reference_.clip_norms);
    return parts;
  }

  // [world, n]: every rank's n numbers.
  Tensor of_all_ranks(Executor& executor, const Tensor& own) const {
    const Tensor flat = own.contiguous().view({1, -1});
    Communicator* const lane = executor.communicator();
    if (!lane) return flat;
    const Tensor all =
        at::zeros({lane->size(), flat.size(1)}, at::TensorOptions(at::kDouble).device(device_));
    all.narrow(0, lane->rank(), 1).copy_(flat);
    lane->all_reduce(all)->wait();
    synchronize(device_);
    return all.cpu();
  }

  // [rows, all samples] from a rank's [rows, own samples].
  Tensor beside(Executor& executor, const Tensor& own) const {
    const Tensor all =
        of_all_ranks(executor, own).view({place_.info.world, own.size(0), own.size(1)});
    return all.permute({1, 0, 2}).reshape({own.size(0), -1});
  }

  void measure(Executor& executor, bool is_private, VerifyRow& row) {
    VerifyDifferences found;
    found.world = place_.info.world;
    found.tolerance = verify_tolerance(dtype_of(options_.config.step.compute));
    found.kinds = param_kinds(executor.shape(), executor.schedule());
    found.padded = samples_.padded;
    for (const ParamShape& param : model_.params) found.names.push_back(param.name);
    if (is_private) {
      take_norms(executor, found);
      executor.load(own_);
    }
    const std::vector<Tensor> sums = executor.gradients();
    compare_sums(executor, sums, is_private ? reference_.clipped : reference_.plain, is_private,
                 found);

    row.max_grad_diff = found.sum_difference();
    if (is_private) {
      row.max_norm_diff = found.norm_difference();
      row.max_coefficient_diff = found.coefficient_difference();
      const privacy::ClipLayers& layers = executor.schedule().layers;
      row.sum_clipped_norms = sum_of_clipped_norms(found.squared, found.coefficients, layers);
      row.expected_sum_clipped_norms =
          sum_of_clipped_norms(found.expected_squared, found.expected_coefficients, layers);
      if (options_.norms) row.norms = norms(executor, found);
      row.not_private = {"max_norm_diff",
                         "max_coefficient_diff",
                         "sum_clipped_norms",
                         "expected_sum_clipped_norms",
                         "norms",
                         "failure",
                         "clip_norm"};
    }
    row.tolerance = found.tolerance;
    const std::optional<VerifyFailure> failure = find_failure(found);
    row.verdict = failure ? kFail : kPass;
    if (!failure) return;
    row.failure = {.what = failure->what,
                   .parameter = failure->parameter,
                   .rank = failure->rank,
                   .sample = {},
                   .likely_cause = failure->cause};
    if (failure->sample >= 0) row.failure->sample = failure->sample;
  }

  // Micro-batch by micro-batch, for the executor keeps the last one's.
  void take_norms(Executor& executor, VerifyDifferences& found) {
    const int64_t batch = options_.config.step.batch_size;
    const Tensor squared = at::zeros({reference_.squared.size(0), share_}, at::kDouble);
    const Tensor coefficients = at::zeros({reference_.coefficients.size(0), share_}, at::kDouble);
    for (int64_t first = 0; first < share_; first += batch) {
      executor.load(own_.narrow(first, batch));
      executor.gradients();
      squared.narrow(1, first, batch).copy_(executor.squared_norms());
      coefficients.narrow(1, first, batch).copy_(executor.coefficients());
    }
    found.squared = rows_of(beside(executor, squared));
    found.coefficients = rows_of(beside(executor, coefficients));
    found.expected_squared = rows_of(reference_.squared);
    found.expected_coefficients = rows_of(reference_.coefficients);
  }

  void compare_sums(Executor& executor, const std::vector<Tensor>& sums,
                    const std::vector<Tensor>& expected, bool is_private,
                    VerifyDifferences& found) const {
    double largest = 1e-300, product = 0, squares = 0;
    for (const Tensor& sum : expected) largest = std::max(largest, sum.abs().max().item<double>());
    const Tensor differences = at::zeros({static_cast<int64_t>(sums.size())}, at::kDouble);
    for (size_t p = 0; p < sums.size(); ++p) {
      const Tensor mine = sums[p].to(at::kDouble);
      differences[static_cast<int64_t>(p)] =
          mine.sub(expected[p]).abs().max().item<double>() / largest;
      product += mine.mul(expected[p]).sum().item<double>();
      squares += expected[p].square().sum().item<double>();
    }
    found.sums = rows_of(of_all_ranks(executor, differences));
    found.ratio = squares > 0 ? product / squares : 1;
    for (size_t p = 0; p < sums.size(); ++p) {
      const Tensor mine = sums[p].to(at::kDouble);
      auto off = [&](const Tensor& other) {
        return mine.sub(other).abs().max().item<double>() / largest;
      };
      found.difference_after_ratio =
          std::max(found.difference_after_ratio, off(expected[p].mul(found.ratio)));
      found.difference_with_uncounted =
          std::max(found.difference_with_uncounted,
                   is_private ? off(expected[p].add(reference_.uncounted[p])) : HUGE_VAL);
    }
  }

  static double sum_of_clipped_norms(const std::vector<std::vector<double>>& squared,
                                     const std::vector<std::vector<double>>& coefficients,
                                     const privacy::ClipLayers& layers) {
    double sum = 0;
    for (size_t i = 0; i < squared[0].size(); ++i) {
      double clipped = 0;
      for (size_t p = 0; p < squared.size(); ++p) {
        const double c = coefficients[static_cast<size_t>(layers.of_param[p])][i];
        clipped += c == 0 ? 0 : c * c * squared[p][i];
      }
      sum += std::sqrt(std::max(0.0, clipped));
    }
    return sum;
  }

  std::vector<VerifyNorm> norms(const Executor& executor, const VerifyDifferences& found) const {
    const std::vector<std::string> names = layer_names(executor.shape());
    const privacy::ClipLayers& layers = executor.schedule().layers;
    std::vector<VerifyNorm> list;
    for (size_t i = 0; i < found.squared[0].size(); ++i) {
      std::vector<std::string> order;
      std::map<std::string, std::pair<double, double>> of_layer;
      for (size_t p = 0; p < names.size(); ++p) {
        const double c = found.coefficients[static_cast<size_t>(layers.of_param[p])][i];
        if (!of_layer.count(names[p])) order.push_back(names[p]);
        of_layer[names[p]].first += found.squared[p][i];
        of_layer[names[p]].second += c == 0 ? 0 : c * c * found.squared[p][i];
      }
      const auto rank = static_cast<int64_t>(i) / share_;
      const bool counts = found.squared[0].size() == 1 || i + 1 < found.squared[0].size();
      double before = 0, after = 0;
      for (const std::string& layer : order) {
        const auto [squared, clipped] = of_layer[layer];
        before += squared;
        after += clipped;
        list.push_back({.rank = rank,
                        .sample = static_cast<int64_t>(i),
                        .layer = layer,
                        .before = std::sqrt(std::max(0.0, squared)),
                        .after = std::sqrt(std::max(0.0, clipped))});
      }
      list.push_back({.rank = rank,
                      .sample = static_cast<int64_t>(i),
                      .layer = "all",
                      .before = std::sqrt(std::max(0.0, before)),
                      .after = std::sqrt(std::max(0.0, after)),
                      .counts = counts});
    }
    return list;
  }

  void time_phases(Executor& executor, bool is_private, VerifyRow& row) {
    executor.prepare();
    std::vector<StepTime> steps;
    for (int i = 0; i <= kTimedSteps; ++i) {
      if (is_private) executor.load(own_);
      executor.step(0.0);
      if (i > 0) {
        steps.push_back(executor.read_times());
      } else {
        executor.wait();
      }
    }
    const PhaseTimes times = summarise(steps, executor.schedule(), executor.shape());
    row.phases_ms.assign(times.compute_ms.begin(), times.compute_ms.end());
    for (const auto& [lane, time] : times.lanes)
      row.phases_ms.emplace_back("waiting for " + lane, time.exposed_ms);
    row.phases_ms.emplace_back("gap", times.gap_ms);
    row.phases_ms.emplace_back("step", times.step_ms);
  }

  const VerifyOptions& options_;
  const VerifyPlace& place_;
  Device device_;
  ModelSource source_;
  Model model_;
  int64_t share_;  // samples of a rank
  VerifySamples samples_;
  VerifyReference reference_;
  Batch own_;
};

}  // namespace

std::vector<VerifyModel> verify_models(const VerifyOptions& options) {
  if (!options.config.model.name.empty())
    return {{options.config.model.name, options.config.model.task}};
  std::vector<VerifyModel> models;
  const std::vector<std::string> language = {"llama-tiny", "llama-tiny-tied", "qwen2-tiny",
                                             "qwen2-tiny-tied", "gpt2-tiny"};
  if (!options.config.model.task)
    models.insert(models.end(), {{"linear-stack", std::nullopt}, {"dit-tiny", std::nullopt}});
  if (options.config.model.task.value_or(Task::causal_lm) == Task::causal_lm) {
    for (const std::string& name : language) models.push_back({name, Task::causal_lm});
  }
  if (options.config.model.task.value_or(Task::sequence_classification) ==
      Task::sequence_classification) {
    for (const std::string name : {"llama-tiny", "qwen2-tiny", "gpt2-tiny"})
      models.push_back({name, Task::sequence_classification});
  }
  return models;
}

VerifyRecord run_verify(const VerifyOptions& options, const VerifyPlace& place) {
  set_arithmetic(options.config);
  VerifyRecord found;
  const std::vector<VerifyModel> models = verify_models(options);
  const std::vector<RowSetting> settings = row_settings(options);
  const int64_t noise_rows =
      static_cast<int64_t>(2 * options.strategies.size() * options.generators.size());
  const int64_t total =
      static_cast<int64_t>(models.size()) * (static_cast<int64_t>(settings.size()) + noise_rows);
  int64_t done = 0;
  auto progress = [&](const std::string& text) {
    if (place.on_progress && place.info.rank == 0)
      place.on_progress(fmt::format("{}, {} of {}", text, done + 1, total), done, total);
    ++done;
  };
  for (const VerifyModel& model : models) {
    VerifyOptions own = options;
    own.config.model.name = model.name;
    own.config.model.task = model.task;
    if (model.name == "linear-stack" && !own.config.model.layers)
      own.config.model.layers = kStackLayers;
    Verifier verifier(own, place);
    for (const RowSetting& setting : settings) {
      progress(fmt::format("{} {} {} on {}", verifier.name(), name_of(setting.mode),
                           name_of(setting.strategy), quantity(place.info.world, "rank")));
      found.rows.push_back(verifier.row(setting));
    }
    for (const Strategy strategy : options.strategies) {
      for (const NoiseGenerator generator : options.generators) {
        for (const bool fixed : {false, true}) {
          progress(fmt::format("{} noise {} on {}", verifier.name(), name_of(strategy),
                               quantity(place.info.world, "rank")));
          found.noise.push_back(verifier.noise(strategy, generator, fixed));
        }
      }
    }
  }
  return found;
}

void judge_verify(VerifyRecord& found) {
  std::map<std::string, const VerifyNoiseRow*> firsts;  // by what must have the same bits
  for (VerifyNoiseRow& row : found.noise) {
    if (row.digest.empty()) continue;  // what was read back has roundings of its own
    const auto [first, fresh] =
        firsts.emplace(fmt::format("{} {} {}", row.model, row.task, row.rng), &row);
    if (fresh || first->second->digest == row.digest) continue;
    row.failures.push_back(fmt::format("other bits than under {} on {}", first->second->strategy,
                                       quantity(first->second->world, "rank")));
    row.verdict = kFail;
  }
  const auto failed = [](const auto& row) { return row.verdict != kPass; };
  const bool any = std::any_of(found.rows.begin(), found.rows.end(), failed) ||
                   std::any_of(found.noise.begin(), found.noise.end(), failed);
  found.verdict = any ? kFail : kPass;
}

}  // namespace veil
