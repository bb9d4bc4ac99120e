// The milliseconds of `veil plan`: one step, a whole run with its price, and the ranking of the
// ways to run it on several GPUs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "cli/options.h"
#include "estimate/machine_prices.h"
#include "estimate/time_estimate.h"
#include "run/config.h"

namespace veil {

struct TimeWish {
  bool time = false;
  std::optional<KnownGpu> gpu;  // to rent; none: this machine's, or an H200
  std::optional<int> gpus;      // rank the ways to run on so many
  std::optional<int64_t> steps;
  std::optional<double> price;  // USD per GPU and hour

  bool wanted() const { return time || gpus || steps || price; }
};
void add_time_options(Options& options, TimeWish& wish);

// The step on the GPU that the wish names, or on this machine.
StepOptions planned_step(const TimeWish& wish, const RunConfig& config, int world, bool on_gpu);
// What the step is priced by: the GPU that the wish names, or this machine.
StepPrices planned_prices(const TimeWish& wish, const RunConfig& config, const StepOptions& step);

void print_time(const TimeWish& wish, const RunConfig& config, const Schedule& schedule,
                const ModelShape& shape);
nlohmann::ordered_json time_json(const TimeWish& wish, const RunConfig& config,
                                 const Schedule& schedule, const ModelShape& shape);

// Every strategy, checkpointing, clip plan and micro-batch that makes the logical batch and fits in
// memory, by predicted time: the first few and the best one as a command, or all of them as JSON.
// UserError if none fits.
void print_ranking(const TimeWish& wish, const RunConfig& config, bool on_gpu, bool json);

}  // namespace veil
