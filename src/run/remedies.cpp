#include "run/remedies.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "estimate/estimator.h"
#include "models/dit.h"
#include "run/machine.h"
#include "tensor/out_of_memory.h"

namespace veil {
namespace {

constexpr int64_t kLoraRank = 16;
constexpr int64_t kShortestSequence = 8;
constexpr int64_t kMostMicroBatches = 1000000;  // that the option takes

struct StepPrice {
  int64_t bytes = 0;
  double ms = 0;  // per sample
};

StepPrice price_of_step(RunConfig config, int world, bool on_gpu) {
  settle_batch(config, world);
  const Model model = make_model(config, model_source(config), world);
  StepOptions step = step_options(config, world, on_gpu);
  const ModelShape shape = model.shape(config.step.batch_size, step.compute, on_gpu);
  const StepPrices prices = step_prices(config, on_gpu);
  if (config.privacy.is_private())
    step.clip = clip_method(config.privacy.method, shape, step, config.privacy.by_layer(), prices);
  const Schedule schedule = build_schedule(shape, step);
  const double samples = static_cast<double>(config.step.batch_size) * config.step.accumulation;
  return {estimate_memory(schedule).peak(on_gpu ? Space::device : Space::host).total(),
          estimate_time(schedule, shape, prices).ms / samples};
}

class Remedies {
 public:
  Remedies(const RunConfig& config, int world, bool on_gpu, int64_t room)
      : config_(config), world_(world), on_gpu_(on_gpu), room_(room) {
    settle_batch(config_, world_);
    config_.step.total_batch_size.reset();
    config_.privacy.method.memory_budget_gib.reset();
    now_ = price_of_step(config_, world_, on_gpu_);
  }

  std::vector<Remedy> all() {
    const StepConfig& step = config_.step;
    const bool language = model_source(config_).is_language_model();
    smaller_batch();
    if (step.checkpointing != Checkpointing::full)
      add("--checkpointing full", "", true,
          [](RunConfig& c) { c.step.checkpointing = Checkpointing::full; });
    if (config_.privacy.is_private())
      add("--pass-plan two-pass", "", true, [](RunConfig& c) {
        c.privacy.method.pass = privacy::PassKind::two_pass;
        c.privacy.method.combine_every.reset();
      });
    if (step.strategy != Strategy::zero3 && world_ > 1)
      add("--strategy zero3", "", true, [](RunConfig& c) { c.step.strategy = Strategy::zero3; });
    more_ranks();
    if (on_gpu_ && !step.cpu_offload)
      add("--cpu-offload", "", true, [](RunConfig& c) { c.step.cpu_offload = true; });
    if (language) {
      halve("--seq-length", "shorter sequences", config_.model.seq_length, kShortestSequence,
            [](RunConfig& c, int64_t length) { c.model.seq_length = length; });
      if (!config_.model.has_adapters() && config_.model.frozen.empty() &&
          config_.model.train_only.empty())
        add(fmt::format("--lora {}", kLoraRank), "trains adapters instead of all weights", false,
            [](RunConfig& c) { c.model.lora_rank = kLoraRank; });
    } else if (const auto dit = model_source(config_).diffusion) {
      halve("--image-size", "smaller images", dit->image_size, dit->patch,
            [](RunConfig& c, int64_t size) { c.model.diffusion.image_size = size; });
      smaller_preset();
    } else {
      halve("--input-size", "a smaller model", config_.model.input_size, 1,
            [](RunConfig& c, int64_t size) { c.model.input_size = size; });
    }
    std::stable_sort(found_.begin(), found_.end(), [](const Remedy& a, const Remedy& b) {
      return a.same_work != b.same_work ? a.same_work : a.time < b.time;
    });
    return found_;
  }

 private:
  using Change = std::function<void(RunConfig&)>;

  // Nothing where the change is not possible.
  std::optional<Remedy> priced(const std::string& options, const std::string& note, bool same_work,
                               const Change& change, int world = 0) const {
    RunConfig config = config_;
    change(config);
    try {
      const StepPrice price = price_of_step(config, world > 0 ? world : world_, on_gpu_);
      return Remedy{.options = options,
                    .note = note,
                    .bytes = price.bytes,
                    .fits = price.bytes <= room_,
                    .time = now_.ms > 0 ? price.ms / now_.ms : 1,
                    .same_work = same_work};
    } catch (const UserError&) {
      return {};
    }
  }
  void keep(const std::optional<Remedy>& remedy) {
    if (remedy && remedy->bytes < now_.bytes) found_.push_back(*remedy);
  }
  void add(const std::string& options, const std::string& note, bool same_work,
           const Change& change) {
    keep(priced(options, note, same_work, change));
  }

