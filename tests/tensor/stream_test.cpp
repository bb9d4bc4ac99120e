#include "tensor/stream.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace veil {
namespace {

TEST(Stream, OnCpuThereIsOneQueueAndItHasNoHandle) {
  const Stream created = Stream::create(cpu_device());
  EXPECT_EQ(created.handle(), nullptr);
  StreamGuard guard(created);
  EXPECT_EQ(Stream::current(cpu_device()).handle(), nullptr);
}

TEST(Marker, OnCpuTimesAreTheSteadyClocks) {
  Marker begin = Marker::timed(cpu_device()), end = Marker::timed(cpu_device());
  begin.record();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  end.record();
  EXPECT_GE(end.ms_since(begin), 19.0);
  EXPECT_LT(end.ms_since(begin), 2000.0);
  EXPECT_DOUBLE_EQ(begin.ms_since(end), -end.ms_since(begin));
}

TEST(Marker, CopiesShareTheMoment) {
  Marker begin = Marker::timed(cpu_device()), end = Marker::timed(cpu_device());
  Marker copy = end;
  begin.record();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  copy.record();
  EXPECT_GT(end.ms_since(begin), 0);
}

void roles_cannot_be_mixed(Device device) {
  Marker empty, ordering = Marker::ordering(device), timed = Marker::timed(device);
  EXPECT_TRUE(empty.empty());
  EXPECT_FALSE(ordering.empty());
  EXPECT_THROW(empty.record(), std::logic_error);
  EXPECT_THROW(empty.wait(), std::logic_error);
  ordering.record();
  timed.record();
  EXPECT_NO_THROW(ordering.wait());
  EXPECT_THROW(timed.wait(), std::logic_error);
  EXPECT_THROW(ordering.ms_since(timed), std::logic_error);
  EXPECT_THROW(timed.ms_since(ordering), std::logic_error);
  EXPECT_THROW(timed.ms_since(empty), std::logic_error);
}

TEST(Marker, OneThatOrdersHasNoTimeAndOneThatTimesOrdersNothing) {
  roles_cannot_be_mixed(cpu_device());
}

TEST(Graph, CannotBeCapturedOnCpu) {
  bool ran = false;
  EXPECT_THROW(Graph::capture(cpu_device(), [&] { ran = true; }), std::exception);
  EXPECT_FALSE(ran);
}

class GpuStream : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
    gpu_ = gpu_device(0);
  }
  Tensor full(int64_t n, double value) {
    return at::full({n}, value, at::TensorOptions().device(gpu_).dtype(at::kDouble));
  }
  // Work of some milliseconds on the current stream whose result is known: every entry of the
  // returned matrix is 1.
  Tensor slow_ones() {
    const int64_t n = 4096;
    const Tensor mean =
        at::full({n, n}, 1.0 / n, at::TensorOptions().device(gpu_).dtype(at::kFloat));
    Tensor product = at::full({n, n}, 1.0, mean.options());
    for (int i = 0; i < 4; ++i) product = product.mm(mean);
    return product;
  }
  Device gpu_ = cpu_device();
};

TEST_F(GpuStream, AGuardSetsTheStreamAndSetsTheFormerOneBack) {
  const Stream outer = Stream::current(gpu_), first = Stream::create(gpu_),
               second = Stream::create(gpu_);
  EXPECT_NE(first.handle(), second.handle());
  EXPECT_NE(first.handle(), outer.handle());
  {
    StreamGuard a(first);
    EXPECT_EQ(Stream::current(gpu_).handle(), first.handle());
    {
      StreamGuard b(second);
      EXPECT_EQ(Stream::current(gpu_).handle(), second.handle());
    }
    EXPECT_EQ(Stream::current(gpu_).handle(), first.handle());
  }
  EXPECT_EQ(Stream::current(gpu_).handle(), outer.handle());
}

TEST_F(GpuStream, OneThatOrdersHasNoTimeAndOneThatTimesOrdersNothing) {
  roles_cannot_be_mixed(gpu_);
}

TEST_F(GpuStream, ATimeIsTheDevicesAndNotTheHosts) {
  slow_ones();
  synchronize(gpu_);
  Marker begin = Marker::timed(gpu_), middle = Marker::timed(gpu_), end = Marker::timed(gpu_);
  begin.record();
  slow_ones();
  middle.record();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  end.record();
  EXPECT_GT(middle.ms_since(begin), 0.5);
  EXPECT_GT(end.ms_since(middle), 1.0);  // the device waited for the host
  EXPECT_NEAR(end.ms_since(begin), middle.ms_since(begin) + end.ms_since(middle), 0.01);
}

TEST_F(GpuStream, AnOrderingMarkerMakesOneStreamWaitForAnother) {
  const Stream maker = Stream::create(gpu_), reader = Stream::create(gpu_);
  const Tensor target = at::zeros({4096, 4096}, at::TensorOptions().device(gpu_).dtype(at::kFloat));
  slow_ones();
  synchronize(gpu_);
  for (int repeat = 0; repeat < 3; ++repeat) {
    target.zero_();
    synchronize(gpu_);
    Marker made = Marker::ordering(gpu_);
    Tensor copied;
    {
      StreamGuard guard(maker);
      target.copy_(slow_ones());
      made.record();
    }
    {
      StreamGuard guard(reader);
      made.wait();
      copied = target.clone();
    }
    synchronize(gpu_);
    EXPECT_NEAR(copied.min().item<double>(), 1.0, 1e-3);
  }
}

