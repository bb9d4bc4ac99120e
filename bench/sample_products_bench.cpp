// Products over samples' tokens on a GPU: a library's, and those that clipping has kernels for,
// with the shapes of blocks of Llama-3.1-8B (2 samples), Llama-3.2-1B (16) and DiT-L (32).
#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>

#include <utility>

#include "kernels/sample_norm.h"
#include "kernels/sample_products.h"
#include "tensor/stream.h"

namespace veil {
namespace {

struct Operands {
  Tensor a, g, kept, sum, squared, coefficients;

  explicit Operands(const benchmark::State& state) {
    const int64_t samples = state.range(0), tokens = state.range(1), rows = state.range(2),
                  columns = state.range(3);
    const auto options = at::TensorOptions(at::kBFloat16).device(gpu_device(0));
    const auto normal = [&](int64_t width) {
      return at::randn({samples, tokens, width}, options.dtype(at::kFloat)).to(at::kBFloat16);
    };
    a = normal(columns);
    g = normal(rows);
    kept = at::zeros({samples, rows, columns}, options);
    sum = at::zeros({rows, columns}, options.dtype(at::kFloat));
    squared = at::zeros({1, samples}, options.dtype(at::kDouble));
    coefficients = at::full({samples}, 0.5, options.dtype(at::kDouble));
  }
};

template <typename Work>
void run(benchmark::State& state, const Work& work) {
  if (gpu_count() == 0 || !gpu_has_sample_products()) {
    state.SkipWithError("no GPU of compute capability 9.0");
    return;
  }
  Operands operands(state);
  const auto finish = [] {
    Marker marker = Marker::ordering(gpu_device(0));
    marker.record();
    marker.synchronize();
  };
  work(operands);
  finish();
  constexpr int kTogether = 20;  // a launch costs less than the product that it waits for
  for (auto _ : state) {
    for (int i = 0; i < kTogether; ++i) work(operands);
    finish();
  }
  state.counters["us"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kTogether) / 1e6,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void BM_ProductOfTheLibrary(benchmark::State& state) {
  run(state, [](Operands& o) { at::bmm_out(o.kept, o.g.transpose(1, 2), o.a); });
}
void BM_NormsOfWhatWasKept(benchmark::State& state) {
  run(state, [](Operands& o) { add_sample_norms(o.kept, o.squared[0]); });
}
void BM_KeptProductWithNorms(benchmark::State& state) {
  run(state, [](Operands& o) {
    kept_product(o.a, o.g, o.kept, {{0, o.g.size(2), 0}}, o.squared, 0);
  });
}
void BM_ClippedProduct(benchmark::State& state) {
  run(state, [](Operands& o) { clipped_product(o.a, o.g, o.coefficients, o.sum, false); });
}
void BM_GramNorms(benchmark::State& state) {
  run(state, [](Operands& o) {
    add_gram_norms({{o.a, o.g, {{0, o.g.size(2), 0}}}}, 0x1p-22, o.squared);
  });
}

// Samples, tokens, rows and columns.
void shapes(benchmark::internal::Benchmark* bench) {
  for (const auto& [rows, columns] :
       {std::pair{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}})
    bench->Args({2, 1024, rows, columns});
  for (const auto& [rows, columns] :
       {std::pair{3072, 2048}, {2048, 2048}, {16384, 2048}, {2048, 8192}})
    bench->Args({16, 1024, rows, columns});
  bench->Args({2, 4096, 28672, 4096})->Args({32, 256, 4096, 1024});
  bench->Unit(benchmark::kMicrosecond)->UseRealTime();
}
BENCHMARK(BM_ProductOfTheLibrary)->Apply(shapes);
BENCHMARK(BM_NormsOfWhatWasKept)->Apply(shapes);
BENCHMARK(BM_KeptProductWithNorms)->Apply(shapes);
BENCHMARK(BM_ClippedProduct)->Apply(shapes);
BENCHMARK(BM_GramNorms)->Apply(shapes);

}  // namespace
}  // namespace veil
