#include "profile/memory.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "tensor/stream.h"

namespace veil {

namespace {

Tensor bytes_tensor(int64_t bytes, Device device = cpu_device(), bool pinned = false) {
  return empty_tensor({bytes}, at::kByte, device, pinned);
}

// What the calling test added since it began; other tests' statics and LibTorch's own stay out.
class Since {
 public:
  explicit Since(Space space) : space_(space), start_(memory::current(space)) {}
  int64_t operator[](Category category) const {
    return memory::current(space_)[category] - start_[category];
  }
  int64_t total() const { return memory::current(space_).total() - start_.total(); }

 private:
  Space space_;
  CategoryBytes start_;
};

}  // namespace

class Ledger : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install(); }
};

TEST_F(Ledger, AllocationsGoToTheInnermostCategoryAndToTemporaryOutsideAnyScope) {
  const Since since(Space::host);
  const Tensor loose = bytes_tensor(7);
  Tensor outer, inner, again;
  {
    const CategoryScope parameters(Category::parameters);
    outer = bytes_tensor(1000);
    {
      const CategoryScope gradients(Category::gradients);
      inner = bytes_tensor(300);
    }
    again = bytes_tensor(20);
  }
  EXPECT_EQ(since[Category::temporary], 7);
  EXPECT_EQ(since[Category::parameters], 1020);
  EXPECT_EQ(since[Category::gradients], 300);
  inner.reset();
  EXPECT_EQ(since[Category::gradients], 0);
  EXPECT_EQ(since.total(), 1027);
  memory::check(Space::host, "test");
}

TEST_F(Ledger, ViewsAndEmptyTensorsCostNothingAndTheLastHolderFrees) {
  const Since since(Space::host);
  Tensor whole = bytes_tensor(4096);
  const Tensor none = bytes_tensor(0);
  Tensor view = whole.slice(0, 10, 20);
  EXPECT_EQ(since.total(), 4096);
  whole.reset();
  EXPECT_EQ(since.total(), 4096);
  view.reset();
  EXPECT_EQ(since.total(), 0);
}

TEST_F(Ledger, RetagMovesAStorageThroughAnyOfItsViews) {
  const Since since(Space::host);
  const Tensor whole = bytes_tensor(512);
  memory::retag(whole.slice(0, 100, 200), Category::clip_records);
  EXPECT_EQ(since[Category::temporary], 0);
  EXPECT_EQ(since[Category::clip_records], 512);
  memory::retag(Tensor(), Category::norms);
  memory::retag(bytes_tensor(0), Category::norms);
  EXPECT_EQ(since[Category::norms], 0);
  memory::check(Space::host, "test");
}

TEST_F(Ledger, ACategoryBelongsToItsThreadAndAFreeElsewhereFindsItsEntry) {
  const Since since(Space::host);
  const CategoryScope data(Category::data);
  Tensor made;
  std::thread([&] {
    const CategoryScope communication(Category::communication);
    made = bytes_tensor(64);
  }).join();
  EXPECT_EQ(since[Category::communication], 64);
  EXPECT_EQ(since[Category::data], 0);
  std::thread([taken = std::move(made)]() mutable { taken.reset(); }).join();
  EXPECT_EQ(since.total(), 0);
  memory::check(Space::host, "test");
}

TEST_F(Ledger, RawUsersAndClonesOfTheAllocatorAreBookedToo) {
  const Since since(Space::host);
  c10::Allocator* allocator = c10::GetCPUAllocator();
  void* raw = allocator->raw_allocate(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(raw) % 64, 0u);
  {
    const c10::DataPtr clone = allocator->clone(raw, 100);
    EXPECT_EQ(since.total(), 200);
  }
  EXPECT_EQ(since.total(), 100);
  allocator->raw_deallocate(raw);
  allocator->raw_deallocate(allocator->raw_allocate(0));
  EXPECT_EQ(since.total(), 0);
}

