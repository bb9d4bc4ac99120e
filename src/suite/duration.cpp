#include "suite/duration.h"

#include "models/language_model.h"
#include "plan/auto_plan.h"
#include "plan/roofline.h"

namespace veil {
namespace {

constexpr double kStartSeconds = 1.5;        // libraries, records, traces
constexpr double kFillBytesPerSecond = 2e9;  // parameters are made by a counter-based generator

}  // namespace

double estimated_seconds(const ExperimentOptions& options) {
  const bool gpu = options.device == DeviceKind::gpu || (options.device == DeviceKind::automatic && gpu_count() > 0);
  const int world = options.simulate_world.value_or(options.ranks.value_or(1));
  const Model model = make_model(options, model_source(options), world);
  const StepOptions step = step_options(options, world, gpu);
  const ModelShape shape = model.shape(rank_batch(options, world), step.compute, gpu);
  const Roofline roofline = assumed_roofline(gpu, step.compute);
  double step_seconds =
      3.0 * static_cast<double>(shape.model_flops()) * options.accumulation / roofline.flops_per_second;
  if (options.is_private()) {
    const bool by_layer = options.clip == privacy::ClipFunction::per_layer;
    step_seconds += price_plans(shape, step, plan_wish(options.clip_choice, by_layer), roofline).front().extra_ms / 1e3;
  }
  const double fill = static_cast<double>(shape.param_count() * dtype_bytes(step.storage)) / kFillBytesPerSecond;
  return kStartSeconds + fill + static_cast<double>(options.warmup + options.iterations) * step_seconds;
}

}  // namespace veil
