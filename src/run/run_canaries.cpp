#include "run/run_canaries.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "kernels/philox.h"
#include "kernels/random.h"
#include "privacy/one_run.h"
#include "record/verify_record.h"

namespace veil {
namespace {

constexpr double kOneRunConfidence = 0.95;
// Parts of the canaries that are guessed to be in, and as many to be out; the best counts, and they
// share the error probability.
constexpr double kGuessedParts[] = {0.05, 0.125, 0.25, 0.5};
// keeps these draws apart from everything else of the seed
constexpr uint64_t kCanaryContent = uint64_t{9} << 56;

int64_t canary_token(uint64_t seed, int64_t canary, int64_t place, int64_t classes) {
  const Philox4 words = philox4x32(seed, static_cast<uint64_t>(place),
                                   kCanaryContent | static_cast<uint64_t>(canary));
  return static_cast<int64_t>((uint64_t{words.word[0]} * static_cast<uint64_t>(classes)) >> 32);
}

}  // namespace

RunCanaries::RunCanaries(const Feed& samples, const Model& model, int64_t count, uint64_t seed,
                         const ChaChaKey& coins) {
  const Batch first = feed_row(samples, 0, seed);
  for (int64_t i = 0; i < count; ++i) {
    Batch row = first.each([](const Tensor& tensor) { return tensor.clone(); });
    if (row.inputs.is_floating_point()) {
      for (const Tensor& part : {row.inputs, row.targets}) {
        const Tensor values = empty_tensor(part.sizes(), at::kFloat, cpu_device());
        const int64_t place = 2 * i + (part.is_same(row.targets) ? 1 : 0);
        fill_normal(values, 1, seed ^ kCanaryContent, RandomDomain::targets,
                    place * values.numel());
        part.copy_(values);
      }
    } else {
      const int64_t tokens = row.inputs.numel(),
                    classes = std::max<int64_t>(2, model.input.classes);
      const bool causal = row.targets.dim() == row.inputs.dim();
      for (int64_t t = 0; t < tokens; ++t) {
        row.inputs.data_ptr<int64_t>()[t] = canary_token(seed, i, t, classes);
        if (causal) row.targets.data_ptr<int64_t>()[t] = canary_token(seed, i, t + 1, classes);
      }
      if (!causal)
        row.targets.fill_(
            canary_token(seed, i, tokens, std::max<int64_t>(2, model.target.classes)));
    }
    rows_.push_back(row);
    const ChaChaBlock block =
        chacha20(coins, static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0);
    present_.push_back(block.word[0] & 1);
  }
}

std::shared_ptr<const Feed> RunCanaries::within(std::shared_ptr<const Feed> samples) const {
  const int64_t first = samples->count();
  return with_canaries(std::move(samples), {rows_, present_, first});
}

std::vector<double> RunCanaries::losses(Executor& executor) const {
  const int64_t batch = executor.shape().batch, count = std::ssize(rows_);
  std::vector<double> found;
  for (int64_t first = 0; first < count; first += batch) {
    Batch rows;
    const auto together = [&](Tensor Batch::*part) {
      std::vector<Tensor> parts;
      for (int64_t i = first; i < first + batch; ++i)
        parts.push_back(rows_[static_cast<size_t>(std::min(i, count - 1))].*part);
      if (parts[0].defined()) rows.*part = at::cat(parts);
    };
    together(&Batch::inputs);
    together(&Batch::targets);
    together(&Batch::conditions);
    const Evaluation evaluation = executor.evaluate(rows);
    for (int64_t i = 0; i < std::min(batch, count - first); ++i)
      found.push_back(evaluation.losses.data_ptr<double>()[i]);
  }
  return found;
}

AuditRecord RunCanaries::judged(const std::vector<double>& before, const std::vector<double>& after,
                                double epsilon, double delta) const {
  const int64_t count = std::ssize(rows_);
  VEIL_CHECK(std::ssize(before) == count && std::ssize(after) == count, "{} canaries", count);
  std::vector<int64_t> order(rows_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto fall = [&](int64_t i) {
    return before[static_cast<size_t>(i)] - after[static_cast<size_t>(i)];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return fall(a) > fall(b); });
  AuditRecord record;
  record.kind = "one-run";
  record.confidence = kOneRunConfidence;
  record.claim.epsilon = epsilon;
  record.claim.delta = delta;
  AuditOneRun best;
  best.canaries = count;
  best.included = std::count(present_.begin(), present_.end(), true);
  const double each = 1 - (1 - kOneRunConfidence) / std::size(kGuessedParts);
  for (const double part : kGuessedParts) {
    const auto guessed = static_cast<int64_t>(part * static_cast<double>(count));
    if (guessed < 1) continue;
    int64_t correct = 0;
    for (int64_t i = 0; i < guessed; ++i) {
      correct += present_[static_cast<size_t>(order[static_cast<size_t>(i)])];
      correct += !present_[static_cast<size_t>(order[static_cast<size_t>(count - 1 - i)])];
    }
    const double bound = privacy::one_run_epsilon(count, 2 * guessed, correct, delta, each);
    if (best.guesses > 0 && bound <= record.epsilon_low) continue;
    record.epsilon_low = bound;
    best.guesses = 2 * guessed;
    best.correct = correct;
  }
  record.one_run = best;
  conclude(record);
  return record;
}

}  // namespace veil
