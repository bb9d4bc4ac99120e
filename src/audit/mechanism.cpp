#include "audit/mechanism.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "privacy/pld.h"
#include "record/verify_record.h"

namespace veil::audit {
namespace {

constexpr int64_t kNoiseValues = 1600000;  // pooled over the steps
constexpr int64_t kFewestSteps = 3, kMostSteps = 32;
constexpr double kInclusions = 5e5, kTrials = 2e8;  // whichever comes first
// Below it the accountant's grids are out of proportion; more noise only lowers a lower bound.
constexpr double kSmallestMeasuredSigma = 0.05;
constexpr int64_t kLaggedValues = 1 << 21;
constexpr size_t kShownFailures = 12;

void add_failure(AuditRecord& record, const std::string& text) {
  if (record.failures.size() < kShownFailures) record.failures.push_back(text);
}

// The worst of many tests of one law: the one that is nearest to its limits or furthest beyond.
class WorstTest {
 public:
  explicit WorstTest(const std::string& name) { law_.name = name; }
  // Whether it is kept.
  bool test(const std::string& where, double value, double lower, double upper, int64_t tests = 1) {
    law_.tests += tests;
    const double middle = 0.5 * (lower + upper), half = 0.5 * (upper - lower);
    const double off = std::abs(value - middle) / half;
    const bool kept = off <= 1;
    if (!kept) failed_ = true;
    if (!(off <= worst_)) {
      worst_ = std::isnan(off) ? HUGE_VAL : off;
      law_.where = where;
      law_.value = value;
      law_.lower = lower;
      law_.upper = upper;
    }
    return kept;
  }
  void finish(AuditRecord& record) {
    if (law_.tests == 0) return;
    law_.verdict = failed_ ? kFail : kPass;
    if (failed_)
      add_failure(record, fmt::format("{}: {:.4g} {}, allowed is {:.4g} to {:.4g}", law_.name,
                                      law_.value, law_.where, law_.lower, law_.upper));
    record.laws.push_back(law_);
  }

 private:
  AuditLaw law_;
  double worst_ = -1;
  bool failed_ = false;
};

std::vector<double> plain(const Tensor& values) {
  const Tensor whole = values.contiguous();
  return {whole.data_ptr<double>(), whole.data_ptr<double>() + whole.numel()};
}

std::vector<NoiseCell> noise_cells(AuditedRun& audited) {
  const Executor& executor = audited.run().executor();
  std::vector<NoiseCell> cells;
  for (const UpdateProbe::Place& at : audited.probe().places())
    cells.push_back(
        {audited.run().model().params[static_cast<size_t>(at.param)].name, {{at.first, at.numel}}});
  const Layout& layout = executor.schedule().layout;
  for (int rank = 0; rank < layout.world; ++rank) {
    NoiseCell shard{layout.world == 1 ? "all parameters" : fmt::format("rank {}'s shard", rank),
                    {}};
    for (const UnitLayout& unit : layout.units) {
      const int64_t first = unit.base + rank * unit.shard_numel, end = first + unit.shard_numel;
      for (const UpdateProbe::Place& at : audited.probe().places()) {
        const int64_t from = std::max({first, at.first, unit.base}),
                      to = std::min({end, at.first + at.numel, unit.base + unit.numel});
        if (from < to) shard.ranges.push_back({from, to - from});
      }
    }
    cells.push_back(shard);
  }
  return cells;
}

// How often the trainer's own order takes a sample, or one of a user's.
AuditSampling count_draws(AuditedRun& audited, double alpha) {
  const int64_t units = audited.data().units();
  const std::unique_ptr<data::Order> order = audited.order(audited.data());
  AuditSampling found;
  found.planned =
      audited.expected_batch() / static_cast<double>(audited.mechanism().request().data_size);
  int64_t own = 0, steps = 0;
  const double wanted = std::min(kInclusions / found.planned, kTrials);
  for (; static_cast<double>(steps * units) < wanted || steps < 1; ++steps) {
    own += drawn_here(*order, steps);
  }
  found.trials = steps * units;
  found.inclusions = static_cast<int64_t>(audited.sum_over_ranks(static_cast<double>(own)));
  if (found.inclusions > found.trials) return found;  // a sample is drawn twice: no rate at all
  const Interval rate = clopper_pearson(found.inclusions, found.trials, alpha);
  found.low = rate.low;
  found.high = rate.high;
  return found;
}

// Shuffled batches: how often the sample that is taken most often is in one epoch's batches.
double most_in_an_epoch(AuditedRun& audited) {
  const int64_t samples = audited.data().samples->count();
  const std::unique_ptr<data::Order> order = audited.order(audited.data());
  double most = 0;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t> times(static_cast<size_t>(samples));
    for (int64_t step = 0; step < audited.mechanism().steps_per_epoch(); ++step) {
      for (const int64_t sample : order->samples({epoch, step})) {
        if (sample != data::kNoSample) ++times.at(static_cast<size_t>(sample));
      }
    }
    most = std::max(most, static_cast<double>(*std::max_element(times.begin(), times.end())));
  }
  return most;
}

// The run's epsilon, from below, if its noise, sensitivity and rate are these.
double measured_epsilon(const AuditedRun& audited, double noise_to_sensitivity, double q) {
  const privacy::Mechanism& mechanism = audited.mechanism();
  const privacy::MechanismRequest& request = mechanism.request();
  privacy::Phase phase = mechanism.event(*request.steps);
  // Under adaptive clipping the noisy count takes the rest of the budget: 1 / sigma^2 = 1 /
  // gradient_sigma^2 + 1 / (2 count_deviation)^2. It is not measured, and taken as planned.
  const auto inverse_square = [](double sigma) { return 1 / (sigma * sigma); };
  const double count =
      std::max(0.0, inverse_square(mechanism.sigma()) - inverse_square(mechanism.gradient_sigma()));
  phase.sigma = 1 / std::sqrt(inverse_square(noise_to_sensitivity) + count);
  if (!(phase.sigma > 0)) return HUGE_VAL;
  phase.sigma = std::max(phase.sigma, kSmallestMeasuredSigma);
  if (request.sampler == privacy::SamplerKind::poisson) phase.q = std::min(1.0, q);
  return privacy::pld_epsilon_bounds({phase}, request.delta).lower;
}

}  // namespace

