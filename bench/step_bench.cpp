// What a step is made of, on CPU: the fused kernels, planning, and a whole step of the tiny stack.
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>

#include <cstring>

#include "engine/executor.h"
#include "estimate/estimator.h"
#include "kernels/column_sum.h"
#include "kernels/random.h"
#include "kernels/squared_error.h"
#include "models/linear_stack.h"
#include "optim/optimizer.h"

namespace veil {
namespace {

void update(benchmark::State& state, OptimizerKind kind) {
  const int64_t n = state.range(0);
  OptimizerOptions options;
  options.kind = kind;
  const Tensor param = at::randn({n}), grad = at::randn({n}), knobs = at::zeros({8}, at::kDouble);
  const UpdateKnobs values = knobs_for_step(options, 0.01, 1, 1.0);
  std::memcpy(knobs.data_ptr(), &values, sizeof values);
  Tensor kept;
  if (const int states = optimizer_states(kind)) kept = at::zeros({states * n});
  const UpdateRule rule = update_rule(options, 0);
  for (auto _ : state) update_shard(param, grad, kept, knobs, rule, 0);
  state.SetItemsProcessed(state.iterations() * n);
  // Gradient and parameter are read, the parameter is written; state is read and written.
  state.SetBytesProcessed(state.iterations() * n * 4 * (3 + 2 * optimizer_states(kind)));
}
void BM_UpdateSgd(benchmark::State& state) {
  update(state, OptimizerKind::sgd);
}
void BM_UpdateAdamW(benchmark::State& state) {
  update(state, OptimizerKind::adamw);
}
BENCHMARK(BM_UpdateSgd)->Arg(1 << 12)->Arg(1 << 18)->Arg(1 << 24)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_UpdateAdamW)->Arg(1 << 12)->Arg(1 << 18)->Arg(1 << 24)->Unit(benchmark::kMicrosecond);

// Sizes are rows and columns, and samples and width.
void sizes(benchmark::internal::Benchmark* bench) {
  bench->Args({64, 256})->Args({128, 4096})->Args({8192, 1024})->Unit(benchmark::kMicrosecond);
}

void BM_ColumnSum(benchmark::State& state) {
  const Tensor x = at::randn({state.range(0), state.range(1)}), out = at::zeros({state.range(1)});
  for (auto _ : state) column_sum(x, out, /*accumulate=*/true);
  state.SetBytesProcessed(state.iterations() * x.numel() * 4);
}
BENCHMARK(BM_ColumnSum)->Apply(sizes);

void BM_SquaredError(benchmark::State& state) {
  const Tensor output = at::randn({state.range(0), state.range(1)}),
               target = at::randn(output.sizes());
  const Tensor grad = at::empty(output.sizes()), losses = at::zeros({state.range(0)}, at::kDouble);
  for (auto _ : state) squared_error(output, target, grad, losses);
  state.SetBytesProcessed(state.iterations() * output.numel() * 3 * 4);
}
BENCHMARK(BM_SquaredError)->Apply(sizes);

// What `veil plan` does, and each executor once: it must stay far below a step.
void BM_BuildAndEstimate(benchmark::State& state) {
  const Model model = linear_stack(1024, state.range(0));
  StepOptions options;
  options.world = 8;
  options.strategy = Strategy::zero3;
  options.forward_prefetch = 1;
  const ModelShape shape = model.shape(64, options.compute, options.on_gpu);
  for (auto _ : state) benchmark::DoNotOptimize(estimate_memory(build_schedule(shape, options)));
}
BENCHMARK(BM_BuildAndEstimate)->Arg(8)->Arg(128)->Unit(benchmark::kMicrosecond);

// `veil profile --preset tiny` in a world of one; the argument is whether rows are timed.
void BM_TinyStep(benchmark::State& state) {
  const int64_t width = 256, batch = 128;
  const Model model = linear_stack(width, 4);
  Batch data{at::empty({batch, width}), at::empty({batch, width})};
  fill_normal(data.inputs, 1.0, 0, RandomDomain::inputs, 0);
  fill_normal(data.targets, 1.0, 0, RandomDomain::targets, 0);
  ExecutorOptions options;
  options.time_rows = state.range(0) != 0;
  Executor executor(model, batch, options, cpu_device(), data, {});
  executor.prepare();
  for (auto _ : state) executor.step(0.01);
  state.SetItemsProcessed(state.iterations() * batch);
}
BENCHMARK(BM_TinyStep)->ArgName("timed")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace veil
