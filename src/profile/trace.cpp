#include "profile/trace.h"

#include <unistd.h>

#include <cctype>
#include <chrono>

#include "base/error.h"
#include "base/files.h"
#include "base/process.h"

namespace veil {

using nlohmann::ordered_json;

namespace {

double to_us(double ms) {
  return ms * 1000;
}

ordered_json metadata_event(const char* what, int pid, int tid, const char* key,
                            const ordered_json& value) {
  return {{"ph", "M"},  {"name", what}, {"pid", pid},
          {"tid", tid}, {"ts", 0},      {"args", {{key, value}}}};
}

ordered_json gpu_properties() {
  ordered_json list = ordered_json::array();
  for (const GpuInfo& gpu : gpus()) {
    list.push_back({{"id", gpu.index},
                    {"name", gpu.name},
                    {"totalGlobalMem", gpu.memory_bytes},
                    {"computeMajor", gpu.capability_major},
                    {"computeMinor", gpu.capability_minor},
                    {"numSms", gpu.multiprocessors}});
  }
  return list;
}

}  // namespace

Trace::Trace(int rank, int world, int64_t base_time_ns) : rank_(rank) {
  head_ = {{"schemaVersion", 1},
           {"deviceProperties", gpu_properties()},
           {"distributedInfo", {{"rank", rank}, {"world_size", world}}},
           {"displayTimeUnit", "ms"},
           {"baseTimeNanoseconds", base_time_ns}};
  events_.push_back(
      metadata_event("process_name", rank, 0, "name", fmt::format("rank {} of {}", rank, world)));
  events_.push_back(metadata_event("process_sort_index", rank, 0, "sort_index", rank));
}

void Trace::name_lane(int lane, const std::string& name) {
  events_.push_back(metadata_event("thread_name", rank_, lane, "name", name));
  events_.push_back(metadata_event("thread_sort_index", rank_, lane, "sort_index", lane));
}

void Trace::span(int lane, const std::string& name, double start_ms, double duration_ms,
                 const std::string& category, ordered_json args) {
  ordered_json event = {{"ph", "X"},
                        {"cat", category},
                        {"name", name},
                        {"pid", rank_},
                        {"tid", lane},
                        {"ts", to_us(start_ms)},
                        {"dur", to_us(duration_ms)}};
  // The plugin reads every event's args; viewers show them.
  event["args"] = args.is_null() ? ordered_json::object() : std::move(args);
  events_.push_back(std::move(event));
}

void Trace::step(int lane, int number, double start_ms, double duration_ms) {
  span(lane, fmt::format("ProfilerStep#{}", number), start_ms, duration_ms);
}

void Trace::memory(Space space, double at_ms, const CategoryBytes& bytes) {
  ordered_json args = ordered_json::object();
  for (int i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    args[category_name(category)] = bytes[category];
  }
  events_.push_back({{"ph", "C"},
                     {"name", fmt::format("{} memory (bytes)", space_name(space))},
                     {"pid", rank_},
                     {"tid", 0},
                     {"ts", to_us(at_ms)},
                     {"args", std::move(args)}});
}

void Trace::set_metadata(const std::string& key, ordered_json value) {
  head_[key] = std::move(value);
}

std::string Trace::json() const {
  ordered_json whole = head_;
  whole["traceEvents"] = events_;
  return whole.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace);
}

std::string Trace::write(const std::string& folder) const {
  const std::string path = join_path(folder, trace_file_name());
  write_file_atomically(path, json());
  return path;
}

std::string trace_file_name() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{}_{}.{}.pt.trace.json", host_name(), getpid(),
                     std::chrono::duration_cast<std::chrono::nanoseconds>(since_1970).count());
}

std::string config_folder_name(const std::vector<std::pair<std::string, std::string>>& settings) {
  std::string name;
  for (const auto& [key, value] : settings) {
    if (key.empty() && value.empty()) continue;
    if (!name.empty()) name += '_';
    for (const char c : key + value) {
      const bool keeps = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' ||
                         c == '+' || c == '=';
      // A full stop is kept inside a number but may not lead: the folder would be hidden, or be
      // "..".
      name += keeps || (c == '.' && !name.empty() &&
                        std::isdigit(static_cast<unsigned char>(name.back())))
                  ? c
                  : '-';
    }
  }
  VEIL_CHECK(!name.empty(), "a configuration without settings has no name");
  return name;
}

}  // namespace veil
