#include "suite/mode_costs.h"

#include <fmt/core.h>

#include <cmath>

#include "base/text.h"
#include "report/figures.h"
#include "report/tables.h"

namespace veil {

StepDifference step_difference(const Record& record, const Record& base) {
  constexpr double kSameMemory = 0.01;  // of the base's
  const double ms = *compared_ms(record), base_ms = *compared_ms(base),
               bytes = *record.peak_memory_bytes, base_bytes = *base.peak_memory_bytes,
               spread = std::hypot(record.std_time_ms.value_or(0), base.std_time_ms.value_or(0));
  const auto sign = [](double difference) { return difference < 0 ? -1 : 1; };
  StepDifference result;
  if (std::abs(ms - base_ms) > spread) result.time_sign = sign(ms - base_ms);
  if (std::abs(bytes - base_bytes) >= kSameMemory * base_bytes)
    result.memory_sign = sign(bytes - base_bytes);
  result.time = result.time_sign == 0
                    ? "the same time within the spread"
                    : fmt::format("{} {} time", percent_text(std::abs(ms - base_ms) / base_ms),
                                  result.time_sign < 0 ? "less" : "more");
  result.memory = result.memory_sign == 0
                      ? "about the same memory"
                      : fmt::format("{} {} memory", shown_bytes(std::abs(bytes - base_bytes)),
                                    result.memory_sign < 0 ? "less" : "more");
  return result;
}

bool has_cost(const ModeFigures& f) {
  return f.mode != "no_dp" && f.more_share && f.more_bytes;
}

namespace {

std::string cost_words(const std::vector<ModeFigures>& all, const ModeFigures& f,
                       const std::string& plain) {
  if (!has_cost(f)) return fmt::format("{} per step in {}", shown_ms(f.ms), shown_bytes(f.bytes));
  const StepDifference cost =
      step_difference(*f.record, *find_mode(all, "no_dp", f.length)->record);
  return fmt::format("{} and {} {} {}", cost.time, cost.memory, cost.word(), plain);
}

}  // namespace

std::string mode_costs_text(const std::vector<ModeFigures>& all, const std::string& mode,
                            const std::string& plain) {
  std::vector<std::string> parts;
  for (const int64_t length : lengths_of(all)) {
    const ModeFigures* f = find_mode(all, mode, length);
    if (!f) continue;
    parts.push_back(fmt::format("T = {} {}", length,
                                f->ms ? cost_words(all, *f, plain) : outcome_words(*f->record)));
  }
  return join(parts, "; ");
}

}  // namespace veil