  // Halved until it fits, or cannot be halved.
  void halve(const std::string& option, const std::string& note, int64_t from, int64_t least,
             const std::function<void(RunConfig&, int64_t)>& set) {
    std::optional<Remedy> last;
    for (int64_t value = from / 2; value >= least; value /= 2) {
      const auto next = priced(fmt::format("{} {}", option, value), note, false,
                               [&](RunConfig& c) { set(c, value); });
      if (!next) break;
      last = next;
      if (last->fits) break;
    }
    keep(last);
  }

  void smaller_batch() {
    const int64_t batch = config_.step.batch_size;
    halve("--batch-size", "a smaller logical batch", batch, 1,
          [](RunConfig& c, int64_t value) { c.step.batch_size = value; });
    // The same logical batch needs a divisor: halves while they are whole, and 1.
    std::vector<int64_t> divisors;
    for (int64_t value = batch; value % 2 == 0; value /= 2) divisors.push_back(value / 2);
    if (batch > 1 && (divisors.empty() || divisors.back() > 1)) divisors.push_back(1);
    std::optional<Remedy> last;
    for (const int64_t value : divisors) {
      const int64_t parts = batch / value * config_.step.accumulation;
      if (parts > kMostMicroBatches) break;
      last = priced(fmt::format("--batch-size {} --accumulation {}", value, parts),
                    "the same logical batch", true, [&](RunConfig& c) {
                      c.step.batch_size = value;
                      c.step.accumulation = static_cast<int>(parts);
                    });
      if (last && last->fits) break;
    }
    keep(last);
  }

  // On the CPU more ranks share the same memory.
  void more_ranks() {
    const int twice = 2 * world_;
    if (!on_gpu_ || config_.step.strategy == Strategy::ddp) return;
    if (config_.placement.simulate_world) {
      keep(priced(
          fmt::format("--simulate-world {}", twice), "twice as many ranks", true,
          [&](RunConfig& c) { c.placement.simulate_world = twice; }, twice));
    } else if (gpu_count() >= twice) {
      keep(priced(
          fmt::format("--ranks {}", twice), "twice as many GPUs", true,
          [&](RunConfig& c) { c.placement.ranks = twice; }, twice));
    }
  }

  // The largest preset that needs less, and fits if one does.
  void smaller_preset() {
    std::optional<Remedy> best;
    for (const std::string& name : dit_preset_names()) {
      const auto remedy = priced(fmt::format("--model {}", name), "a smaller model", false,
                                 [&](RunConfig& c) { c.model.name = name; });
      if (!remedy || remedy->bytes >= now_.bytes) continue;
      const bool better =
          !best || (remedy->fits == best->fits ? remedy->bytes > best->bytes : remedy->fits);
      if (better) best = remedy;
    }
    keep(best);
  }

  RunConfig config_;
  int world_;
  bool on_gpu_;
  int64_t room_;
  StepPrice now_;
  std::vector<Remedy> found_;
};

}  // namespace

int64_t memory_room(const RunConfig& config, bool on_gpu) {
  if (on_gpu && gpu_count() > 0) return gpus().front().memory_bytes;
  return available_host_bytes() / std::max(1, config.placement.ranks.value_or(1));
}

std::vector<Remedy> priced_remedies(const RunConfig& config, int world, bool on_gpu,
                                    int64_t room_bytes) {
  return Remedies(config, world, on_gpu, room_bytes).all();
}

std::string remedy_text(const Remedy& remedy) {
  return fmt::format("{} ({}, {}, {:.2f} times the time per sample{})", remedy.options,
                     format_bytes(remedy.bytes), remedy.fits ? "fits" : "does not fit", remedy.time,
                     remedy.note.empty() ? "" : ", " + remedy.note);
}

std::vector<std::string> remedy_texts(const std::vector<Remedy>& remedies) {
  std::vector<std::string> list;
  for (const Remedy& remedy : remedies) list.push_back(remedy_text(remedy));
  return list;
}

std::vector<std::string> remedies(const RunConfig& config, int world, bool on_gpu) {
  return remedy_texts(priced_remedies(config, world, on_gpu, memory_room(config, on_gpu)));
}

}  // namespace veil
