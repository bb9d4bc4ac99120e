// A Chrome trace: what ran when on which lane, and memory in use. chrome://tracing, Perfetto and
// TensorBoard's profiler plugin open it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "profile/memory.h"

namespace veil {

// One rank's trace. Times are milliseconds of one clock of the caller's choice, counted from the
// trace's start.
class Trace {
 public:
  // `base_time_ns` is the wall clock (since 1970) at time 0, by which several ranks' files can be
  // laid over each other.
  Trace(int rank, int world, int64_t base_time_ns);

  void name_lane(int lane, const std::string& name);
  // A span on a lane. `category` is what viewers filter and colour by; TensorBoard knows
  // "user_annotation" and "cpu_op".
  void span(int lane, const std::string& name, double start_ms, double duration_ms,
            const std::string& category = "user_annotation", nlohmann::ordered_json args = nullptr);
  // The span of a whole step, named as TensorBoard's plugin wants it ("ProfilerStep#3").
  void step(int lane, int number, double start_ms, double duration_ms);
  // A moment of the stacked memory plot; every category is given, so that the plot keeps its
  // layers.
  void memory(Space space, double at_ms, const CategoryBytes& bytes);

  // The GPUs of the machine and the settings of the run, shown by the plugin and kept for readers.
  void set_metadata(const std::string& key, nlohmann::ordered_json value);

  std::string json() const;
  // Writes it whole into `folder` under a name that TensorBoard's plugin recognises, and answers
  // the path.
  std::string write(const std::string& folder) const;

 private:
  int rank_;
  nlohmann::ordered_json head_;
  nlohmann::ordered_json events_ = nlohmann::ordered_json::array();
};

// "<host>_<pid>.<ns>.pt.trace.json": worker and span as TensorBoard's plugin reads them.
std::string trace_file_name();

// A folder name that tells the configuration: {{"", "fsdp"}, {"bs", "8192"}, {"prefetch", ""}}
// gives "fsdp_bs8192_prefetch". What does not belong into a file name becomes "-".
std::string config_folder_name(const std::vector<std::pair<std::string, std::string>>& settings);

}  // namespace veil
