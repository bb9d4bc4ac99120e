#include "suite/sweep.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "suite/child.h"
#include "suite/cpu_load.h"
#include "suite/repeats.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kAskedFile = "sweep.json";
constexpr const char* kRunningEnding = ".running.json";  // a record that is being made: no reader takes it for one

std::string last_line(const std::string& text) {
  std::string last;
  for (const std::string& line : split(text, '\n')) {
    if (!line.empty()) last = line;
  }
  return last;
}

bool read_record(const std::string& path, Json& record) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return false;
  record = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  return record.is_object();
}

// What a sweep that was killed left half done.
void clear_leftovers(const std::string& folder) {
  std::error_code ignored;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kRunningEnding) || (name.ends_with(".tmp") && name.find(".json.") != std::string::npos))
      left.push_back(entry.path());
  }
  for (const fs::path& path : left) fs::remove(path, ignored);
}

class Sweep {
 public:
  Sweep(const std::vector<PlannedExperiment>& plan, const SweepOptions& options, const OnChange& on_change)
      : plan_(plan), options_(options), on_change_(on_change), done_(plan.size()) {}

  SweepResult run() {
    ensure_folder_writable(options_.folder);
    clear_leftovers(options_.folder);
    if (!options_.words.empty()) {
      const Json asked = {{"suite", options_.suite}, {"words", options_.words}};
      write_file_atomically(join_path(options_.folder, kAskedFile), asked.dump(1) + "\n");
    }
    const std::vector<Turn> turns = turns_of(plan_, options_.repeat);
    for (size_t i = 0; i < turns.size() && !result_.interrupted; ++i) take(static_cast<int>(i), turns[i]);
    count();
    return std::move(result_);
  }

 private:
  std::string path_of(const Turn& turn) const {
    const std::string& name = plan_[turn.experiment].name;
    if (options_.repeat == 1) return record_path(options_.folder, name);
    return record_path(join_path(options_.folder, "repeats"), fmt::format("{}_r{}", name, turn.repeat + 1));
  }

  void take(int number, const Turn& turn) {
    const PlannedExperiment& experiment = plan_[turn.experiment];
    const std::string path = path_of(turn);
    Json record;
    const bool known = options_.resume && read_record(path, record) && record.value("outcome", "") == "ok" &&
                       record.value("arguments", Json()) == Json(experiment.arguments);
    if (known) {
      ++result_.skipped;
    } else {
      on_change_(number, experiment, nullptr);
      record = measure(turn);
      if (result_.interrupted) return;
      write_file_atomically(path, record.dump(1) + "\n");
    }
    on_change_(number, experiment, &record);
    std::vector<Json>& done = done_[turn.experiment];
    done.push_back(std::move(record));
    if (options_.repeat == 1 || static_cast<int>(done.size()) < options_.repeat) return;
    done = {merged_repeats(done)};
    write_file_atomically(record_path(options_.folder, experiment.name), done.front().dump(1) + "\n");
  }

  Json measure(const Turn& turn) {
    const PlannedExperiment& experiment = plan_[turn.experiment];
    const Json before = settle_gpus(options_.bounds, options_.settling);
    const std::string log = join_path(options_.folder, experiment.name + ".log");
    const std::string running = join_path(options_.folder, experiment.name + kRunningEnding);
    std::error_code ignored;
    fs::remove(running, ignored);
    std::vector<std::string> words = {own_program(), "profile"};
    words.insert(words.end(), experiment.arguments.begin(), experiment.arguments.end());
    words.insert(words.end(), {"--output", running, "--output-dir", join_path(options_.folder, "traces")});
    const CpuLoad load;
    const ChildEnd end = run_child(words, log, options_.timeout_s);
    const Json during = load.so_far();
    Json record;
    if (end.interrupted) {
      result_.interrupted = true;
    } else if (end.timed_out || !read_record(running, record)) {
      const std::string why = end.timed_out ? fmt::format("ended after {} s (--timeout)", *options_.timeout_s)
                                            : fmt::format("exit code {}: {}", end.code, last_line(read_file(log)));
      record = {{"schema", 1}, {"outcome", "error"}, {"message", why}};
    }
    fs::remove(running, ignored);
    if (result_.interrupted) return record;
    if (!before.is_null()) record["gpu_before"] = before;
    if (record.value("device", "") == "cpu" && !during.is_null()) record["cpu_during"] = during;
    record["suite"] = options_.suite;
    record["order"] = turn.experiment;
    record["experiment"] = experiment.name;
    record["title"] = experiment.title;
    record["arguments"] = experiment.arguments;  // a resumed sweep with other ones measures again
    return record;
  }

  void count() {
    for (std::vector<Json>& done : done_) {
      if (done.empty()) continue;
      const std::string outcome = done.front().value("outcome", "error");
      if (outcome == "oom") ++result_.out_of_memory;
      if (outcome == "error") ++result_.failed;
      result_.records.push_back(std::move(done.front()));
    }
  }

  const std::vector<PlannedExperiment>& plan_;
  const SweepOptions& options_;
  const OnChange& on_change_;
  std::vector<std::vector<Json>> done_;  // by experiment, its repeats
  SweepResult result_;
};

}  // namespace

std::string record_path(const std::string& folder, const std::string& name) {
  return join_path(folder, name + "_result.json");
}

std::string own_program() {
  return fs::read_symlink("/proc/self/exe").string();
}

std::string unused_run_folder(const std::string& parent) {
  std::string folder = join_path(parent, "run_" + local_time("%Y%m%d_%H%M%S"));
  for (int i = 2; fs::exists(folder); ++i)
    folder = join_path(parent, fmt::format("run_{}_{}", local_time("%Y%m%d_%H%M%S"), i));
  return folder;
}

std::string new_run_folder(const std::string& parent) {
  const std::string folder = unused_run_folder(parent);
  ensure_folder_writable(folder);
  return folder;
}

std::string newest_run_folder(const std::string& parent) {
  std::string newest;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory(ignored) && name.rfind("run_", 0) == 0) newest = std::max(newest, name);
  }
  if (newest.empty()) user_error("--resume: there is no run_* folder in {}", parent);
  return join_path(parent, newest);
}

std::optional<AskedSweep> asked_sweep(const std::string& folder) {
  Json asked;
  if (!read_record(join_path(folder, kAskedFile), asked)) return {};
  AskedSweep result;
  try {
    result.suite = asked.at("suite").get<std::string>();
    result.words = asked.at("words").get<std::vector<std::string>>();
  } catch (const Json::exception&) {
    return {};
  }
  return result;
}

std::vector<Turn> turns_of(const std::vector<PlannedExperiment>& plan, int repeat) {
  std::vector<size_t> order;
  std::set<std::string> seen;
  for (const PlannedExperiment& first : plan) {
    if (!seen.insert(first.group).second) continue;
    for (size_t i = 0; i < plan.size(); ++i) {
      if (plan[i].group == first.group) order.push_back(i);
    }
  }
  std::vector<Turn> turns;
  for (int r = 0; r < repeat; ++r) {
    for (const size_t experiment : order) turns.push_back({experiment, r});
    std::reverse(order.begin(), order.end());
  }
  return turns;
}

SweepResult run_sweep(const std::vector<PlannedExperiment>& plan, const SweepOptions& options,
                      const OnChange& on_change) {
  return Sweep(plan, options, on_change).run();
}

}  // namespace veil
