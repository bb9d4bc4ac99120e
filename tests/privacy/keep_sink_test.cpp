// Norms of kept gradients: found once, whether a kernel finds them on the way or not.
#include "privacy/keep_sink.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "kernels/sample_products.h"

namespace veil::privacy {
namespace {

struct NoSink final : GradSink {
  void linear(ReportOf, const Tensor&, const Tensor&) override {}
  void embedding(ParamId, const Tensor&, const Tensor&) override {}
  void direct(ParamId, const Tensor&) override {}
};

// Two weights that are joined, one that is tied to a table, two whose rows come in two reports, of
// which no kernel takes the second, and one whose rows and samples come in four that it takes; then
// two joined biases, one that is reported twice, one that is too long for its kernel and one that is
// reported in part.
class KeepSinkNorms {
 public:
  static constexpr int64_t kSamples = 3, kTokens = 64, kColumns = 64;
  static constexpr int64_t kRows[] = {64, 80, 128, 96, 80, 128, 2, 1, 1, 300, 2};
  static constexpr int kParams = 11;

  explicit KeepSinkNorms(Device device)
      : options_(at::TensorOptions(at::kBFloat16).device(device)),
        squared_(at::zeros({kParams, kSamples}, options_.dtype(at::kDouble))) {
    std::vector<int64_t> numel;
    int64_t end = 0;
    for (const int64_t rows : kRows) {
      first_.push_back(end);
      numel.push_back(rows * kColumns);
      end += rows * kColumns;
    }
    kept_ = at::zeros({kSamples, end}, options_);
    sink_ = std::make_unique<KeepSink>(
        numel, std::vector<bool>(kParams, false),
        [this](ParamId id, int64_t from, int64_t count) {
          return kept_.narrow(1, first_[static_cast<size_t>(id)] + from, count);
        },
        none_, squared_);
  }
  Tensor normal(int64_t width) const {
    return at::randn({kSamples, kTokens, width}, options_.dtype(at::kFloat)).to(at::kBFloat16);
  }
  // `cancels`: the table's embedding takes away nearly all of what its head gave.
  void body(bool cancels = false) {
    squared_.zero_();
    sink_->begin_body();
    const Tensor a = normal(kColumns);
    sink_->linear({0}, a, normal(kRows[0] + kRows[1]));
    Tensor g_head = normal(kRows[2]), g_table = normal(kColumns);
    if (cancels) g_head.narrow(2, 1, kRows[2] - 1).zero_();
    sink_->linear({2}, a, g_head);
    if (cancels) {
      g_table.zero_();
      g_table.select(1, 0).copy_(kept_.narrow(1, first_[2], kColumns) * (0x1p-6 - 1));
    }
    const Tensor ids = at::zeros({kSamples, kTokens}, options_.dtype(at::kLong));
    sink_->embedding(2, ids, g_table);
    sink_->linear({3, 0}, a, normal(64));
    sink_->linear({3, 64}, a, normal(32));
    sink_->linear({4, 0}, a, normal(64));
    sink_->linear({4, 64}, a, normal(16));
    const Tensor g = normal(kRows[5]);
    for (const int64_t row : {0, 64}) {
      for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 2}, {2, 1}})
        sink_->linear({5, row, first}, a.narrow(0, first, count),
                      g.narrow(0, first, count).narrow(2, row, 64).contiguous());
    }
    const auto sums = [&](int64_t rows) {
      return at::randn({kSamples, rows * kColumns}, options_.dtype(at::kFloat));
    };
    sink_->direct(6, sums(kRows[6] + kRows[7]));
    sink_->direct(8, sums(kRows[8]));
    sink_->direct(8, sums(kRows[8]));
    sink_->direct(9, sums(kRows[9]));
    sink_->direct(10, sums(1));
  }
  // Of a parameter that the sink leaves to others: those of what is kept.
  double difference(ParamId id) const {
    const Tensor kept = kept_.narrow(1, first_[static_cast<size_t>(id)], kRows[id] * kColumns);
    const Tensor expected = kept.to(at::kDouble).square().sum(1);
    const Tensor got = sink_->normed(id) ? squared_[id] : expected + squared_[id];
    return ((got - expected).abs() / expected).max().item<double>();
  }
  bool normed(ParamId id) const { return sink_->normed(id); }

 private:
  at::TensorOptions options_;
  Tensor squared_, kept_;
  std::vector<int64_t> first_;
  NoSink none_;
  std::unique_ptr<KeepSink> sink_;
};

// Short biases' are found by what copies them, on every device.
bool copied(ParamId id) {
  return id == 6 || id == 7;
}

TEST(KeepSink, WithoutAKernelForItNormsAreFoundAfterwards) {
  KeepSinkNorms norms(cpu_device());
  for (int body = 0; body < 2; ++body) {
    norms.body();
    for (ParamId id = 0; id < KeepSinkNorms::kParams; ++id) {
      EXPECT_EQ(norms.normed(id), copied(id)) << id;
      EXPECT_LE(norms.difference(id), copied(id) ? 0x1p-50 : 0) << id;
    }
  }
}

TEST(GpuKeepSink, NormsAreFoundOnTheWayThoseOfATiedTableToo) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  if (!gpu_has_sample_products()) GTEST_SKIP() << "not of compute capability 9.0";
  KeepSinkNorms norms(gpu_device(0));
  for (int body = 0; body < 3; ++body) {
    norms.body(/*cancels=*/body == 2);
    for (ParamId id = 0; id < KeepSinkNorms::kParams; ++id) {
      const bool by_products = id <= 2 || id == 5;  // reports of 64 rows and more
      EXPECT_EQ(norms.normed(id), by_products || copied(id)) << id;
      EXPECT_LE(norms.difference(id), 8 * 0x1p-24) << id;
    }
  }
}

}  // namespace
}  // namespace veil::privacy
