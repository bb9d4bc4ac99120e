#include "cli/command.h"

#include <c10/util/Exception.h>

#include <exception>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "base/utf8.h"
#include "cli/exit_codes.h"
#include "cli/terminal.h"
#include "run/config_fields.h"
#include "suite/suite.h"
#include "tensor/out_of_memory.h"

namespace veil {

namespace {

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const Suite& suite : suites()) names.push_back(suite.name);
  return names;
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"train", "train a language model on text or a diffusion transformer on images", run_train,
       "train"},
      {"sample", "write text with a language model, or draw images from a diffusion model",
       run_sample, "train"},
      {"evaluate", "measure perplexity, accuracy or exact matches of a model, before and after",
       run_evaluate, "train"},
      {"fetch", "download a model from a hub into the Hugging Face cache", run_fetch, "train"},
      {"data",
       "show what would be trained on: counts, lengths, and samples with the trained tokens",
       run_data, "train"},
      {"tokenize", "turn a folder of text into a token store, which loads at once", run_tokenize,
       "train"},
      {"plan", "show a step's operations, memory and clipping costs without running it", run_plan,
       "understand"},
      {"privacy",
       "compute the epsilon of a run, the noise that a budget needs, or both over batch sizes",
       run_privacy,
       "understand",
       {"epsilon", "sigma", "explore"}},
      {"report", "turn a folder of records into tables, plots and one page", run_report,
       "understand"},
      {"profile", "measure one configuration: time, memory, phases, communication", run_profile,
       "measure"},
      {"find-batch", "find the largest batch that fits, for one strategy or all", run_find_batch,
       "measure"},
      {"suite", "run several experiments that answer one question", run_suite, "measure",
       suite_names()},
      {"doctor", "list what this build and this machine have, and what is missing", run_doctor,
       "check"},
      {"verify", "compare private steps with one sample at a time in fp64", run_verify_command,
       "check"},
      {"audit",
       "measure a private run's mechanism, and bound its epsilon from below",
       run_audit,
       "check",
       {"mechanism", "canary"}},
      {"version", "print the version", run_version, "the program"},
      {"completion", "print a completion script for bash, zsh or fish", run_completion,
       "the program"},
      {"man", "print the man page", run_man, "the program"},
  };
  return table;
}

std::vector<OptionTable> option_tables() {
  std::vector<OptionTable> tables;
  CommandCall call;
  call.describe = [&](const OptionTable& table) { tables.push_back(table); };
  for (const Command& command : commands()) {
    if (command.words.empty()) command.run(call);
    for (const std::string& word : command.words) {
      CommandCall with_word = call;
      with_word.arguments = {word};
      command.run(with_word);
    }
  }
  return tables;
}

namespace {

void print_commands() {
  fmt::print(
      "usage: veil COMMAND [options]\n"
      "Veil trains and profiles models under differential privacy.\n\n"
      "examples:\n"
      "  veil train --model Qwen/Qwen2.5-0.5B --data my_texts --epsilon 8 --delta 1e-6\n"
      "  veil plan --memory --model llama3.1-8b --world 8\n"
      "  veil profile --model gpt2 --mode auto --batch-size 4 --seq-length 256\n");
  std::string group;
  for (const Command& command : commands()) {
    if (command.group != group) fmt::print("\n{}:\n", group = command.group);
    fmt::print("  {:<12}{}\n", command.name, command.help);
  }
  fmt::print("  {:<12}show a command's options, as `veil COMMAND --help` does\n", "help");
  fmt::print("\nexit codes:\n");
  for (const auto& [code, meaning] : kExitCodes) fmt::print("  {:<12}{}\n", code, meaning);
}

// `veil help suite linear`, `veil help train privacy`: the same as --help behind the command.
std::vector<std::string> asked_for_help(const std::vector<std::string>& words) {
  std::vector<std::string> arguments(words.begin() + 1, words.end());
  size_t before = 1;
  for (const Command& command : commands()) {
    if (canonical(arguments[0]) == command.name && !command.words.empty() && arguments.size() > 1)
      before = 2;
  }
  arguments.insert(arguments.begin() + static_cast<int64_t>(before), "--help");
  return arguments;
}

// Paths go into JSON files, which are UTF-8: one that is not would lose a run when its first
// checkpoint is written. The working folder is a part of every path.
void expect_utf8(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (find_invalid_utf8(argument) != std::string::npos)
      user_error("the argument '{}' is not UTF-8: allowed are names in UTF-8; rename the file",
                 printable(argument));
  }
  std::error_code unknown;
  const std::string here = std::filesystem::current_path(unknown).string();
  if (find_invalid_utf8(here) != std::string::npos)
    user_error("the working folder '{}' is not UTF-8: allowed are names in UTF-8; rename it",
               printable(here));
}

int run_command(std::vector<std::string> arguments) {
  expect_utf8(arguments);
  if (arguments.size() > 1 && arguments[0] == "help") arguments = asked_for_help(arguments);
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
      arguments[0] == "help") {
    print_commands();
    return kExitDone;
  }
  if (arguments[0] == "--version") {
    fmt::print("{}\n", version_text());
    return kExitDone;
  }
  std::vector<std::string> known;
  for (const Command& command : commands()) {
    if (canonical(arguments[0]) == command.name)
      return command.run({.arguments = {arguments.begin() + 1, arguments.end()}});
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
  std::fflush(stdout);  // if both go to one file, as in a suite's log, the error comes last
  fmt::print(stderr, "{} {}\n", colored(stderr, Color::red, "veil:"),
             escape_controls(message, /*keep_lines=*/true));
}

}  // namespace

std::string failure_text(const std::exception& error) {
  if (const auto reason = out_of_memory_reason(error))
    return fmt::format(
        "out of memory: {} ({} of host memory are available); try a smaller --batch-size, a "
        "shorter --seq-length or a smaller model",
        *reason, format_bytes(available_host_bytes()));
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return fmt::format("'{}': {}", file->path1().string(), file->code().message());
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
  } catch (const std::filesystem::filesystem_error& error) {
    world.fail(failure_text(error), kExitUsage);
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
  } catch (const std::filesystem::filesystem_error& error) {
    complain(failure_text(error));  // a full disk, a folder that is not allowed
    return kExitUsage;
  } catch (const std::exception& error) {
    complain(failure_text(error));
    return kExitFailed;
  }
}

}  // namespace veil