void judge_noise(const std::vector<std::vector<double>>& steps,
                 const std::vector<std::string>& step_names, const std::vector<NoiseCell>& cells,
                 double alpha, AuditRecord& record) {
  // A third for each of: the cells, the pairs of steps, the distances.
  const double third = alpha / 3;
  const double each = third / (3.0 * static_cast<double>(steps.size() * cells.size()));
  WorstTest mean("mean of the noise, in deviations"),
      deviation("deviation of the noise over the plan's"),
      shape("distance to a normal's distribution"), pairs("correlation of two steps"),
      lags("correlation at any distance");
  std::map<int64_t, Interval> limits;  // of a cell's deviation, by its size
  const double z = -normal_quantile(each / 2);
  for (size_t s = 0; s < steps.size(); ++s) {
    for (const NoiseCell& cell : cells) {
      std::vector<double> values;
      for (const auto& [first, count] : cell.ranges)
        values.insert(values.end(), steps[s].begin() + first, steps[s].begin() + first + count);
      if (values.empty()) continue;
      const auto count = static_cast<int64_t>(values.size());
      const auto n = static_cast<double>(count);
      double sum = 0, squares = 0;
      for (const double value : values) sum += value, squares += value * value;
      if (!limits.count(count))
        limits[count] = {std::sqrt(chi_square_quantile(n, each / 2) / n),
                         std::sqrt(chi_square_quantile(n, 1 - each / 2) / n)};
      const std::string where = fmt::format("in {}, {}", cell.name, step_names[s]);
      mean.test(where, sum / n, -z / std::sqrt(n), z / std::sqrt(n));
      deviation.test(where, std::sqrt(squares / n), limits[count].low, limits[count].high);
      const double most = kolmogorov_limit(count, each);
      shape.test(where, kolmogorov_distance(values), -most, most);
    }
  }
  // Elements that are trained, one step behind another.
  std::vector<std::vector<double>> rows;
  for (const std::vector<double>& step : steps) {
    rows.emplace_back();
    for (const auto& [first, count] : cells.back().ranges) {
      const auto from = step.begin() + first;
      rows.back().insert(rows.back().end(), from, from + count);
    }
    for (size_t c = 0; c + 1 < cells.size(); ++c) {
      if (cells[c].name.starts_with("rank ")) {
        for (const auto& [first, count] : cells[c].ranges) {
          const auto from = step.begin() + first;
          rows.back().insert(rows.back().end(), from, from + count);
        }
      }
    }
  }
  const auto count = static_cast<int64_t>(rows[0].size());
  const auto pair_count = static_cast<double>(rows.size() * (rows.size() - 1) / 2);
  for (size_t a = 0; a < rows.size(); ++a) {
    for (size_t b = a + 1; b < rows.size(); ++b) {
      double product = 0;
      for (size_t i = 0; i < rows[a].size(); ++i) product += rows[a][i] * rows[b][i];
      const double n = static_cast<double>(count),
                   most = product_limit(count, third / pair_count) / n;
      pairs.test(fmt::format("between {} and {}", step_names[a], step_names[b]), product / n, -most,
                 most);
    }
  }
  std::vector<double> all;
  for (const std::vector<double>& row : rows) {
    if (std::ssize(all) + std::ssize(row) > kLaggedValues && !all.empty()) break;
    all.insert(all.end(), row.begin(), row.end());
  }
  const std::vector<double> sums = autocorrelation(all);
  const double n = static_cast<double>(all.size()),
               most = lagged_limit(std::ssize(all), third / n) / n;
  size_t furthest = 1;
  for (size_t lag = 1; lag < sums.size(); ++lag) {
    if (!(std::abs(sums[lag]) <= std::abs(sums[furthest]))) furthest = lag;
  }
  lags.test(fmt::format("{} elements apart (a step has {})", furthest, count), sums[furthest] / n,
            -most, most, std::ssize(sums) - 1);
  for (WorstTest* const law : {&mean, &deviation, &shape, &pairs, &lags}) law->finish(record);
}