TEST_F(Ledger, AResizedStorageIsBookedAtItsNewSize) {
  const Since since(Space::host);
  Tensor tensor = bytes_tensor(10);
  tensor.resize_({1000});
  EXPECT_EQ(since.total(), 1000);
  memory::check(Space::host, "test");
}

TEST_F(Ledger, MemoryFromBeforeOrBesideTheLedgerIsIgnored) {
  const Since since(Space::host);
  Tensor foreign = at::Tensor(c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), 128,
                   c10::GetDefaultCPUAllocator()->allocate(128), nullptr, false),
      c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>()));
  memory::retag(foreign, Category::norms);
  EXPECT_EQ(since.total(), 0);
  foreign.reset();
  EXPECT_EQ(since.total(), 0);
}

TEST_F(Ledger, ThePeakIsTakenAtItsMomentAndPeaksOfEachNeedNotShareOne) {
  memory::reset_peak(Space::host);
  const CategoryBytes start = memory::peak(Space::host);
  EXPECT_EQ(start, memory::current(Space::host));
  {
    const CategoryScope scope(Category::activations);
    const Tensor activations = bytes_tensor(1000);
  }
  {
    const CategoryScope scope(Category::gradients);
    const Tensor gradients = bytes_tensor(1500);
  }
  const CategoryBytes peak = memory::peak(Space::host), each = memory::peak_of_each(Space::host);
  EXPECT_EQ(peak.total() - start.total(), 1500);
  EXPECT_EQ(peak[Category::gradients] - start[Category::gradients], 1500);
  EXPECT_EQ(peak[Category::activations], start[Category::activations]);
  EXPECT_EQ(each[Category::activations] - start[Category::activations], 1000);
  memory::reset_peak(Space::host);
  EXPECT_EQ(memory::peak(Space::host), start);
}

TEST_F(Ledger, WindowsHaveStartsOfTheirOwn) {
  const CategoryBytes before = memory::current(Space::host);
  const int64_t run_before = memory::peak(Space::host, memory::Window::run).total();
  { const Tensor big = bytes_tensor(run_before + 1000000); }
  memory::reset_peak(Space::host, memory::Window::measured);
  memory::take_row(Space::host);
  const Tensor kept = bytes_tensor(50);
  { const Tensor gone = bytes_tensor(30); }
  const memory::RowBytes row = memory::take_row(Space::host);
  EXPECT_EQ(row.after.total() - before.total(), 50);
  EXPECT_EQ(row.peak.total() - before.total(), 80);
  EXPECT_EQ(memory::take_row(Space::host).peak, row.after)
      << "the next row starts where the last one ended";
  EXPECT_EQ(memory::peak(Space::host, memory::Window::measured).total() - before.total(), 80);
  EXPECT_GE(memory::peak(Space::host, memory::Window::run).total(), run_before + 1000000);
}

TEST_F(Ledger, ANotedPeakCountsOnlyIfItIsHigher) {
  memory::reset_peak(Space::pinned);
  CategoryBytes noted = memory::current(Space::pinned);
  noted[Category::activations] += 4096;
  memory::note_peak(Space::pinned, noted);
  EXPECT_EQ(memory::peak(Space::pinned), noted);
  memory::note_peak(Space::pinned, memory::current(Space::pinned));
  EXPECT_EQ(memory::peak(Space::pinned), noted);
  EXPECT_EQ(memory::peak_of_each(Space::pinned)[Category::activations],
            noted[Category::activations]);
  memory::reset_peak(Space::pinned);
}

