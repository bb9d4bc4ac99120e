#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/llvmMathExtras.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "profile/memory_book.h"

namespace veil::memory::backend {

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

// Bytes that were allocated before install and are not freed yet; they are in the allocator's count
// and in no book.
std::atomic<int64_t> device_baseline{0};

int64_t requested_on_all_gpus() {
  int64_t bytes = 0;
  for (int i = 0; i < gpu_count(); ++i) {
    bytes += caching::getDeviceStats(static_cast<c10::DeviceIndex>(i))
                 .requested_bytes[kAggregate]
                 .current;
  }
  return bytes;
}

// Runs under the caching allocator's lock (see Book's lock order). Sizes are requested sizes. A
// free counts when it completes, because that is when the allocator takes it out of
// requested_bytes; blocks of graph pools come by here like all others.
void on_trace(const caching::TraceEntry& entry) {
  const void* key = reinterpret_cast<const void*>(entry.addr_);
  if (entry.action_ == caching::TraceEntry::ALLOC) {
    book(Space::device).allocated(key, static_cast<int64_t>(entry.size_), current_category());
  } else if (entry.action_ == caching::TraceEntry::FREE_COMPLETED) {
    if (book(Space::device).freed(key) < 0) device_baseline -= static_cast<int64_t>(entry.size_);
  }
}

// Pinned memory. Contexts stay LibTorch's own, because copies name them when they tell the
// allocator which stream still reads a block.
class BookingHostAllocator final : public at::HostAllocator {
 public:
  explicit BookingHostAllocator(at::HostAllocator* wrapped) : wrapped_(wrapped) {}

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr data = wrapped_->allocate(bytes);
    if (!data.get_context()) return data;
    VEIL_CHECK(!wrapped_delete_.load() || wrapped_delete_.load() == data.get_deleter(),
               "LibTorch's host allocator has several deleters");
    wrapped_delete_ = data.get_deleter();
    rounded_ += static_cast<int64_t>(c10::llvm::PowerOf2Ceil(bytes));
    book(Space::pinned)
        .allocated(data.get_context(), static_cast<int64_t>(bytes), current_category());
    const bool swapped =
        data.compare_exchange_deleter(data.get_deleter(), &BookingHostAllocator::release);
    VEIL_CHECK(swapped, "LibTorch's host allocator handed out a foreign deleter");
    return data;
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    wrapped_->copy_data(to, from, bytes);
  }
  bool record_event(void* data, void* context, c10::Stream stream) override {
    return wrapped_->record_event(data, context, stream);
  }
  void empty_cache() override { wrapped_->empty_cache(); }
  at::HostStats get_stats() override { return wrapped_->get_stats(); }
  void reset_accumulated_stats() override { wrapped_->reset_accumulated_stats(); }
  void reset_peak_stats() override { wrapped_->reset_peak_stats(); }
  void begin_allocate_to_pool(c10::MempoolId_t pool,
                              std::function<bool(c10::Stream)> filter) override {
    wrapped_->begin_allocate_to_pool(pool, std::move(filter));
  }
  void end_allocate_to_pool(c10::MempoolId_t pool) override {
    wrapped_->end_allocate_to_pool(pool);
  }
  void release_pool(c10::MempoolId_t pool) override { wrapped_->release_pool(pool); }

  // The book's bytes as LibTorch counts them: each block rounded up to a power of two.
  int64_t rounded_bytes() const { return rounded_; }

 private:
  static void release(void* context);

  at::HostAllocator* wrapped_;
  std::atomic<c10::DeleterFnPtr> wrapped_delete_{nullptr};
  std::atomic<int64_t> rounded_{0};
};

BookingHostAllocator* host_allocator = nullptr;  // set once in install, never destroyed

void BookingHostAllocator::release(void* context) {
  const int64_t bytes = book(Space::pinned).freed(context);
  if (bytes > 0)
    host_allocator->rounded_ -=
        static_cast<int64_t>(c10::llvm::PowerOf2Ceil(static_cast<uint64_t>(bytes)));
  host_allocator->wrapped_delete_.load()(context);
}

}  // namespace

void install() {
  if (gpu_count() == 0) return;
  at::globalContext().lazyInitDevice(c10::kCUDA);
  device_baseline = requested_on_all_gpus();
  caching::attachAllocatorTraceTracker(on_trace);
  host_allocator = new BookingHostAllocator(at::getHostAllocator(c10::kCUDA));
  at::setHostAllocator(c10::kCUDA, host_allocator, /*priority=*/255);
  VEIL_CHECK(at::getHostAllocator(c10::kCUDA) == host_allocator,
             "LibTorch kept its pinned memory allocator");
}

int64_t device_requested_bytes() {
  return gpu_count() == 0 ? 0 : requested_on_all_gpus() - device_baseline;
}

// The two counts cannot be read under one lock (see Book's lock order), so they are read until
// nothing came between.
void check_device(const std::string& where) {
  if (gpu_count() == 0) return;
  constexpr int kTries = 100000;
  for (int i = 0; i < kTries; ++i) {
    const Book::Reading before = book(Space::device).reading();
    const int64_t counted = requested_on_all_gpus() - device_baseline;
    if (book(Space::device).reading() == before) {
      if (before.total != counted) disagree(Space::device, before.total, counted, where);
      return;
    }
    std::this_thread::yield();
  }
  throw std::logic_error(fmt::format(
      "memory tracker, device memory, {}: other threads never pause allocating", where));
}

void check_pinned(const std::string& where) {
  if (!host_allocator) return;
  // LibTorch's count also holds freed blocks that wait to be used again, so it is never below what
  // is booked.
  const int64_t rounded = host_allocator->rounded_bytes();
  const int64_t counted = host_allocator->get_stats().allocated_bytes.current;
  if (rounded > counted) disagree(Space::pinned, rounded, counted, where);
}

AllocatorFigures device_figures(Device device) {
  const auto stats = caching::getDeviceStats(device.index());
  const auto& allocated = stats.allocated_bytes[kAggregate];
  const auto& reserved = stats.reserved_bytes[kAggregate];
  return {allocated.current, allocated.peak, reserved.current, reserved.peak};
}

int64_t device_outside_bytes(Device device) {
  const c10::cuda::CUDAGuard guard(device);
  size_t free_bytes = 0, total_bytes = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  return static_cast<int64_t>(total_bytes - free_bytes) - device_figures(device).reserved_bytes;
}

}  // namespace veil::memory::backend
