#include "cli/plan_time.h"

#include <algorithm>

#include "base/error.h"
#include "base/quantity.h"
#include "base/shell_word.h"
#include "base/table.h"
#include "base/units.h"
#include "estimate/estimator.h"
#include "run/machine.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

double tokens_of_step(const ModelShape& shape, const StepOptions& step) {
  int64_t tokens = 1;
  for (const BlockShape& block : shape.blocks) {
    for (const Report& report : block.reports) tokens = std::max(tokens, report.tokens);
  }
  return static_cast<double>(tokens * shape.batch * step.micro_batches * step.world);
}

std::string predicted_text(const TimeEstimate& time) {
  return fmt::format("{} ({} to {})", format_ms(time.ms), format_ms(time.low_ms),
                     format_ms(time.high_ms));
}

// "3.2 h on 8 GPUs, 210 USD"; "" if no number of steps is known.
std::string run_text(const TimeWish& wish, int world, const TimeEstimate& time) {
  if (!wish.steps) return "";
  const double hours = time.ms / 3.6e6 * static_cast<double>(*wish.steps);
  std::string text = fmt::format(
      "{} steps: {} on {}", *wish.steps,
      hours >= 1 ? fmt::format("{:.3g} h", hours) : fmt::format("{:.3g} min", hours * 60),
      quantity(world, "GPU"));
  if (wish.price) text += fmt::format(", {:.4g} USD", hours * world * *wish.price);
  return text;
}

// One way to run the logical batch.
struct Way {
  Strategy strategy;
  Checkpointing checkpointing;
  bool deferred;  // the update, to the next step
  std::optional<privacy::PassKind> pass;
  int combine_every;
  int64_t batch;
  int micro_batches;
  int64_t peak_bytes;
  double tokens;
  TimeEstimate time;
};

std::vector<int64_t> micro_batches_of(int64_t samples) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= samples && size <= 4096; ++size) {
    const bool power = (size & (size - 1)) == 0;
    if (samples % size == 0 && (power || size == samples)) sizes.push_back(size);
  }
  return sizes;
}

std::vector<Way> ways(const TimeWish& time_wish, const RunConfig& asked, const StepPrices& prices,
                      int world, bool on_gpu, int64_t room, int& too_large) {
  std::vector<Way> found;
  const int64_t total =
      asked.step.total_batch_size.value_or(asked.step.batch_size * asked.step.accumulation * world);
  if (total % world != 0)
    field_error("total_batch_size", "{}: {} do not share it evenly", total, quantity(world, "GPU"));
  std::vector<Strategy> strategies = {Strategy::zero3, Strategy::zero2, Strategy::ddp};
  if (world == 1) strategies = {asked.step.strategy};
  const Model model = make_model(asked, model_source(asked), world);
  for (const int64_t batch : micro_batches_of(total / world)) {
    for (const Strategy strategy : strategies) {
      for (const Checkpointing checkpointing :
           {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
        RunConfig config = asked;
        config.step.strategy = strategy;
        config.step.checkpointing = checkpointing;
        config.step.batch_size = batch;
        config.step.total_batch_size = total;
        settle_batch(config, world);
        StepOptions step = planned_step(time_wish, config, world, on_gpu);
        const ModelShape shape = model.shape(batch, step.compute, on_gpu);
        const auto add = [&](const TimeEstimate& time, int64_t peak) {
          if (peak > room) {
            ++too_large;
            return;
          }
          found.push_back({strategy, checkpointing, step.defer_update,
                           step.clip ? std::optional(step.clip->pass) : std::nullopt,
                           step.clip ? step.clip->combine_every : 1, batch, step.micro_batches,
                           peak, tokens_of_step(shape, step), time});
        };
        const auto consider = [&] {
          const Schedule schedule = build_schedule(shape, step);
          if (schedule.defers_update == step.defer_update)
            add(estimate_time(schedule, shape, prices),
                estimate_memory(schedule).peak(on_gpu ? Space::device : Space::host).total());
        };
        const auto consider_deferred = [&] {
          if (world == 1) return;
          step.defer_update = true;
          step.accumulate_in = AccumulateIn::whole;
          consider();
        };
        step.defer_update = false;
        if (!config.privacy.is_private()) {
          consider();
          consider_deferred();
          continue;
        }
        MethodWish wish = method_wish(config.privacy.method, config.privacy.by_layer());
        wish.budget_bytes = room;
        for (const MethodPrice& price : price_methods(shape, step, wish, prices)) {
          step.clip = price.method;
          step.defer_update = false;
          step.accumulate_in = config.step.accumulate_in;
          add(price.time, price.peak_bytes);
          consider_deferred();
        }
      }
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Way& a, const Way& b) { return a.time.ms < b.time.ms; });
  return found;
}

std::string command_of(const RunConfig& config, const Way& best, int world,
                       std::optional<int64_t> steps) {
  std::vector<std::string> words = {"veil train --model", shell_word(config.model.name)};
  auto add = [&](const std::string& option, const std::string& value) {
    words.push_back("--" + option);
    words.push_back(value);
  };
  if (model_source(config).config) add("seq-length", std::to_string(config.model.seq_length));
  if (config.model.lora_rank) add("lora", std::to_string(*config.model.lora_rank));
  add("total-batch-size", std::to_string(best.batch * best.micro_batches * world));
  add("batch-size", std::to_string(best.batch));
  add("compute", name_of(config.step.compute));
  add("storage", name_of(config.step.storage));
  add("optimizer", name_of(config.optimizer.kind));
  if (world > 1) {
    add("strategy", name_of(best.strategy));
    add("ranks", std::to_string(world));
  }
  if (best.checkpointing != Checkpointing::none) add("checkpointing", name_of(best.checkpointing));
  if (best.deferred) words.push_back("--defer-update --accumulate whole");
  if (best.pass) {
    add("pass-plan", name_of(*best.pass));
    if (best.combine_every > 1) add("combine-every", std::to_string(best.combine_every));
    words.push_back("--epsilon EPSILON --delta DELTA");
  }
  if (steps) add("steps", std::to_string(*steps));
  words.push_back("--data DATA");
  return join(words, " ");
}

}  // namespace