TEST_F(Ledger, TheSumIsTheAllocatorsCountAtEveryMomentOfARandomHistory) {
  std::mt19937 random(3);
  const Since since(Space::host);
  CategoryBytes expected{};
  std::vector<std::pair<Tensor, Category>> live;
  for (int step = 0; step < 3000; ++step) {
    const auto category = static_cast<Category>(random() % kCategories);
    const unsigned what = random() % 5;
    if (what < 2 || live.empty()) {
      const CategoryScope scope(category);
      live.emplace_back(bytes_tensor(static_cast<int64_t>(random() % 5000)), category);
      expected[category] += static_cast<int64_t>(live.back().first.nbytes());
    } else {
      std::swap(live[random() % live.size()], live.back());
      auto& [tensor, old] = live.back();
      expected[old] -= static_cast<int64_t>(tensor.nbytes());
      if (what == 2) {
        memory::retag(tensor, category);
        expected[category] += static_cast<int64_t>(tensor.nbytes());
        old = category;
      } else {
        live.pop_back();
      }
    }
    ASSERT_EQ(since.total(), expected.total());
    for (int i = 0; i < kCategories; ++i) {
      ASSERT_EQ(since[static_cast<Category>(i)], expected[static_cast<Category>(i)])
          << category_name(static_cast<Category>(i));
    }
    ASSERT_EQ(memory::current(Space::host).total(), memory::allocator_bytes(Space::host));
    memory::check(Space::host, "random history");
  }
  live.clear();
  EXPECT_EQ(since.total(), 0);
}

TEST_F(Ledger, TheCheckHoldsWhileOtherThreadsAllocateAndHandTensorsOver) {
  const Since since(Space::host);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      const CategoryScope scope(static_cast<Category>(t));
      std::vector<Tensor> live(16);
      while (!done) live[random() % 16] = at::mm(at::ones({8, 8}), at::ones({8, 8}));
    });
  }
  for (int i = 0; i < 500; ++i) memory::check(Space::host, "under load");
  done = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(since.total(), 0);
  memory::check(Space::host, "after");
}

TEST_F(Ledger, ADisagreementNamesSpaceFiguresAndPlace) {
  // Memory of the default allocator, taken beside the ledger, is in LibTorch's count and in no
  // book.
  const c10::DataPtr unbooked = c10::GetDefaultCPUAllocator()->allocate(640);
  try {
    memory::check(Space::host, "row 12");
    FAIL() << "no exception";
  } catch (const std::logic_error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("host memory, row 12"), std::string::npos) << text;
    EXPECT_NE(text.find("(-640)"), std::string::npos) << text;
  }
}

TEST_F(Ledger, ARowIsCheapToTake) {
  constexpr int kTimes = 10000;
  const double start = steady_ms();
  for (int i = 0; i < kTimes; ++i) memory::take_row(Space::host);
  const double row_us = (steady_ms() - start) * 1000 / kTimes;
  RecordProperty("row_ns", static_cast<int>(row_us * 1000));
  EXPECT_LT(row_us, 20)
      << "microseconds a row; far above what it should be even on a loaded machine";
}

TEST_F(Ledger, FiguresOnCpuAreTheLedgersOwn) {
  const Tensor held = bytes_tensor(1 << 20);
  const memory::AllocatorFigures figures = memory::allocator_figures(cpu_device());
  EXPECT_EQ(figures.allocated_bytes, memory::current(Space::host).total());
  EXPECT_EQ(figures.reserved_bytes, figures.allocated_bytes);
  EXPECT_GE(figures.max_allocated_bytes, figures.allocated_bytes);
  EXPECT_GT(memory::outside_allocator_bytes(cpu_device()), 0) << "LibTorch's code alone takes more";
}

class GpuLedger : public Ledger {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
    device_ = gpu_device(0);
  }
  Device device_ = cpu_device();
};

