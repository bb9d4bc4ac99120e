#include "suite/sweep.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/outputs.h"
#include "base/text.h"
#include "record/folder.h"
#include "record/repeats.h"
#include "suite/child.h"
#include "suite/cpu_load.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kAskedFile = "sweep.json";
// A record that is being made: readers ignore it.
constexpr const char* kRunningEnding = ".running.json";

std::string last_line(const std::string& text) {
  std::string last;
  for (const std::string& line : split(text, '\n')) {
    if (!line.empty()) last = line;
  }
  return last;
}

// Nothing if there is no record, or one that cannot be used.
std::optional<Record> read_if_whole(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  try {
    return record_from_json(parse_object(read_file(path)));
  } catch (const DamagedRecordError&) {
    return {};
  }
}

// Removes the unfinished files that a killed sweep of these experiments left.
void clear_leftovers(const std::string& folder, const std::vector<Experiment>& experiments) {
  std::error_code ignored;
  std::vector<fs::path> left;
  const auto is_leftover = [&](const std::string& name) {
    return std::any_of(experiments.begin(), experiments.end(), [&](const Experiment& experiment) {
      const std::string running = experiment.name + kRunningEnding,
                        record = fs::path(record_path("", experiment.name)).filename().string();
      return name == running || (name.ends_with(".tmp") && (name.rfind(running + ".", 0) == 0 ||
                                                            name.rfind(record + ".", 0) == 0));
    });
  };
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (is_leftover(entry.path().filename().string())) left.push_back(entry.path());
  }
  for (const fs::path& path : left) fs::remove(path, ignored);
}

class Sweep {
 public:
  Sweep(const std::vector<Experiment>& experiments, const SweepOptions& options,
        const OnChange& on_change)
      : experiments_(experiments),
        options_(options),
        on_change_(on_change),
        done_(experiments.size()) {}

  SweepResult run() {
    if (!asked_sweep(options_.folder)) claim_output_folder(options_.folder);
    ensure_folder_writable(options_.folder);
    clear_leftovers(options_.folder, experiments_);
    if (!options_.words.empty()) {
      const Json asked = {{"suite", options_.suite}, {"words", options_.words}};
      write_file_atomically(join_path(options_.folder, kAskedFile), asked.dump(1) + "\n");
    }
    const std::vector<Turn> turns = turns_of(experiments_, options_.repeat);
    for (size_t i = 0; i < turns.size() && !result_.interrupted; ++i)
      take(static_cast<int>(i), turns[i]);
    count();
    return std::move(result_);
  }

 private:
  std::string path_of(const Turn& turn) const {
    const std::string& name = experiments_[turn.experiment].name;
    if (options_.repeat == 1) return record_path(options_.folder, name);
    return record_path(join_path(options_.folder, "repeats"),
                       fmt::format("{}_r{}", name, turn.repeat + 1));
  }

  void take(int number, const Turn& turn) {
    const Experiment& experiment = experiments_[turn.experiment];
    const std::string path = path_of(turn);
    std::optional<Record> record;
    if (options_.resume) record = read_if_whole(path);
    const bool known =
        record && record->outcome == "ok" && record->arguments == experiment.arguments;
    if (known) {
      ++result_.skipped;
    } else {
      on_change_(number, experiment, nullptr);
      record = measure(turn);
      if (result_.interrupted) return;
      write_record(path, *record);
    }
    on_change_(number, experiment, &*record);
    std::vector<Record>& done = done_[turn.experiment];
    done.push_back(std::move(*record));
    if (options_.repeat == 1 || static_cast<int>(done.size()) < options_.repeat) return;
    done = {merged_repeats(done)};
    write_record(record_path(options_.folder, experiment.name), done.front());
  }

  Record measure(const Turn& turn) {
    const Experiment& experiment = experiments_[turn.experiment];
    const Json before = settle_gpus(options_.bounds, options_.settling);
    const std::string log = join_path(options_.folder, experiment.name + ".log");
    const std::string running = join_path(options_.folder, experiment.name + kRunningEnding);
    std::error_code ignored;
    fs::remove(running, ignored);
    std::vector<std::string> words = {own_program(), "profile"};
    words.insert(words.end(), experiment.arguments.begin(), experiment.arguments.end());
    words.insert(words.end(),
                 {"--output", running, "--output-dir", join_path(options_.folder, "traces")});
    const CpuLoad load;
    const ChildEnd end = run_child(words, log, options_.timeout_s);
    const Json during = load.so_far();
    const std::optional<Record> left = end.timed_out ? std::nullopt : read_if_whole(running);
    fs::remove(running, ignored);
    result_.interrupted = end.interrupted;
    if (end.interrupted) return {};
    Record record;
    if (left) {
      record = *left;
    } else {
      record.outcome = "error";
      record.message = end.timed_out
                           ? fmt::format("ended after {} s (timeout)", *options_.timeout_s)
                           : fmt::format("exit code {}: {}", end.code, last_line(read_file(log)));
    }
    record.gpu_before = before;
    if (record.device == "cpu") record.cpu_during = cpu_from_json(during);
    record.suite = options_.suite;
    record.order = static_cast<int64_t>(turn.experiment);
    record.experiment = experiment.name;
    record.title = experiment.title;
    record.arguments = experiment.arguments;  // a resumed sweep with other ones measures again
    return record;
  }

  void count() {
    for (std::vector<Record>& done : done_) {
      if (done.empty()) continue;
      if (done.front().outcome == "oom") ++result_.out_of_memory;
      if (done.front().outcome == "error") ++result_.failed;
      result_.records.push_back(std::move(done.front()));
    }
  }

  const std::vector<Experiment>& experiments_;
  const SweepOptions& options_;
  const OnChange& on_change_;
  std::vector<std::vector<Record>> done_;  // by experiment, its repeats
  SweepResult result_;
};

}  // namespace

std::string own_program() {
  return fs::read_symlink("/proc/self/exe").string();
}

std::optional<AskedSweep> asked_sweep(const std::string& folder) {
  const std::string path = join_path(folder, kAskedFile);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  AskedSweep result;
  try {
    const Json asked = parse_json<Json>(read_file(path));
    result.suite = asked.at("suite").get<std::string>();
    result.words = asked.at("words").get<std::vector<std::string>>();
  } catch (const Json::exception&) {
    return {};
  }
  return result;
}

std::vector<Turn> turns_of(const std::vector<Experiment>& experiments, int repeat) {
  std::vector<size_t> order;
  std::set<std::string> seen;
  for (const Experiment& first : experiments) {
    if (!seen.insert(first.group).second) continue;
    for (size_t i = 0; i < experiments.size(); ++i) {
      if (experiments[i].group == first.group) order.push_back(i);
    }
  }
  std::vector<Turn> turns;
  for (int r = 0; r < repeat; ++r) {
    for (const size_t experiment : order) turns.push_back({experiment, r});
    std::reverse(order.begin(), order.end());
  }
  return turns;
}

SweepResult run_sweep(const std::vector<Experiment>& experiments, const SweepOptions& options,
                      const OnChange& on_change) {
  return Sweep(experiments, options, on_change).run();
}

}  // namespace veil