void add_time_options(Options& options, TimeWish& wish) {
  options.add("time", wish.time,
              {.help = "print the predicted milliseconds of a step, what bounds it, and how far "
                       "the prediction may be off"});
  options.add("gpu", wish.gpu,
              {.help = "the GPU to predict for; by default this machine's, or an H200"});
  options.add("gpus", wish.gpus,
              {.help = "rank the ways to run the logical batch on so many GPUs: strategy, "
                       "checkpointing, clip plan, micro-batch and deferred updates; --link is "
                       "their GB/s",
               .minimum = 1,
               .maximum = 65536});
  options.add("steps", wish.steps,
              {.help = "also the time of a run of so many steps", .minimum = 1});
  options.add("price", wish.price,
              {.help = "with --steps: also what it costs, in USD per GPU and hour",
               .minimum = 0,
               .value = "USD"});
}

StepOptions planned_step(const TimeWish& wish, const RunConfig& config, int world, bool on_gpu) {
  StepOptions step = step_options(config, world, on_gpu);
  if (wish.gpu) step.sample_products = on_gpu && *wish.gpu != KnownGpu::a100;
  return step;
}

StepPrices planned_prices(const TimeWish& wish, const RunConfig& config, const StepOptions& step) {
  StepPrices prices = step_prices(config, step.on_gpu);
  if (wish.gpu) prices.machine = known_prices(*wish.gpu, step.compute);
  return prices;
}

void print_time(const TimeWish& wish, const RunConfig& config, const Schedule& schedule,
                const ModelShape& shape) {
  const StepPrices prices = planned_prices(wish, config, schedule.options);
  const TimeEstimate time = estimate_time(schedule, shape, prices);
  fmt::print("time     {} per step, {} tokens/s; bound by {}\n", predicted_text(time),
             format_count(tokens_of_step(shape, schedule.options) / time.ms * 1e3), time.bound());
  fmt::print("         computing {}, memory {}, launches {}{}{}\n", format_ms(time.compute_ms),
             format_ms(time.memory_ms), format_ms(time.launches_ms),
             schedule.options.world > 1
                 ? fmt::format(", waiting for the network {} at {:g} GB/s",
                               format_ms(time.network_ms), config.placement.link_gb_per_s)
                 : "",
             time.copies_ms > 0 ? ", waiting for copies " + format_ms(time.copies_ms) : "");
  fmt::print("         priced by {}: {}\n", prices.machine.machine, prices.machine.source);
  if (wish.steps) fmt::print("run      {}\n", run_text(wish, schedule.options.world, time));
}