AuditRecord audit_mechanism(const AuditOptions& options, const AuditPlace& place) {
  const double begin_ms = steady_ms(), alpha = 1 - options.confidence;
  const auto progress = [&](const std::string& what) {
    if (place.on_progress) place.on_progress(what);
  };
  progress("setting up the run");
  AuditedRun audited(options, place);
  AuditRecord record;
  record.kind = "mechanism";
  record.confidence = options.confidence;
  record.claim = audited.claim();
  const bool poisson = record.claim.sampler == name_of(privacy::SamplerKind::poisson);

  // The noise: what two runs of one step from one starting point differ in.
  const int64_t parameters = std::max<int64_t>(1, record.claim.parameters);
  const int64_t steps =
      std::clamp((kNoiseValues + parameters - 1) / parameters, kFewestSteps, kMostSteps);
  const double planned = audited.planned_deviation();
  std::vector<std::vector<double>> noise;
  std::vector<std::string> names;
  bool frozen_moved = false;
  const auto take = [&](const AuditedData& data, int64_t step, const std::string& name) {
    progress("the noise of " + name);
    const Tensor with = audited.gradient(data, step, /*silent=*/false);
    frozen_moved |= audited.probe().frozen_moved();
    const Tensor without = audited.gradient(data, step, /*silent=*/true);
    noise.push_back(plain(with.sub(without).div_(planned)));
    names.push_back(name);
  };
  for (int64_t step = 1; step <= steps; ++step)
    take(audited.data(), step, fmt::format("step {}", step));
  // A step that draws nothing: one sample alone, at the first step that leaves it out.
  if (poisson && record.claim.q < 0.999) {
    const AuditedData one = audited.one_unit();
    const std::unique_ptr<data::Order> order = audited.order(one);
    int64_t step = steps + 1;  // none whose noise was seen
    while (audited.sum_over_ranks(static_cast<double>(drawn_here(*order, step - 1))) > 0) ++step;
    take(one, step, fmt::format("an empty draw (step {})", step));
  }
  if (frozen_moved) add_failure(record, "a frozen parameter got an update");
  const std::vector<NoiseCell> cells = noise_cells(audited);
  progress("the law of the noise");
  judge_noise(noise, names, cells, alpha / 2, record);
  AuditNoise measured;
  double squares = 0;
  for (const std::vector<double>& step : noise) {
    for (const UpdateProbe::Place& at : audited.probe().places()) {
      for (int64_t i = at.first; i < at.first + at.numel; ++i)
        squares += step[static_cast<size_t>(i)] * step[static_cast<size_t>(i)];
      measured.values += at.numel;
    }
  }
  const Interval deviation = deviation_interval(squares, measured.values, alpha / 4);
  measured.planned = planned;
  measured.measured = planned * std::sqrt(squares / static_cast<double>(measured.values));
  measured.low = planned * deviation.low;
  measured.high = planned * deviation.high;
  record.noise = measured;

  // What one sample can do to the sum.
  double furthest = 0;
  for (const HardSample& sample : audited.hard_samples()) {
    progress("a canary: " + sample.name);
    const AuditedRun::Move move = audited.move_by(sample);
    record.canaries.push_back({sample.name, move.distance, move.allowed});
    furthest = std::max(furthest, move.distance);
    if (!(move.distance <= move.allowed))
      add_failure(record, fmt::format("sensitivity: the canary '{}' moves the sum by {:.6g} C, "
                                      "allowed is {:.6g}",
                                      sample.name, move.distance, move.allowed));
  }

  // Who is drawn.
  double q = 1;
  progress("the sampler");
  if (poisson) {
    const AuditSampling sampling = count_draws(audited, alpha / 4);
    q = sampling.low;
    if (!(sampling.low <= sampling.planned && sampling.planned <= sampling.high))
      add_failure(record,
                  fmt::format("sampling: {} of {} were drawn, a rate of {:.6g} to {:.6g}; planned "
                              "is {:.6g}",
                              sampling.inclusions, sampling.trials, sampling.low, sampling.high,
                              sampling.planned));
    record.sampling = sampling;
  } else if (const double most = most_in_an_epoch(audited); most > 1) {
    add_failure(record, fmt::format("sampling: a sample is taken {} times in one epoch", most));
  }

  const double noise_to_sensitivity =
      measured.high * audited.expected_batch() / (audited.clip_norm() * furthest);
  record.epsilon_low = std::isinf(furthest) ? HUGE_VAL
                       : furthest > 0       ? measured_epsilon(audited, noise_to_sensitivity, q)
                                            : 0;
  conclude(record);
  record.seconds = (steady_ms() - begin_ms) / 1e3;
  return record;
}

}  // namespace veil::audit
