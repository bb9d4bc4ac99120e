#include "cli/command.h"

#include <c10/util/Exception.h>

#include <exception>
#include <set>

#include "base/build_info.h"
#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/terminal.h"
#include "run/config_fields.h"
#include "tensor/out_of_memory.h"

namespace veil {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"doctor", "what this build and this machine have, and what is missing", run_doctor},
      {"fetch", "a model's files from a hub into the Hugging Face cache", run_fetch},
      {"find-batch", "the largest batch that fits, for one strategy or all", run_find_batch},
      {"plan", "a step's program and its bytes, without running it", run_plan},
      {"privacy", "epsilon of a private run, or the sigma that a budget asks for", run_privacy},
      {"profile", "one configuration, measured: time, memory, phases, communication", run_profile},
      {"suite", "a question answered by several experiments in one table", run_suite},
      {"sample", "a picture of images drawn from a trained diffusion model", run_sample},
      {"train", "a language model on your own text, or a diffusion transformer on your images",
       run_train},
      {"report", "tables, plots and one page from a folder of records", run_report},
      {"tokenize", "a folder of text as a token store, which is mapped and not read again",
       run_tokenize},
      {"verify", "private steps held against one sample at a time in fp64", run_verify_command},
  };
  return table;
}

namespace {

void print_commands() {
  fmt::print("usage: veil COMMAND [options]\n\n");
  std::vector<std::vector<std::string>> rows;
  for (const Command& command : commands()) rows.push_back({command.name, command.help});
  fmt::print(
      "{}\n`veil COMMAND --help` lists a command's options, `veil --version` says what this is.\n",
      align_columns(rows, 2));
}

int run_command(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
      arguments[0] == "help") {
    print_commands();
    return kExitDone;
  }
  if (arguments[0] == "--version") {
    const BuildInfo& build = build_info();
    fmt::print("veil {}{}\n", build.version, build.commit.empty() ? "" : " (" + build.commit + ")");
    return kExitDone;
  }
  std::vector<std::string> known;
  for (const Command& command : commands()) {
    if (canonical(arguments[0]) == command.name)
      return command.run({arguments.begin() + 1, arguments.end()});
    known.push_back(command.name);
  }
  const std::string meant = nearest(arguments[0], known);
  user_error("unknown command '{}': {}allowed are {}", arguments[0],
             meant.empty() ? "" : "did you mean " + meant + "? ", join(known, ", "));
}

// The fields that an error may name and that are options of some command.
const std::set<std::string>& known_fields() {
  static const std::set<std::string> all = [] {
    std::set<std::string> found = {"token",    "output", "endpoint",
                                   "revision", "json",   "clip_function"};
    RunConfig config;
    visit_fields(config, [&](const char* field, const auto&) { found.insert(field); });
    return found;
  }();
  return all;
}

void complain(const std::string& message) {
  std::fflush(stdout);  // where both go to one file, as in a suite's log, the error comes last
  fmt::print(stderr, "{} {}\n", colored(stderr, Color::red, "veil:"), message);
}

}  // namespace

std::string failure_text(const std::exception& error) {
  if (const auto reason = out_of_memory_reason(error))
    return fmt::format(
        "out of memory: {} ({} of host memory are available); try a smaller --batch-size, a "
        "shorter --seq-length or a smaller model",
        *reason, format_bytes(available_host_bytes()));
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error))
    return fmt::format("internal error: {}", torch->what_without_backtrace());
  return fmt::format("internal error: {}", error.what());
}

std::string in_options(const UserError& error) {
  const std::string text = error.what();
  std::string shown;
  size_t at = 0;
  if (!error.field().empty() && text.rfind(error.field(), 0) == 0) {
    shown = "--" + stored_key(error.field());
    at = error.field().size();
  }
  while (at < text.size()) {
    const size_t open = text.find('`', at);
    const size_t close = open == std::string::npos ? open : text.find('`', open + 1);
    if (close == std::string::npos) break;
    const std::string word = text.substr(open + 1, close - open - 1);
    const bool field = known_fields().count(word) > 0;
    shown += text.substr(at, open - at);
    shown += field ? "--" + stored_key(word) : text.substr(open, close + 1 - open);
    at = close + 1;
  }
  return shown + text.substr(at);
}

int on_ranks(const RankInfo& info, const std::optional<RankStart>& start,
             const std::function<int()>& work) {
  if (info.launcher == Launcher::none)
    return start ? launch_local_ranks(start->ranks, start->words, start->on_signal) : work();
  World world(info);
  try {
    return work();
  } catch (const UserError& error) {
    world.fail(in_options(error), error.exit_code());
  } catch (const std::exception& error) {
    world.fail(out_of_memory_reason(error) ? failure_text(error) : error.what(), kExitFailed);
  }
}

int run_veil(const std::vector<std::string>& arguments) {
  try {
    return run_command(arguments);
  } catch (const UserError& error) {
    complain(in_options(error));
    return error.exit_code();
  } catch (const std::exception& error) {
    complain(failure_text(error));
    return kExitFailed;
  }
}

}  // namespace veil
