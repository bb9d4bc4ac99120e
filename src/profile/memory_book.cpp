#include "profile/memory_book.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <shared_mutex>

#include "base/error.h"
#include "base/process.h"
#include "profile/memory.h"

namespace veil {

int64_t CategoryBytes::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

namespace memory {

void Book::allocated(const void* key, int64_t bytes, Category category) {
  const std::lock_guard lock(mutex_);
  ++version_;
  entries_[key] = {bytes, category};
  current_[category] += bytes;
  total_ += bytes;
  for (Peak& peak : peaks_) {
    if (total_ > peak.total) {
      peak.total = total_;
      peak.at_total = current_;
    }
    peak.of_each[category] = std::max(peak.of_each[category], current_[category]);
  }
}

int64_t Book::freed(const void* key) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return -1;
  const Entry entry = found->second;
  ++version_;
  entries_.erase(found);
  current_[entry.category] -= entry.bytes;
  total_ -= entry.bytes;
  return entry.bytes;
}

bool Book::retag(const void* key, Category category, std::optional<Category> from) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  if (from && found->second.category != *from) return true;
  current_[found->second.category] -= found->second.bytes;
  current_[category] += found->second.bytes;
  found->second.category = category;
  for (Peak& peak : peaks_)
    peak.of_each[category] = std::max(peak.of_each[category], current_[category]);
  return true;
}

CategoryBytes Book::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

CategoryBytes Book::peak(Window window) const {
  const std::lock_guard lock(mutex_);
  return peaks_[static_cast<size_t>(window)].at_total;
}

CategoryBytes Book::peak_of_each(Window window) const {
  const std::lock_guard lock(mutex_);
  return peaks_[static_cast<size_t>(window)].of_each;
}

void Book::restart(Peak& peak) {
  peak = {total_, current_, current_};
}

void Book::reset_peak(Window window) {
  const std::lock_guard lock(mutex_);
  restart(peaks_[static_cast<size_t>(window)]);
}

RowBytes Book::take_row() {
  const std::lock_guard lock(mutex_);
  Peak& row = peaks_[static_cast<size_t>(Window::row)];
  const RowBytes taken{current_, row.at_total};
  restart(row);
  return taken;
}

void Book::note_peak(const CategoryBytes& bytes) {
  const int64_t total = bytes.total();
  const std::lock_guard lock(mutex_);
  for (Peak& peak : peaks_) {
    if (total > peak.total) {
      peak.total = total;
      peak.at_total = bytes;
    }
    for (int i = 0; i < kCategories; ++i) {
      const auto category = static_cast<Category>(i);
      peak.of_each[category] = std::max(peak.of_each[category], bytes[category]);
    }
  }
}

Book::Reading Book::reading() const {
  const std::lock_guard lock(mutex_);
  return {total_, version_};
}

Book& book(Space space) {
  // Never destroyed: tensors of static lifetime are freed after everything else.
  static auto* books = new std::array<Book, kSpaces>;
  return (*books)[static_cast<size_t>(space)];
}

void disagree(Space space, int64_t booked, int64_t counted, const std::string& where) {
  throw std::logic_error(fmt::format(
      "memory tracker, {} memory, {}: {} bytes are booked, the allocator counts {} ({:+})",
      space_name(space), where, booked, counted, booked - counted));
}

}  // namespace memory

const char* space_name(Space space) {
  return space == Space::host ? "host" : space == Space::device ? "device" : "pinned";
}

namespace memory {

namespace {

// Held shared around "allocate and book", whole around "compare the two": so a comparison never
// falls between an allocation and its booking.
std::shared_mutex& host_gate() {
  static auto* gate = new std::shared_mutex;
  return *gate;
}

// Hands out the wrapped allocator's own memory and contexts, so alignment, raw pointers and copies
// are as without it.
class BookingAllocator final : public c10::Allocator {
 public:
  explicit BookingAllocator(c10::Allocator* wrapped)
      : wrapped_(wrapped), wrapped_delete_(wrapped->raw_deleter()) {
    VEIL_CHECK(wrapped_delete_, "LibTorch's CPU allocator has no raw deleter");
  }

