#include "suite/sweep.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Runs the program to its end with its output in `log`; answers its exit code, or 128 + the signal that ended it.
int run_logged(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child < 0) user_error("cannot start {}: {}", words[0], std::strerror(errno));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // a suite that is killed leaves nothing running
    const int nothing = open("/dev/null", O_RDONLY), out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const bool ready = getppid() == parent && nothing >= 0 && out >= 0 && dup2(nothing, 0) >= 0 && dup2(out, 1) >= 0 &&
                       dup2(out, 2) >= 0;
    if (ready) execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

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

SweepResult run_sweep(const std::vector<PlannedExperiment>& plan, const SweepOptions& options,
                      const std::function<void(int, const PlannedExperiment&, const Json*)>& on_change) {
  SweepResult result;
  ensure_folder_writable(options.folder);
  for (size_t i = 0; i < plan.size(); ++i) {
    const PlannedExperiment& experiment = plan[i];
    const std::string path = record_path(options.folder, experiment.name);
    Json record;
    const bool known = options.resume && read_record(path, record) && record.value("outcome", "") == "ok" &&
                       record.value("arguments", Json()) == Json(experiment.arguments);
    if (known) {
      ++result.skipped;
    } else {
      on_change(static_cast<int>(i), experiment, nullptr);
      std::error_code ignored;
      fs::remove(path, ignored);
      const std::string log = join_path(options.folder, experiment.name + ".log");
      std::vector<std::string> words = {own_program(), "profile"};
      words.insert(words.end(), experiment.arguments.begin(), experiment.arguments.end());
      words.insert(words.end(), {"--output", path, "--output-dir", join_path(options.folder, "traces")});
      const int code = run_logged(words, log);
      record = Json();
      if (!read_record(path, record))
        record = {{"schema", 1},
                  {"outcome", "error"},
                  {"message", fmt::format("exit code {}: {}", code, last_line(read_file(log)))}};
      record["suite"] = options.suite;
      record["order"] = i;
      record["experiment"] = experiment.name;
      record["title"] = experiment.title;
      record["arguments"] = experiment.arguments;  // a resumed sweep with other ones measures again
      write_file_atomically(path, record.dump(1) + "\n");
    }
    const std::string outcome = record.value("outcome", "error");
    if (outcome == "oom") ++result.out_of_memory;
    if (outcome == "error") ++result.failed;
    on_change(static_cast<int>(i), experiment, &record);
    result.records.push_back(std::move(record));
  }
  return result;
}

}  // namespace veil