TEST_F(GpuLedger, TheSumIsTheAllocatorsCountAtEveryMomentOfARandomHistory) {
  std::mt19937 random(5);
  const Since since(Space::device);
  std::vector<Tensor> live;
  for (int step = 0; step < 2000; ++step) {
    const auto category = static_cast<Category>(random() % kCategories);
    const CategoryScope scope(category);
    if (random() % 2 || live.empty()) {
      const int64_t bytes = static_cast<int64_t>(random() % (random() % 2 ? 3000 : 3000000));
      const int64_t before = since[category];
      live.push_back(bytes_tensor(bytes, device_));
      ASSERT_EQ(since[category] - before, bytes);
    } else {
      std::swap(live[random() % live.size()], live.back());
      if (random() % 3 == 0) {
        memory::retag(live.back(), category);
      } else {
        live.pop_back();
      }
    }
    memory::check(Space::device, "random history");
    ASSERT_EQ(memory::current(Space::device).total(), memory::allocator_bytes(Space::device));
  }
  live.clear();
  EXPECT_EQ(since.total(), 0);
}

TEST_F(GpuLedger, AFreeOnAnotherThreadOfABlockUsedOnASideStreamFindsItsEntry) {
  const Since since(Space::device);
  Tensor tensor = bytes_tensor(1 << 20, device_);
  const Stream side = Stream::create(device_);
  {
    const StreamGuard guard(side);
    tensor.fill_(1);
  }
  std::thread([taken = std::move(tensor)]() mutable { taken.reset(); }).join();
  synchronize(device_);
  memory::check(Space::device, "after a free elsewhere");
  EXPECT_EQ(since.total(), 0);
}

TEST_F(GpuLedger, MemoryOfACapturedGraphIsBookedWhileCapturingAndLeavesItsPeak) {
  const StreamGuard guard(Stream::create(device_));  // the default stream cannot be captured
  Tensor result = bytes_tensor(4096, device_);
  memory::reset_peak(Space::device);
  memory::RowBytes row;
  {
    memory::take_row(Space::device);
    Graph graph = Graph::capture(device_, [&] {
      const CategoryScope scope(Category::activations);
      const Tensor temporary =
          at::ones({1 << 20}, at::TensorOptions().dtype(at::kByte).device(device_));
      result.copy_(temporary.slice(0, 0, 4096));
      memory::check(Space::device, "inside a capture");
    });
    row = memory::take_row(Space::device);
    memory::check(Space::device, "after a capture");
    memory::reset_peak(Space::device);
    graph.replay();
    memory::note_peak(Space::device, row.peak);
    synchronize(device_);
  }
  EXPECT_EQ(memory::peak(Space::device)[Category::activations], row.peak[Category::activations]);
  EXPECT_GE(row.peak[Category::activations], 1 << 20);
  EXPECT_EQ(result.cpu().sum().item<int64_t>(), 4096);
  memory::check(Space::device, "after the graph is gone");
}

TEST_F(GpuLedger, PinnedMemoryHasABookOfItsOwn) {
  const Since pinned(Space::pinned), host(Space::host);
  {
    const CategoryScope scope(Category::optimizer);
    Tensor tensor = bytes_tensor(5000, cpu_device(), /*pinned=*/true);
    ASSERT_TRUE(tensor.is_pinned());
    EXPECT_EQ(pinned[Category::optimizer], 5000);
    EXPECT_EQ(host.total(), 0);
    const Tensor copy = bytes_tensor(5000, device_);
    copy.slice(0, 100, 200).copy_(tensor.slice(0, 100, 200), /*non_blocking=*/true);
    memory::retag(tensor, Category::parameters);
    EXPECT_EQ(pinned[Category::parameters], 5000);
    memory::check(Space::pinned, "live");
  }
  synchronize(device_);
  EXPECT_EQ(pinned.total(), 0);
  memory::check(Space::pinned, "after");
}

TEST_F(GpuLedger, FiguresAndOutsideBytesAreSensible) {
  const Tensor held = bytes_tensor(1000, device_);
  const memory::AllocatorFigures figures = memory::allocator_figures(device_);
  EXPECT_GE(figures.allocated_bytes, memory::current(Space::device).total());
  EXPECT_GE(figures.reserved_bytes, figures.allocated_bytes);
  EXPECT_GT(memory::outside_allocator_bytes(device_), 0) << "a CUDA context takes memory";
}

}  // namespace veil
