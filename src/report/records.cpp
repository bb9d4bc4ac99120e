#include "report/records.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "base/files.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/units.h"
#include "tensor/category.h"

namespace veil {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr std::string_view kSuffix = "_result.json";
constexpr int64_t kSchema = 1;

// Why a record cannot be used; caught where the file's name is known.
struct Damage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Absent and null are "not there"; another type than the one asked for is damage.
const json* find(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

[[noreturn]] void wrong_type(const std::string& key, const json& value, const char* expected) {
  throw Damage(fmt::format("'{}' is {} {}, expected is {}", key, value.is_array() || value.is_object() ? "an" : "a",
                           value.type_name(), expected));
}

std::string text(const json& object, const char* key) {
  const json* const value = find(object, key);
  if (!value) return "";
  if (!value->is_string()) wrong_type(key, *value, "a string");
  return value->get<std::string>();
}

std::optional<double> number(const json& object, const char* key) {
  const json* const value = find(object, key);
  if (!value) return {};
  if (!value->is_number()) wrong_type(key, *value, "a number");
  return value->get<double>();
}

std::optional<int64_t> integer(const json& object, const char* key) {
  const json* const value = find(object, key);
  if (!value) return {};
  if (!value->is_number_integer()) wrong_type(key, *value, "an integer");
  return value->get<int64_t>();
}

bool flag(const json& object, const char* key) {
  const json* const value = find(object, key);
  if (!value) return false;
  if (!value->is_boolean()) wrong_type(key, *value, "true or false");
  return value->get<bool>();
}

const json& object_at(const json& object, const char* key) {
  static const json empty = json::object();
  const json* const value = find(object, key);
  if (!value) return empty;
  if (!value->is_object()) wrong_type(key, *value, "an object");
  return *value;
}

const json& array_at(const json& object, const char* key) {
  static const json empty = json::array();
  const json* const value = find(object, key);
  if (!value) return empty;
  if (!value->is_array()) wrong_type(key, *value, "an array");
  return *value;
}

const json& entry_object(const json& entry, const char* where) {
  if (!entry.is_object()) wrong_type(where, entry, "an object");
  return entry;
}

Amounts amounts(const json& object) {
  Amounts result;
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;
    if (!value.is_number()) wrong_type(name, value, "a number");
    result[name] = value.get<double>();
  }
  return result;
}

// The exact bytes where they are recorded, otherwise the seeds' key, whose "GB" is 2^30.
std::optional<double> stage_amount(const json& stage, const char* bytes_key, const char* gib_key) {
  if (const auto bytes = number(stage, bytes_key)) return bytes;
  const auto gib = number(stage, gib_key);
  return gib ? std::optional(*gib * static_cast<double>(kGiB)) : std::nullopt;
}

void read_times(const json& source, Record& record) {
  for (const json& time : array_at(source, "times_ms")) {
    if (!time.is_number()) wrong_type("times_ms", time, "a number");
    record.times_ms.push_back(time.get<double>());
  }
  record.avg_time_ms = number(source, "avg_time_ms");
  record.std_time_ms = number(source, "std_time_ms");
  const auto count = static_cast<double>(record.times_ms.size());
  if (record.times_ms.empty()) return;
  double mean = 0, squares = 0;
  for (const double time : record.times_ms) mean += time / count;
  for (const double time : record.times_ms) squares += (time - mean) * (time - mean);
  if (!record.avg_time_ms) record.avg_time_ms = mean;
  if (!record.std_time_ms && record.times_ms.size() > 1) record.std_time_ms = std::sqrt(squares / (count - 1));
}

void read_peak(const json& source, Record& record) {
  record.peak_memory_bytes = number(source, "peak_memory_bytes");
  if (record.peak_memory_bytes) return;
  if (const auto gb = number(source, "peak_memory_gb")) {
    record.peak_memory_bytes = *gb * 1e9;
  } else if (const auto mb = number(source, "peak_memory_mb")) {
    record.peak_memory_bytes = *mb * 1e6;
  }
}

void read_memory(const json& source, Record& record) {
  for (const json& entry : array_at(source, "stages")) {
    const json& stage = entry_object(entry, "stages");
    record.stages.push_back(
        {.stage = text(stage, "stage"),
         .rank = integer(stage, "rank").value_or(0),
         .allocated_bytes = stage_amount(stage, "memory_allocated_bytes", "cuda_memory_allocated_GB"),
         .max_allocated_bytes = stage_amount(stage, "max_memory_allocated_bytes", "cuda_max_memory_allocated_GB"),
         .host_bytes = stage_amount(stage, "cpu_memory_rss_bytes", "cpu_memory_rss_GB")});
  }
  record.breakdown = amounts(object_at(source, "breakdown"));
  for (const json& entry : array_at(source, "memory_rows")) {
    const json& row = entry_object(entry, "memory_rows");
    record.memory_rows.push_back({.part = text(row, "part"),
                                  .op = text(row, "op"),
                                  .on = text(row, "on"),
                                  .row = integer(row, "row").value_or(0),
                                  .after = amounts(object_at(row, "after")),
                                  .peak_bytes = number(row, "peak_bytes")});
  }
}

void read_time_parts(const json& source, Record& record) {
  for (const auto& [name, phase] : object_at(source, "phases").items()) {
    if (name == "layers") continue;
    if (const auto ms = number(entry_object(phase, name.c_str()), "ms")) record.phases[name] = *ms;
  }
  for (const auto& [name, entry] : object_at(source, "communication").items()) {
    const json& transfer = entry_object(entry, name.c_str());
    record.communication[name] = {.total_ms = number(transfer, "total_ms"),
                                  .exposed_ms = number(transfer, "exposed_ms"),
                                  .modelled_ms = number(transfer, "modelled_ms"),
                                  .modelled_exposed_ms = number(transfer, "modelled_exposed_ms"),
                                  .bytes = number(transfer, "bytes")};
  }
  for (const json& entry : array_at(source, "ranks")) {
    const json& rank = entry_object(entry, "ranks");
    record.ranks.push_back({.rank = integer(rank, "rank").value_or(0),
                            .avg_time_ms = number(rank, "avg_time_ms"),
                            .peak_memory_bytes = number(rank, "peak_memory_bytes"),
                            .memory_mean_bytes = number(rank, "memory_mean_bytes")});
  }
}

void read_throughput(const json& source, Record& record) {
  record.tokens_per_second = number(source, "tokens_per_second");
  record.mfu = number(source, "mfu");
  record.utilisation_percent = number(object_at(source, "gpu_state"), "utilisation_percent");
  record.sm_clock_mhz = number(object_at(source, "gpu_state"), "sm_clock_mhz");
  record.gpu_outside = text(object_at(source, "gpu_before"), "outside");
  record.cpu_others_percent = number(object_at(source, "cpu_during"), "others_percent");
  record.memory_mean_bytes = number(source, "memory_mean_bytes");
  record.end_to_end_seconds = number(source, "end_to_end_seconds");
  record.link_gb_per_s = number(source, "link_gb_per_s");
  const json& data = object_at(source, "data");
  record.data = {.source = text(data, "source"),
                 .tokenizer = text(data, "tokenizer"),
                 .loader_busy_ms = number(data, "loader_busy_ms"),
                 .loader_waited_ms = number(data, "loader_waited_ms"),
                 .load_ms = number(data, "load_ms"),
                 .steps_an_epoch = integer(data, "steps_an_epoch")};
}

Record read_record(const std::string& path) {
  json source;
  try {
    source = json::parse(read_file(path));
  } catch (const json::parse_error& error) {
    throw Damage(fmt::format("it is not whole JSON (byte {})", error.byte));
  } catch (const json::exception&) {
    throw Damage("it holds a number that is out of range");
  }
  if (!source.is_object()) throw Damage("it holds no JSON object");
  if (const auto schema = integer(source, "schema"); schema && *schema > kSchema) {
    throw Damage(fmt::format("its schema {} is newer than {}, the newest that this program knows", *schema, kSchema));
  }
  Record record;
  record.file = fs::path(path).filename().string();
  record.suite = text(source, "suite");
  record.experiment = text(source, "experiment");
  if (record.experiment.empty()) record.experiment = record.file.substr(0, record.file.size() - kSuffix.size());
  record.title = text(source, "title");
  record.outcome = text(source, "outcome");
  record.message = text(source, "message");
  record.mode = text(source, "mode");
  record.device = text(source, "device");
  record.command = text(source, "command");
  record.graph = text(source, "graph");
  record.attention = text(source, "attention");
  record.fused_kernels = text(source, "fused_kernels");
  read_throughput(source, record);
  record.order = integer(source, "order");
  record.seq_length = integer(source, "seq_length");
  record.batch_size = integer(source, "batch_size");
  record.total_batch_size = integer(source, "total_batch_size");
  record.num_gpus = integer(source, "num_gpus");
  record.world = integer(source, "world");
  record.simulated = flag(source, "simulated");
  record.modelled_step_ms = number(source, "modelled_step_ms");
  read_times(source, record);
  read_peak(source, record);
  read_memory(source, record);
  read_time_parts(source, record);
  for (const json& loss : array_at(source, "losses")) {
    if (!loss.is_number() && !loss.is_null()) wrong_type("losses", loss, "a number");
    record.losses.push_back(loss.is_null() ? std::nullopt : std::optional(loss.get<double>()));
  }
  for (const json& trace : array_at(source, "traces")) {
    if (!trace.is_string()) wrong_type("traces", trace, "a string");
    record.traces.push_back(trace.get<std::string>());
  }
  record.config = object_at(source, "config");
  record.build = object_at(source, "build");
  record.machine = object_at(source, "machine");
  if (record.outcome == "ok" && !(record.avg_time_ms && record.peak_memory_bytes))
    throw Damage(fmt::format("it says that all went well and holds no {}", record.avg_time_ms ? "peak memory"
                                                                           : record.peak_memory_bytes
                                                                               ? "time"
                                                                               : "time and no peak memory"));
  return record;
}

// A sweep repeats its titles: what else sets an experiment apart is added, in the end its file's name.
void give_labels(std::vector<Record>& records) {
  for (Record& record : records) record.label = record.title.empty() ? record.experiment : record.title;
  const auto tell_apart = [&](const auto& suffix) {
    std::map<std::string, int> count;
    for (const Record& record : records) ++count[record.label];
    for (Record& record : records) {
      const std::string more = count[record.label] > 1 ? suffix(record) : "";
      if (!more.empty()) record.label += ", " + more;
    }
  };
  tell_apart([](const Record& record) { return record.mode; });
  tell_apart([](const Record& record) { return record.seq_length ? fmt::format("T={}", *record.seq_length) : ""; });
  tell_apart([](const Record& record) { return record.batch_size ? fmt::format("B={}", *record.batch_size) : ""; });
  tell_apart([](const Record& record) { return record.file; });
}

std::string no_record_message(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!entry.is_directory(ignored)) continue;
    for (const auto& below : fs::directory_iterator(entry.path(), ignored)) {
      if (!below.path().filename().string().ends_with(kSuffix)) continue;
      return fmt::format("no *{} in '{}': the records lie below, in '{}'", kSuffix, folder, entry.path().string());
    }
  }
  return fmt::format("no *{} in '{}': pass the folder that `veil suite` or `veil profile` wrote", kSuffix, folder);
}