  c10::DataPtr allocate(size_t bytes) override {
    const std::shared_lock gate(host_gate());
    c10::DataPtr data = wrapped_->allocate(bytes);
    if (!data) return data;  // nothing was requested
    book(Space::host)
        .allocated(data.get_context(), static_cast<int64_t>(bytes), current_category());
    const bool swapped = data.compare_exchange_deleter(wrapped_delete_, &BookingAllocator::release);
    VEIL_CHECK(swapped, "LibTorch's CPU allocator handed out a foreign deleter");
    return data;
  }

  c10::DeleterFnPtr raw_deleter() const override { return &BookingAllocator::release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    wrapped_->copy_data(to, from, bytes);
  }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return wrapped_->is_simple_data_ptr(data);
  }
  c10::Allocator* wrapped() const { return wrapped_; }

 private:
  static void release(void* context);

  c10::Allocator* wrapped_;
  c10::DeleterFnPtr wrapped_delete_;
};

std::atomic<BookingAllocator*> host_allocator{nullptr};  // never destroyed

void BookingAllocator::release(void* context) {
  const std::shared_lock gate(host_gate());
  // Booked out first: once the memory is returned, another thread may be given the same address.
  book(Space::host).freed(context);
  host_allocator.load()->wrapped_delete_(context);
}

// LibTorch's CPU reporter counts allocations on all threads but tells its total only to a listener
// on the thread that allocates.
class ReporterListener final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t total, size_t, c10::Device) override {
    if (size > 0) total_before_ = static_cast<int64_t>(total) - size;
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t total_before() const { return total_before_; }

 private:
  int64_t total_before_ = 0;
};

// The reporter's total, read by way of an allocation of one byte on the wrapped allocator.
int64_t reported_host_bytes() {
  static thread_local auto listener = std::make_shared<ReporterListener>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, listener);
  const c10::DataPtr probe = host_allocator.load()->wrapped()->allocate(1);
  return listener->total_before();
}

}  // namespace

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    FLAGS_caffe2_report_cpu_memory_usage = true;  // LibTorch's reporter counts from here on
    host_allocator = new BookingAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(host_allocator, /*priority=*/255);
    VEIL_CHECK(c10::GetCPUAllocator() == host_allocator, "LibTorch kept its CPU allocator");
    backend::install();
  });
}

bool installed() {
  return host_allocator.load() != nullptr;
}

CategoryBytes current(Space space) {
  return book(space).current();
}
CategoryBytes peak(Space space, Window window) {
  return book(space).peak(window);
}
CategoryBytes peak_of_each(Space space, Window window) {
  return book(space).peak_of_each(window);
}
void reset_peak(Space space, Window window) {
  book(space).reset_peak(window);
}
RowBytes take_row(Space space) {
  return book(space).take_row();
}
void note_peak(Space space, const CategoryBytes& bytes) {
  book(space).note_peak(bytes);
}

int64_t allocator_bytes(Space space) {
  if (!installed()) return 0;
  switch (space) {
    case Space::host: {
      const std::unique_lock gate(host_gate());
      return reported_host_bytes();
    }
    case Space::device:
      return backend::device_requested_bytes();
    case Space::pinned:
      return book(Space::pinned).reading().total;
  }
  return 0;
}

void check(Space space, const std::string& where) {
  if (!installed()) return;
  if (space == Space::device) return backend::check_device(where);
  if (space == Space::pinned) return backend::check_pinned(where);
  const std::unique_lock gate(host_gate());
  const int64_t booked = book(Space::host).reading().total;
  const int64_t counted = reported_host_bytes();
  if (booked != counted) disagree(space, booked, counted, where);
}

void retag(const Tensor& tensor, Category category, std::optional<Category> from) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const c10::DataPtr& data = tensor.storage().data_ptr();
  if (tensor.is_cuda()) {
    book(Space::device).retag(data.get(), category, from);
  } else if (!book(Space::host).retag(data.get_context(), category, from)) {
    book(Space::pinned).retag(data.get_context(), category, from);
  }
}

AllocatorFigures allocator_figures(Device device) {
  if (device.is_cuda()) return backend::device_figures(device);
  const int64_t now = current(Space::host).total(), most = peak(Space::host, Window::run).total();
  return {now, most, now, most};
}

int64_t outside_allocator_bytes(Device device) {
  if (device.is_cuda()) return backend::device_outside_bytes(device);
  return resident_bytes() - current(Space::host).total();
}

}  // namespace memory

}  // namespace veil
