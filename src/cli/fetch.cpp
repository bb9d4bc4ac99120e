// veil fetch: a model's files from a hub into the cache that `--model org/name` looks in.
#include <algorithm>

#include "base/clock.h"
#include "base/files.h"
#include "base/outputs.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/hub_environment.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "data/hub_fetch.h"

namespace veil {
namespace {

// One line that grows on a terminal; elsewhere one line per file.
class FetchLine {
 public:
  void show(const FetchProgress& now) {
    if (!now.note.empty()) {
      line_.clear();
      fmt::print(stderr, "{}\n", now.note);
      return;
    }
    const bool due =
        is_terminal(stderr) ? steady_ms() - shown_ms_ >= 100 || now.file_ended : now.file_ended;
    if (!due) return;
    shown_ms_ = steady_ms();
    const double seconds = std::max(1e-3, (steady_ms() - begin_ms_) / 1000);
    const auto rate = static_cast<int64_t>(static_cast<double>(now.received_bytes) / seconds);
    const int64_t to_come = now.total_bytes - now.done_bytes;
    line_.show(fmt::format("{} {} of {}, {}/s, {}", progress_bar(now.done_bytes, now.total_bytes),
                           format_bytes(now.done_bytes), format_bytes(now.total_bytes),
                           format_bytes(rate), now.file),
               now.received_bytes, now.received_bytes + to_come);
  }

 private:
  Progress line_;
  double begin_ms_ = steady_ms(), shown_ms_ = 0;
};

nlohmann::json model_json(const FetchRequest& request, const FetchedModel& model,
                          const std::string& command) {
  nlohmann::json files = nlohmann::json::array();
  for (const FetchedFile& file : model.files) {
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"received_bytes", file.received_bytes},
                     {"checksum", file.checksum},
                     {"state", name_of(file.state)}});
  }
  return {{"command", command},         {"model", request.model},   {"revision", request.revision},
          {"commit", model.commit},     {"folder", model.folder},   {"endpoint", request.endpoint},
          {"dry_run", request.dry_run}, {"files", std::move(files)}};
}

std::string model_table(const FetchRequest& request, const FetchedModel& model) {
  Table table({"file", "size", "state"});
  int64_t total = 0, received = 0, absent = 0;
  for (const FetchedFile& file : model.files) {
    table.row({printable(file.name), format_bytes(file.bytes), name_of(file.state)});
    total += file.bytes;
    received += file.received_bytes;
    if (file.state == FileState::absent) absent += file.bytes;
  }
  const std::string sum =
      request.dry_run
          ? fmt::format("{} in all, {} to download", format_bytes(total), format_bytes(absent))
          : fmt::format("{} in all, {} downloaded", format_bytes(total), format_bytes(received));
  return fmt::format("{}{}\n{}\n", table.text(), sum, model.folder);
}

}  // namespace

int run_fetch(const CommandCall& call) {
  FetchRequest request;
  std::string token, json;
  bool overwrite = false;
  request.endpoint = hub_endpoint_from_environment();
  request.authorities = authorities_from_environment();
  request.cache_root = hub_cache_root(hub_variables_from_environment());
  Options options("fetch",
                  "downloads a model into the Hugging Face cache; a fetch that was cut off goes on "
                  "where it ended");
  options.add("model", request.model,
              {.help = "the hub's name of the model, as in org/name",
               .positional = true,
               .required = true,
               .value = "MODEL"});
  options.add("revision", request.revision, {.help = "branch, tag or commit"});
  options.add("token", token,
              {.help = "access token; prefer HF_TOKEN or the hub's own login, because others can "
                       "see a command line",
               .secret = true});
  options.add("endpoint", request.endpoint,
              {.help = "the hub's address",
               .value = "URL",
               .origin = "HF_ENDPOINT, else https://huggingface.co"});
  options.add("cache-dir", request.cache_root,
              {.help = "the cache",
               .value = "FOLDER",
               .origin = "HF_HUB_CACHE, HF_HOME/hub, else ~/.cache/huggingface/hub"});
  options.add("all", request.all,
              {.help = "every file, not only configuration, tokenizer and safetensors"});
  options.add("dry-run", request.dry_run,
              {.help = "say what would be downloaded, and write nothing"});
  options.add(
      "json", json,
      {.help = "write it all as JSON, to stdout without a FILE", .bare = "-", .value = "FILE"});
  add_overwrite_option(options, overwrite);
  if (!options.parse_call(call)) return kExitDone;
  if (!json.empty() && json != "-") check_output_file(json, overwrite);
  request.token = token.empty() ? hub_token_from_environment() : token;

  FetchedModel model;
  {
    FetchLine line;
    model = fetch_model(request, [&](const FetchProgress& now) { line.show(now); });
  }
  if (json != "-") fmt::print("{}", model_table(request, model));
  if (json.empty()) return kExitDone;
  const std::string text = model_json(request, model, options.command_line())
                               .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
                           "\n";
  if (json == "-") {
    fmt::print("{}", text);
  } else {
    write_file_atomically(json, text);
  }
  return kExitDone;
}

}  // namespace veil
