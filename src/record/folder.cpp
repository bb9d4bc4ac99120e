#include "record/folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/quantity.h"
#include "base/shell_word.h"
#include "base/text.h"

namespace veil {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kSuffix = "_result.json";

Record read_record(const std::string& path) {
  Record record = record_from_json(parse_object(read_file(path)));
  record.file = fs::path(path).filename().string();
  if (record.experiment.empty())
    record.experiment = record.file.substr(0, record.file.size() - kSuffix.size());
  return record;
}

// Titles may repeat: what else sets an experiment apart is added, finally the name of its file.
void give_labels(std::vector<Record>& records) {
  for (Record& record : records)
    record.label = record.title.empty() ? record.experiment : record.title;
  const auto tell_apart = [&](const auto& suffix) {
    std::map<std::string, int> count;
    for (const Record& record : records) ++count[record.label];
    for (Record& record : records) {
      const std::string more = count[record.label] > 1 ? suffix(record) : "";
      if (!more.empty()) record.label += ", " + more;
    }
  };
  tell_apart([](const Record& record) { return record.mode; });
  tell_apart([](const Record& record) {
    return record.seq_length ? fmt::format("T={}", *record.seq_length) : "";
  });
  tell_apart([](const Record& record) {
    return record.batch_size ? fmt::format("B={}", *record.batch_size) : "";
  });
  tell_apart([](const Record& record) { return record.file; });
}

// The folders below that have a training run's metrics, the oldest first.
std::vector<std::string> trainings_below(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (fs::is_regular_file(entry.path() / "metrics.jsonl", ignored))
      found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());  // their names have the date
  return found;
}

std::string training_hint(const std::vector<std::string>& runs) {
  const std::string newest = shell_word(runs.back());
  if (runs.size() == 1)
    return fmt::format("a training run lies below: `veil report {}` shows it", newest);
  return fmt::format(
      "{} training runs lie below: `veil report {}` shows one, `veil report {} {}` compares "
      "several",
      runs.size(), newest, shell_word(runs[runs.size() - 2]), newest);
}

std::string no_record_message(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!entry.is_directory(ignored)) continue;
    for (const auto& below : fs::directory_iterator(entry.path(), ignored)) {
      if (!below.path().filename().string().ends_with(kSuffix)) continue;
      return fmt::format("no *{} in '{}': the records lie below, in '{}'", kSuffix, folder,
                         entry.path().string());
    }
  }
  if (const std::vector<std::string> runs = trainings_below(folder); !runs.empty())
    return fmt::format("no *{} in '{}', but {}", kSuffix, folder, training_hint(runs));
  return fmt::format("no *{} in '{}': pass the folder that `veil suite` or `veil profile` wrote",
                     kSuffix, folder);
}

// An empty record among others would change how they are recognised; on its own it is shown.
void leave_empty_out(RecordFolder& folder) {
  const auto is_empty = [](const Record& record) {
    return record.ok() && !record.avg_time_ms && !record.peak_memory_bytes;
  };
  if (std::all_of(folder.records.begin(), folder.records.end(), is_empty)) return;
  for (const Record& record : folder.records) {
    if (is_empty(record))
      folder.damaged.push_back({record.file, "it holds no time and no peak memory"});
  }
  std::erase_if(folder.records, is_empty);
}

// A report answers the question of one suite; single profiles may be in the same folder.
void refuse_mixed(const RecordFolder& folder) {
  std::map<std::string, int> suites;
  for (const Record& record : folder.records) {
    if (!record.suite.empty()) ++suites[record.suite];
  }
  if (suites.size() < 2) return;
  std::vector<std::string> parts;
  for (const auto& [suite, count] : suites) parts.push_back(fmt::format("{} ({})", suite, count));
  user_error(
      "'{}' holds records of several suites, {}: a report answers one question; give each a folder "
      "of its own",
      folder.folder, join(parts, ", "));
}

}  // namespace

std::string record_path(const std::string& folder, const std::string& name) {
  return join_path(folder, name + std::string(kSuffix));
}

void write_record(const std::string& path, const Record& record) {
  write_file_atomically(path, to_json(record).dump(1) + "\n");
}

RecordFolder read_records(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    user_error("'{}' is not a folder: pass one that holds *{}", folder, kSuffix);
  std::vector<std::string> paths;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string().ends_with(kSuffix))
      paths.push_back(entry->path().string());
  }
  if (error) user_error("cannot read folder '{}': {}", folder, error.message());
  if (paths.empty()) throw UserError(no_record_message(folder));
  // By the name without the ending: "fsdp" before "fsdp_memory".
  const auto stem = [](const std::string& path) {
    return std::string_view(path).substr(0, path.size() - kSuffix.size());
  };
  std::sort(paths.begin(), paths.end(),
            [&](const std::string& a, const std::string& b) { return stem(a) < stem(b); });
  RecordFolder result{.folder = folder, .records = {}, .damaged = {}};
  for (const std::string& path : paths) {
    try {
      result.records.push_back(read_record(path));
    } catch (const DamagedRecordError& damage) {
      result.damaged.push_back({fs::path(path).filename().string(), damage.what()});
    } catch (const UserError& unreadable) {
      result.damaged.push_back({fs::path(path).filename().string(), unreadable.what()});
    }
  }
  leave_empty_out(result);
  if (result.records.empty()) {
    const DamagedRecord& first = result.damaged.front();
    user_error("none of {} in '{}' can be read; '{}': {}", quantity(std::ssize(paths), "record"),
               folder, first.file, first.reason);
  }
  std::stable_sort(result.records.begin(), result.records.end(),
                   [](const Record& a, const Record& b) {
                     return a.order.value_or(INT64_MAX) < b.order.value_or(INT64_MAX);
                   });
  refuse_mixed(result);
  give_labels(result.records);
  return result;
}

}  // namespace veil