class GpuGraph : public GpuStream {};

TEST_F(GpuGraph, RunsNothingWhileItIsCapturedAndTheSameNumbersAtEachReplay) {
  StreamGuard guard(Stream::create(gpu_));
  const Tensor x = full(1000, 1), y = full(1000, 0);
  auto work = [&] { y.copy_((x * 2 + 1).relu_().sqrt()); };
  work();
  y.zero_();
  Graph graph = Graph::capture(gpu_, work);
  synchronize(gpu_);
  EXPECT_EQ(y.abs().max().item<double>(), 0.0);
  for (const double value : {1.0, 4.0, -3.0, 0.3}) {
    x.fill_(value);
    y.zero_();
    graph.replay();
    const Tensor replayed = y.clone();
    work();
    EXPECT_TRUE(at::equal(replayed, y)) << value;
  }
}

TEST_F(GpuGraph, TimedMarkersInsideAreRecordedAgainAtEachReplay) {
  StreamGuard guard(Stream::create(gpu_));
  slow_ones();
  Marker begin = Marker::timed(gpu_), end = Marker::timed(gpu_);
  Graph graph = Graph::capture(gpu_, [&] {
    begin.record();
    slow_ones();
    end.record();
  });
  for (int replay = 0; replay < 3; ++replay) {
    Marker before = Marker::timed(gpu_), after = Marker::timed(gpu_);
    before.record();
    graph.replay();
    after.record();
    EXPECT_GT(end.ms_since(begin), 0.5);
    EXPECT_GE(begin.ms_since(before), 0.0) << "recorded in an earlier replay";
    EXPECT_GE(after.ms_since(end), 0.0);
    EXPECT_NEAR(begin.ms_since(before) + end.ms_since(begin) + after.ms_since(end),
                after.ms_since(before), 0.01);
  }
}

TEST_F(GpuGraph, OrderingMarkersInsideBecomeEdgesBetweenStreams) {
  StreamGuard guard(Stream::create(gpu_));
  const Stream side = Stream::create(gpu_);
  const Tensor source = at::zeros({4096, 4096}, at::TensorOptions().device(gpu_).dtype(at::kFloat)),
               target = at::zeros_like(source);
  slow_ones();
  Marker side_began = Marker::timed(gpu_), side_ended = Marker::timed(gpu_),
         main_ended = Marker::timed(gpu_);
  Graph graph = Graph::capture(gpu_, [&] {
    Marker fork = Marker::ordering(gpu_), join = Marker::ordering(gpu_);
    source.copy_(slow_ones());
    fork.record();
    {
      StreamGuard beside(side);
      fork.wait();
      side_began.record();
      target.copy_(source);
      side_ended.record();
      join.record();
    }
    join.wait();
    target.mul_(2);
    main_ended.record();
  });
  for (int replay = 0; replay < 3; ++replay) {
    source.zero_();
    target.zero_();
    graph.replay();
    EXPECT_NEAR(target.min().item<double>(), 2.0, 1e-3);
    EXPECT_NEAR(target.max().item<double>(), 2.0, 1e-3);
    EXPECT_GT(side_ended.ms_since(side_began), 0.0);
    EXPECT_GE(main_ended.ms_since(side_ended), 0.0);
  }
}

TEST_F(GpuGraph, GraphsOfOnePoolHandTensorsToEachOther) {
  StreamGuard guard(Stream::create(gpu_));
  const Tensor x = full(100'000, 0), y = full(100'000, 0);
  Tensor between;
  y.copy_(x * 2 + 1);
  Graph::Pool pool;
  Graph first = Graph::capture(
      gpu_, [&] { between = x * 2; }, &pool);
  Graph second = Graph::capture(
      gpu_,
      [&] {
        y.copy_(between + 1);
        between.reset();
      },
      &pool);
  for (const double value : {3.0, -7.0}) {
    x.fill_(value);
    first.replay();
    second.replay();
    EXPECT_EQ(y.min().item<double>(), 2 * value + 1);
    EXPECT_EQ(y.max().item<double>(), 2 * value + 1);
  }
}

TEST_F(GpuGraph, AFailureInsideIsToldAndTheDeviceGoesOn) {
  StreamGuard guard(Stream::create(gpu_));
  const Tensor x = full(1000, 1);
  x.mul_(1);
  try {
    Graph::capture(gpu_, [&] {
      x.mul_(5);
      throw std::runtime_error("stop here");
    });
    FAIL() << "the failure was swallowed";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "stop here");
  }
  x.mul_(3);
  EXPECT_EQ(x.sum().item<double>(), 3000.0);
  Graph graph = Graph::capture(gpu_, [&] { x.add_(1); });
  graph.replay();
  EXPECT_EQ(x.sum().item<double>(), 4000.0);
}

}  // namespace
}  // namespace veil