// A file that holds nothing would change the question that the others answer; alone it is shown as what it is.
void leave_empty_out(RecordFolder& folder) {
  const auto is_empty = [](const Record& record) {
    return record.ok() && !record.avg_time_ms && !record.peak_memory_bytes;
  };
  if (std::all_of(folder.records.begin(), folder.records.end(), is_empty)) return;
  for (const Record& record : folder.records) {
    if (is_empty(record)) folder.damaged.push_back({record.file, "it holds no time and no peak memory"});
  }
  std::erase_if(folder.records, is_empty);
}

// A report answers one suite's question; single profiles may stand beside it.
void refuse_mixed(const RecordFolder& folder) {
  std::map<std::string, int> suites;
  for (const Record& record : folder.records) {
    if (!record.suite.empty()) ++suites[record.suite];
  }
  if (suites.size() < 2) return;
  std::vector<std::string> parts;
  for (const auto& [suite, count] : suites) parts.push_back(fmt::format("{} ({})", suite, count));
  user_error("'{}' holds records of several suites, {}: a report answers one question; give each a folder of its own",
             folder.folder, join(parts, ", "));
}

std::vector<std::string> ordered(const std::vector<const Amounts*>& all, const std::vector<std::string>& known) {
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

}  // namespace

RecordFolder read_records(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) user_error("'{}' is not a folder: pass one that holds *{}", folder, kSuffix);
  std::vector<std::string> paths;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().ends_with(kSuffix)) paths.push_back(entry->path().string());
  }
  if (error) user_error("cannot read folder '{}': {}", folder, error.message());
  if (paths.empty()) throw UserError(no_record_message(folder));
  // By what stands before the ending: "fsdp" before "fsdp_memory".
  const auto stem = [](const std::string& path) {
    return std::string_view(path).substr(0, path.size() - kSuffix.size());
  };
  std::sort(paths.begin(), paths.end(), [&](const std::string& a, const std::string& b) { return stem(a) < stem(b); });
  RecordFolder result{.folder = folder, .records = {}, .damaged = {}};
  for (const std::string& path : paths) {
    try {
      result.records.push_back(read_record(path));
    } catch (const Damage& damage) {
      result.damaged.push_back({fs::path(path).filename().string(), damage.what()});
    } catch (const UserError& unreadable) {
      result.damaged.push_back({fs::path(path).filename().string(), unreadable.what()});
    }
  }
  leave_empty_out(result);
  if (result.records.empty()) {
    const DamagedRecord& first = result.damaged.front();
    user_error("none of {} in '{}' can be read; '{}': {}", quantity(std::ssize(paths), "record"), folder, first.file,
               first.reason);
  }
  std::stable_sort(result.records.begin(), result.records.end(), [](const Record& a, const Record& b) {
    return a.order.value_or(INT64_MAX) < b.order.value_or(INT64_MAX);
  });
  refuse_mixed(result);
  give_labels(result.records);
  return result;
}

std::optional<double> stage_bytes(const Record& record, const std::string& stage) {
  std::optional<double> most;
  for (const RecordStage& line : record.stages) {
    if (line.stage.starts_with(stage) && line.allocated_bytes) most = std::max(most.value_or(0), *line.allocated_bytes);
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
  return record.simulated && transfer.modelled_exposed_ms ? transfer.modelled_exposed_ms : transfer.exposed_ms;
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
    if (found != record.config.end() && found->is_string()) return canonical(found->get<std::string>());
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

}  // namespace veil
