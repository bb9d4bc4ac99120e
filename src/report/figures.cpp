#include "report/figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/quantity.h"
#include "base/text.h"
#include "tensor/category.h"

namespace veil {
namespace {

constexpr const char* kOther = "other";

std::vector<std::string> ordered(const std::vector<const Amounts*>& all,
                                 const std::vector<std::string>& known) {
  std::set<std::string> present;
  for (const Amounts* const one : all) {
    for (const auto& [name, amount] : *one) {
      if (amount > 0) present.insert(name);
    }
  }
  std::vector<std::string> result;
  for (const std::string& name : known) {
    if (present.erase(name)) result.push_back(name);
  }
  result.insert(result.end(), present.begin(), present.end());
  return result;
}

// Model settings that decide how much work a step does, if the records differ in them.
std::vector<std::string> differing_work(const std::vector<Record>& records) {
  std::vector<std::string> names;
  for (const char* name : {"model", "image-size", "patch-size"}) {
    std::set<nlohmann::json> values;
    for (const Record& record : records) {
      if (record.config.is_object() && record.config.contains(name))
        values.insert(record.config[name]);
    }
    if (values.size() > 1) names.push_back(name);
  }
  return names;
}

}  // namespace

std::optional<double> stage_bytes(const Record& record, const std::string& stage) {
  std::optional<double> most;
  for (const RecordStage& line : record.stages) {
    if (line.stage.starts_with(stage) && line.allocated_bytes)
      most = std::max(most.value_or(0), *line.allocated_bytes);
  }
  return most;
}

std::optional<double> host_bytes(const Record& record) {
  std::optional<double> most;
  for (const RecordStage& line : record.stages) {
    if (line.host_bytes) most = std::max(most.value_or(0), *line.host_bytes);
  }
  return most;
}

std::optional<double> exposed_ms(const Record& record, const RecordTransfer& transfer) {
  return record.simulated && transfer.modelled_exposed_ms ? transfer.modelled_exposed_ms
                                                          : transfer.exposed_ms;
}

std::optional<double> exposed_ms(const Record& record) {
  std::optional<double> sum;
  for (const auto& [kind, transfer] : record.communication) {
    if (const auto ms = exposed_ms(record, transfer)) sum = sum.value_or(0) + *ms;
  }
  return sum;
}

std::string strategy_of(const Record& record) {
  for (const char* const key : {"data-parallel", "data_parallel", "strategy"}) {
    const auto found = record.config.find(key);
    if (found != record.config.end() && found->is_string())
      return canonical(found->get<std::string>());
  }
  return "";
}

std::vector<std::string> categories_of(const std::vector<const Amounts*>& amounts) {
  std::vector<std::string> known;
  for (int i = 0; i < kCategories; ++i) known.emplace_back(category_name(static_cast<Category>(i)));
  return ordered(amounts, known);
}

std::vector<std::string> phases_of(const std::vector<const Amounts*>& amounts) {
  static const std::vector<std::string> known = {"data",
                                                 "load",
                                                 "zero",
                                                 "forward",
                                                 "recompute",
                                                 "loss",
                                                 "backward",
                                                 "first_backward",
                                                 "backward_and_norms",
                                                 "backward_and_kept_norms",
                                                 "norms",
                                                 "kept_norms",
                                                 "coefficients",
                                                 "second_loss",
                                                 "second_backward",
                                                 "weight_grad",
                                                 "combine",
                                                 "noise",
                                                 "update",
                                                 "noise_update",
                                                 "combine_noise_update",
                                                 "gap"};
  return ordered(amounts, known);
}

bool is_plain(const Record* record) {
  return canonical(record->mode) == "no-dp";
}

void leave_plain_out(RecordGroup& group) {
  if (!std::all_of(group.records.begin(), group.records.end(), is_plain))
    std::erase_if(group.records, is_plain);
}

std::optional<double> compared_ms(const Record& record) {
  if (!record.ok()) return {};
  return record.simulated && record.modelled_step_ms ? record.modelled_step_ms : record.avg_time_ms;
}

std::vector<RecordGroup> comparable_groups(const std::vector<Record>& records) {
  std::vector<RecordGroup> groups;
  const std::vector<std::string> work = differing_work(records);
  for (const Record& record : records) {
    std::vector<std::string> parts;
    for (const std::string& name : work) {
      const nlohmann::json value =
          record.config.is_object() ? record.config.value(name, nlohmann::json()) : nullptr;
      if (value.is_string()) parts.push_back(value.get<std::string>());
      if (value.is_number()) parts.push_back(fmt::format("{} {}", name, value.dump()));
    }
    const auto& batch = record.total_batch_size ? record.total_batch_size : record.batch_size;
    if (batch) parts.push_back(fmt::format("batch {}", *batch));
    if (record.seq_length) parts.push_back(fmt::format("sequence {}", *record.seq_length));
    if (record.world)
      parts.push_back(record.simulated ? fmt::format("simulated world of {}", *record.world)
                                       : quantity(*record.world, "rank"));
    if (!record.device.empty()) parts.push_back(record.device);
    const std::string name = join(parts, ", ");
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const RecordGroup& g) { return g.name == name; });
    if (group == groups.end()) group = groups.insert(groups.end(), {name, {}});
    group->records.push_back(&record);
  }
  return groups;
}

const std::vector<MemoryMoment>& memory_moments() {
  static const std::vector<MemoryMoment> moments = {
      {"after data", [](const Record& record) { return stage_bytes(record, "after data"); }},
      {"after model", [](const Record& record) { return stage_bytes(record, "after model"); }},
      {"after warm-up", [](const Record& record) { return stage_bytes(record, "after warm"); }},
      {"peak", [](const Record& record) { return record.peak_memory_bytes; }}};
  return moments;
}

Amounts step_parts(const Record& record) {
  Amounts parts = record.phases;
  for (const auto& [kind, transfer] : record.communication) {
    const double exposed = exposed_ms(record, transfer).value_or(0);
    if (exposed > 0) parts["wait for " + kind] = exposed;
  }
  double sum = 0;
  for (const auto& [name, ms] : parts) sum += ms;
  const auto step = compared_ms(record);
  // Row and step clocks differ slightly: less than half a percent is not a part of its own.
  if (!parts.empty() && step && *step > 1.005 * sum) parts[kOther] = *step - sum;
  return parts;
}

std::vector<std::string> step_parts_of(const std::vector<Record>& records) {
  std::vector<Amounts> all;
  for (const Record& record : records) all.push_back(step_parts(record));
  std::vector<const Amounts*> views;
  for (const Amounts& one : all) views.push_back(&one);
  std::vector<std::string> names = phases_of(views);
  // Waits after computing, and the remainder last.
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return name != kOther; });
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) {
    return name != kOther && !name.starts_with("wait for ");
  });
  return names;
}

}  // namespace veil