Json time_json(const TimeWish& wish, const RunConfig& config, const Schedule& schedule,
               const ModelShape& shape) {
  const StepPrices prices = planned_prices(wish, config, schedule.options);
  const TimeEstimate time = estimate_time(schedule, shape, prices);
  return {{"ms", time.ms},
          {"low_ms", time.low_ms},
          {"high_ms", time.high_ms},
          {"compute_ms", time.compute_ms},
          {"memory_ms", time.memory_ms},
          {"launches_ms", time.launches_ms},
          {"network_ms", time.network_ms},
          {"copies_ms", time.copies_ms},
          {"bound", time.bound()},
          {"machine", prices.machine.machine},
          {"source", prices.machine.source}};
}

void print_ranking(const TimeWish& wish, const RunConfig& config, bool on_gpu, bool json) {
  const int world = *wish.gpus;
  const StepOptions step = planned_step(wish, config, world, on_gpu);
  const StepPrices prices = planned_prices(wish, config, step);
  double gib = memory_gib(wish.gpu.value_or(KnownGpu::h200));
  if (!wish.gpu && on_gpu && gpu_count() > 0) gib = to_gib(gpus()[0].memory_bytes);
  if (!on_gpu) gib = to_gib(this_machine().memory_bytes);
  if (config.privacy.method.memory_budget_gib)
    gib = std::min(gib, *config.privacy.method.memory_budget_gib);
  int too_large = 0;
  const std::vector<Way> found =
      ways(wish, config, prices, world, on_gpu, static_cast<int64_t>(gib * kGiB), too_large);
  if (found.empty())
    user_error(
        "none of {} fits in {:.1f} GiB per GPU: more GPUs, a smaller `seq_length`, or "
        "`cpu_offload`",
        quantity(too_large, "way"), gib);
  if (json) {
    Json list = Json::array();
    for (const Way& way : found)
      list.push_back({{"strategy", name_of(way.strategy)},
                      {"checkpointing", name_of(way.checkpointing)},
                      {"defer_update", way.deferred},
                      {"pass_plan", way.pass ? Json(name_of(*way.pass)) : Json()},
                      {"combine_every", way.combine_every},
                      {"batch_size", way.batch},
                      {"accumulation", way.micro_batches},
                      {"peak_bytes", way.peak_bytes},
                      {"ms", way.time.ms},
                      {"low_ms", way.time.low_ms},
                      {"high_ms", way.time.high_ms},
                      {"bound", way.time.bound()},
                      {"command", command_of(config, way, world, wish.steps)}});
    fmt::print("{}\n", list.dump(1));
    return;
  }
  constexpr size_t kShown = 8;
  Table table({"", "strategy", "checkpointing", "clip plan", "micro-batch", "update", "step",
               "peak memory", "tokens/s", "bound by"});
  for (size_t i = 0; i < std::min(kShown, found.size()); ++i) {
    const Way& way = found[i];
    table.row({std::to_string(i + 1), name_of(way.strategy), name_of(way.checkpointing),
               way.pass ? privacy::plan_name(*way.pass, way.combine_every) : "-",
               fmt::format("{} x {}", way.micro_batches, way.batch),
               way.deferred ? "deferred" : "at once", predicted_text(way.time),
               format_bytes(way.peak_bytes), format_count(way.tokens / way.time.ms * 1e3),
               way.time.bound()});
  }
  fmt::print("{}{} fit in {:.1f} GiB per GPU, {} do not; priced by {}: {}\n", table.text(),
             quantity(static_cast<int64_t>(found.size()), "way"), gib, too_large,
             prices.machine.machine, prices.machine.source);
  const Way& best = found.front();
  if (wish.steps) fmt::print("run      {}\n", run_text(wish, world, best.time));
  fmt::print("best     {}\n", command_of(config, best, world, wish.steps));
}

}  // namespace veil
