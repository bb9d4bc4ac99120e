// The commands of veil. One file a command, src/cli/<command>.cpp; a new one is declared below and
// gets its line in command.cpp.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options.h"
#include "comm/launch.h"

namespace veil {

// The answer of `run` is the exit code (base/error.h).
struct Command {
  const char* name;
  const char* help;
  int (*run)(const CommandCall& call);
  const char* group;  // under which `veil --help` lists it
  // The words that follow the name and have options of their own; none for most commands.
  std::vector<std::string> words = {};
};
const std::vector<Command>& commands();

// The options of every command, `veil suite NAME` and the like each apart.
std::vector<OptionTable> option_tables();

int run_audit(const CommandCall& call);
int run_completion(const CommandCall& call);
int run_data(const CommandCall& call);
int run_doctor(const CommandCall& call);
int run_fetch(const CommandCall& call);
int run_find_batch(const CommandCall& call);
int run_man(const CommandCall& call);
int run_privacy(const CommandCall& call);
int run_plan(const CommandCall& call);
int run_profile(const CommandCall& call);
int run_suite(const CommandCall& call);
int run_sample(const CommandCall& call);
int run_evaluate(const CommandCall& call);
int run_train(const CommandCall& call);
int run_report(const CommandCall& call);
int run_tokenize(const CommandCall& call);
int run_verify_command(const CommandCall& call);
int run_version(const CommandCall& call);
std::string version_text();  // "veil 0.1.0 (commit)"

// Local ranks to start: each is this program with these words.
struct RankStart {
  int ranks = 1;
  std::vector<std::string> words;
  OnSignal on_signal = OnSignal::end_ranks;
};
// The one place where ranks are started and joined. A process that no launcher started starts them
// and waits, if `start` names some, or else does the work alone; one that a launcher started
// joins the others first, and what the work throws ends them all with one message. Answers the exit
// code.
int on_ranks(const RankInfo& info, const std::optional<RankStart>& start,
             const std::function<int()>& work);

// The error's text for a person at the command line. Below src/cli an error names fields: the one
// at its begin and others in backquotes (`clip_norm`); here they become options (--clip-norm).
std::string in_options(const UserError& error);

// What an error that is no UserError tells a person: out of memory and what the file system refuses
// are outcomes, anything else is an internal error.
std::string failure_text(const std::exception& error);

// What main does: finds the command, runs it, and turns what it throws into one line on stderr and
// an exit code.
int run_veil(const std::vector<std::string>& arguments);

}  // namespace veil
