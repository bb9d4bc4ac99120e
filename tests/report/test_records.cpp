#include "report/test_records.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/files.h"
#include "base/units.h"
#include "suite/suite.h"

namespace veil::test {

using nlohmann::json;

namespace {

constexpr int kLayers = 8;
constexpr int64_t kLayerBytes = kGiB;     // 16384 x 16384 in fp32
constexpr int64_t kFlowBytes = kGiB / 2;  // 8192 x 16384

struct SetUp {
  std::string experiment, title, strategy;
  bool offload, prefetch;
  double ms, spread;
};

// Forward and backward over the layers, with the memory that each row leaves.
json rows_of(const SetUp& set_up) {
  const bool sharded = set_up.strategy != "ddp";
  const int64_t parameters = set_up.offload ? 0 : sharded ? kLayerBytes : kLayers * kLayerBytes;
  json rows = json::array();
  int64_t gradients = 0, flows = 1;
  const auto add = [&](const char* part, const char* op, int layer) {
    const json after = {{"parameters", parameters},
                        {"gradients", gradients},
                        {"activations", flows * kFlowBytes},
                        {"communication", sharded ? 2 * kLayerBytes : 0},
                        {"data", 2 * kFlowBytes}};
    int64_t total = 0;
    for (const auto& [name, bytes] : after.items()) total += bytes.get<int64_t>();
    rows.push_back({{"part", part},
                    {"row", rows.size()},
                    {"op", op},
                    {"on", "layers." + std::to_string(layer)},
                    {"after", after},
                    {"peak_bytes", total + kFlowBytes / 2}});
  };
  for (int layer = 0; layer < kLayers; ++layer) {
    ++flows;
    add("body", "forward", layer);
  }
  for (int layer = kLayers - 1; layer >= 0; --layer) {
    --flows;
    gradients += sharded ? kLayerBytes / kLayers : kLayerBytes;
    add("body", "backward", layer);
  }
  for (int layer = 0; layer < kLayers; ++layer) add("tail", "update", layer);
  return rows;
}

json record_of(const SetUp& set_up) {
  const json rows = rows_of(set_up);
  json top;
  for (const json& row : rows) {
    if (top.is_null() || row["peak_bytes"] > top["peak_bytes"]) top = row;
  }
  json breakdown = top["after"];
  breakdown["temporary"] = kFlowBytes / 2;
  const int64_t peak = top["peak_bytes"];
  const double gib = static_cast<double>(kGiB);
  const auto stage = [&](const char* name, double allocated) {
    return json{{"stage", name},
                {"rank", 0},
                {"log_key", "memory"},
                {"cuda_memory_allocated_GB", allocated},
                {"cuda_max_memory_allocated_GB", allocated * 1.1},
                {"cpu_memory_rss_GB", set_up.offload ? 9.5 : 1.5}};
  };
  const double model = static_cast<double>(rows[0]["after"]["parameters"].get<int64_t>()) / gib;
  const json gather = {{"total_ms", 0},
                       {"exposed_ms", set_up.prefetch ? 4.5 : 40.25},
                       {"modelled_ms", 310.0},
                       {"bytes", 15 * kGiB}};
  const json reduce = {
      {"total_ms", 0}, {"exposed_ms", 12.5}, {"modelled_ms", 155.0}, {"bytes", 7 * kGiB}};
  json communication = {{"reduce", reduce}};
  if (set_up.strategy != "ddp") communication["gather"] = gather;
  if (set_up.offload)
    communication["copy"] = {{"total_ms", 900.0}, {"exposed_ms", 620.0}, {"bytes", 16 * kGiB}};
  return {{"schema", 1},
          {"suite", "linear"},
          {"experiment", set_up.experiment},
          {"title", set_up.title},
          {"outcome", "ok"},
          {"message", ""},
          {"mode", "no_dp"},
          {"seq_length", nullptr},
          {"batch_size", 8192},
          {"total_batch_size", 65536},
          {"num_gpus", 8},
          {"world", 8},
          {"simulated", true},
          {"device", "cuda"},
          {"peak_memory_bytes", peak},
          {"peak_memory_mb", static_cast<double>(peak) / 1e6},
          {"peak_memory_gb", static_cast<double>(peak) / 1e9},
          {"avg_time_ms", set_up.ms - 53},
          {"times_ms",
           {set_up.ms - 53 - set_up.spread, set_up.ms - 53, set_up.ms - 53 + set_up.spread}},
          {"std_time_ms", set_up.spread},
          {"modelled_step_ms", set_up.ms},
          {"losses", {0.51, 0.42, 0.37}},
          {"command", "veil profile --model linear-stack --data_parallel " + set_up.strategy +
                          " --simulate-world 8"},
          {"config",
           {{"data-parallel", set_up.strategy},
            {"batch-size", 8192},
            {"cpu-offload", set_up.offload},
            {"forward-prefetch", set_up.prefetch ? 1 : 0},
            {"backward-prefetch", set_up.prefetch ? "post" : "pre"}}},
          {"build", {{"version", "0.1.0"}, {"commit", "0123abc"}, {"libtorch", "2.11.0"}}},
          {"machine",
           {{"host", "node"},
            {"cpu", {{"model", "ARM Neoverse-V2"}, {"cores", 16}, {"memory_bytes", 128 * kGiB}}},
            {"gpus", {{{"name", "NVIDIA H200"}, {"memory_bytes", 139 * kGiB}}}}}},
          {"graph", set_up.offload ? "off: copies to the host" : "on"},
          {"stages",
           {stage("after data creation", 1), stage("after model creation", 1 + model),
            stage("after warmup", 1.02 + 2 * model)}},
          {"breakdown", breakdown},
          {"memory_rows", rows},
          {"phases",
           {{"forward", {{"ms", 612.5}}},
            {"loss", {{"ms", 1.5}}},
            {"backward", {{"ms", 1214.0}}},
            {"update", {{"ms", 22.0}}}}},
          {"communication", communication},
          {"ranks", {{{"rank", 0}, {"avg_time_ms", set_up.ms - 53}, {"peak_memory_bytes", peak}}}},
          {"traces", {"traces/" + set_up.experiment + ".json"}}};
}

}  // namespace

std::vector<json> linear_suite_records() {
  return {record_of({"ddp", "basic DDP", "ddp", false, false, 1935.25, 4.5}),
          record_of({"fsdp", "basic FSDP", "zero3", false, false, 1962.75, 5.5}),
          record_of({"fsdp_memory", "memory-optimised FSDP", "zero3", true, false, 2684.5, 30}),
          record_of({"fsdp_speed", "performance-optimised FSDP", "zero3", false, true, 1937.5, 6})};
}

ReportFiles write_report(const std::string& folder, const std::string& output_folder) {
  return veil::write_report(folder, output_folder, suite_pages());
}

Verdict judge(const RecordFolder& folder) {
  return veil::judge(folder, page_of(folder.records, suite_pages()));
}

Folder::Folder() {
  static std::atomic<int> count{0};
  folder_ = std::filesystem::temp_directory_path() /
            ("veil_report_" + std::to_string(getpid()) + "_" + std::to_string(count++));
  std::filesystem::create_directories(folder_);
}
Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}
std::string Folder::path(const std::string& name) const {
  return name.empty() ? folder_.string() : (folder_ / name).string();
}
void Folder::write(const std::string& name, const std::string& content) const {
  write_file_atomically(path(name), content);
}
std::string Folder::read(const std::string& name) const {
  return read_file(path(name));
}
void Folder::write_records(const std::vector<json>& records) const {
  for (const json& record : records)
    write(record["experiment"].get<std::string>() + "_result.json", record.dump(1));
}

}  // namespace veil::test
