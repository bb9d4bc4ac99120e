#include "record/repeats.h"

#include <cmath>

#include "base/error.h"

namespace veil {
namespace {

// The mean of what `read` finds, if the first record has it.
template <typename Read>
std::optional<double> mean_of(const std::vector<Record>& records, const Read& read) {
  if (!read(records.front())) return {};
  double sum = 0, count = 0;
  for (const Record& record : records) {
    const std::optional<double> value = read(record);
    if (!value) continue;
    sum += *value;
    ++count;
  }
  return sum / count;
}

Amounts mean_amounts(const std::vector<Record>& records, Amounts Record::*member) {
  Amounts means;
  for (const auto& [name, unused] : records.front().*member)
    means[name] = *mean_of(records, [&, key = name](const Record& record) {
      const auto found = (record.*member).find(key);
      return found == (record.*member).end() ? std::nullopt : std::optional(found->second);
    });
  return means;
}

// One member of every transfer of one kind.
std::optional<double> mean_transfer(const std::vector<Record>& records, const std::string& kind,
                                    std::optional<double> RecordTransfer::*member) {
  return mean_of(records, [&](const Record& record) {
    const auto found = record.communication.find(kind);
    return found == record.communication.end() ? std::nullopt : found->second.*member;
  });
}

}  // namespace

Record merged_repeats(const std::vector<Record>& records) {
  VEIL_CHECK(!records.empty(), "no repeat to merge");
  for (const char* const outcome : {"error", "oom"}) {
    for (const Record& record : records) {
      if (record.outcome == outcome) return record;
    }
  }
  Record merged = records.front();
  merged.times_ms.clear();
  double sum = 0, squares = 0;
  for (const Record& record : records) {
    for (const double time : record.times_ms) {
      merged.times_ms.push_back(time);
      sum += time;
    }
    merged.repeats.push_back({record.avg_time_ms, record.std_time_ms});
    if (record.peak_memory_bytes.value_or(0) > merged.peak_memory_bytes.value_or(0)) {
      merged.peak_memory_bytes = record.peak_memory_bytes;
      merged.breakdown = record.breakdown;
    }
  }
  const auto count = static_cast<double>(merged.times_ms.size());
  merged.avg_time_ms = count > 0 ? sum / count : 0;
  for (const double time : merged.times_ms) squares += std::pow(time - *merged.avg_time_ms, 2);
  merged.std_time_ms = count > 1 ? std::sqrt(squares / (count - 1)) : 0;

  merged.phases = mean_amounts(records, &Record::phases);
  merged.layer_ms = mean_amounts(records, &Record::layer_ms);
  for (auto& [kind, transfer] : merged.communication) {
    for (const auto member :
         {&RecordTransfer::total_ms, &RecordTransfer::exposed_ms, &RecordTransfer::modelled_ms,
          &RecordTransfer::modelled_exposed_ms, &RecordTransfer::bytes})
      transfer.*member = mean_transfer(records, kind, member);
  }
  for (const auto member :
       {&Record::phase_sum_ms, &Record::modelled_step_ms, &Record::tokens_per_second, &Record::mfu,
        &Record::tflops_per_second_a_rank, &Record::end_to_end_seconds})
    merged.*member = mean_of(records, [&](const Record& record) { return record.*member; });
  for (const auto member : {&RecordGpu::utilisation_percent, &RecordGpu::sm_clock_mhz,
                            &RecordGpu::temperature_c, &RecordGpu::power_w})
    merged.gpu_state.*member =
        mean_of(records, [&](const Record& record) { return record.gpu_state.*member; });
  for (const auto member : {&RecordCpu::others_percent, &RecordCpu::own_percent})
    merged.cpu_during.*member =
        mean_of(records, [&](const Record& record) { return record.cpu_during.*member; });
  return merged;
}

}  // namespace veil
