#include "estimate/estimator.h"

#include <algorithm>

#include "base/error.h"

namespace veil {
namespace {

class Walk {
 public:
  void create(const Buffer& buffer) {
    add(buffer, 1);
    live_.push_back(buffer);
  }

  void free(const Buffer& buffer, const std::string& where) {
    const auto found = std::find(live_.begin(), live_.end(), buffer);
    VEIL_CHECK(found != live_.end(), "{} frees {}.{}, which does not live there", where,
               name_of(buffer.role), buffer.index);
    live_.erase(found);
    add(buffer, -1);
  }

  void scratch(Space space, int64_t bytes) {
    bytes_[static_cast<size_t>(space)][Category::temporary] += bytes;
  }
  const SpaceBytes& bytes() const { return bytes_; }
  size_t live() const { return live_.size(); }

 private:
  void add(const Buffer& buffer, int64_t sign) {
    bytes_[static_cast<size_t>(buffer.space)][buffer.category] += sign * buffer.bytes;
  }
  SpaceBytes bytes_{};
  std::vector<Buffer> live_;
};

int64_t bytes_of(const std::vector<Buffer>& buffers, BufferRole role) {
  int64_t bytes = 0;
  for (const Buffer& buffer : buffers) bytes += buffer.role == role ? buffer.bytes : 0;
  return bytes;
}

}  // namespace

MemoryEstimate estimate_memory(const Schedule& schedule) {
  MemoryEstimate estimate;
  Walk walk;
  const Space device = schedule.options.on_gpu ? Space::device : Space::host;
  for (const Buffer& buffer : schedule.resident) {
    walk.create(buffer);
    if (buffer.role == BufferRole::data) estimate.after_data = walk.bytes();
  }
  estimate.after_model = walk.bytes();
  const size_t resident = walk.live();
  for (int p = 0; p < kParts; ++p) {
    const auto part = static_cast<Part>(p);
    for (size_t i = 0; i < schedule.part(part).size(); ++i) {
      const Op& op = schedule.part(part)[i];
      const std::string where = fmt::format("{} row {}", name_of(part), i);
      for (const Buffer& buffer : op.creates) walk.create(buffer);
      walk.scratch(device, op.scratch_bytes);
      MemoryRow row{part, static_cast<int>(i), walk.bytes(), {}};
      walk.scratch(device, -op.scratch_bytes);
      const int64_t made_last = bytes_of(op.creates, BufferRole::flow_grad);
      // the reports' moment is the larger one
      if (op.sink_scratch_bytes > made_last + op.scratch_bytes) {
        SpaceBytes reports = walk.bytes();
        reports[static_cast<size_t>(device)][Category::temporary] += op.sink_scratch_bytes;
        reports[static_cast<size_t>(device)][Category::activations] -= made_last;
        row.peak = reports;
      }
      for (const Buffer& buffer : op.frees) walk.free(buffer, where);
      row.after = walk.bytes();
      estimate.rows.push_back(row);
    }
  }
  VEIL_CHECK(walk.live() == resident, "{} buffers outlive the step", walk.live() - resident);
  return estimate;
}

CategoryBytes MemoryEstimate::peak(Space space) const {
  CategoryBytes largest = after_model[static_cast<size_t>(space)];
  for (const MemoryRow& row : rows) {
    const CategoryBytes& bytes = row.peak[static_cast<size_t>(space)];
    if (bytes.total() > largest.total()) largest = bytes;
  }
  return largest;
}

LargestBatch largest_batch(int64_t maximum, const std::function<bool(int64_t)>& fits,
                           int64_t guess) {
  VEIL_CHECK(maximum >= 1, "a largest batch of {}", maximum);
  LargestBatch found;
  int64_t low = 0, high = maximum + 1;  // `low` fits, `high` does not: nothing is asked outside
  auto ask = [&](int64_t batch) {
    ++found.trials;
    const bool fit = fits(batch);
    (fit ? low : high) = batch;
    return fit;
  };
  const bool first = ask(std::clamp<int64_t>(guess, 1, maximum));
  for (int64_t step = 1; high - low > 1; step *= 2) {
    if (ask(first ? std::min(low + step, high - 1) : std::max(high - step, low + 1)) != first)
      break;
  }
  while (high - low > 1) ask(low + (high - low) / 2);
  found.largest = low;
  found.too_large = high <= maximum ? high : 0;
  return found;
}

LargestBatch confirmed_batch(int64_t maximum, int64_t limit_bytes,
                             const std::function<int64_t(int64_t)>& estimate,
                             const std::function<BatchRun(int64_t)>& run) {
  constexpr double kOutOfMemory = 1.03;
  LargestBatch found;
  int64_t tried = 1;
  // of those below `most`, if real bytes are so many times the estimated ones
  const auto predicted = [&](int64_t most, double times) {
    const auto fits = [&](int64_t size) {
      return static_cast<double>(estimate(size)) * times <= static_cast<double>(limit_bytes);
    };
    return std::max<int64_t>(1, largest_batch(most, fits, tried).largest);
  };
  const auto ask = [&](int64_t size) {
    ++found.trials;
    return run(size);
  };
  int64_t batch = predicted(maximum, 1);
  for (BatchRun seen = ask(batch); !seen.fits; seen = ask(batch)) {
    found.too_large = batch;
    if (batch == 1) return found;
    const double times = static_cast<double>(seen.bytes) / static_cast<double>(estimate(batch));
    tried = batch;
    batch = predicted(batch - 1, seen.bytes > 0 ? times : kOutOfMemory);
  }
  found.largest = batch;
  if (found.too_large > 0 || batch == maximum) return found;
  if (ask(batch + 1).fits) {
    found.largest = batch + 1;
    found.too_large = batch + 2 <= maximum ? batch + 2 : 0;  // by the estimate
  } else {
    found.too_large = batch + 1;
  }
  return found;
}

}  // namespace veil
