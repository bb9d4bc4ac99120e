// The commands of veil. One file a command, src/cli/<command>.cpp; a new one is declared below and gets its line in
// command.cpp.
#pragma once

#include <string>
#include <vector>

namespace veil {

// Arguments are those after the command's name; the answer is the exit code (base/error.h).
struct Command {
  const char* name;
  const char* help;
  int (*run)(const std::vector<std::string>& arguments);
};
const std::vector<Command>& commands();

int run_doctor(const std::vector<std::string>& arguments);
int run_fetch(const std::vector<std::string>& arguments);
int run_find_batch(const std::vector<std::string>& arguments);
int run_privacy(const std::vector<std::string>& arguments);
int run_plan(const std::vector<std::string>& arguments);
int run_profile(const std::vector<std::string>& arguments);
int run_suite(const std::vector<std::string>& arguments);
int run_sample(const std::vector<std::string>& arguments);
int run_train(const std::vector<std::string>& arguments);
int run_report(const std::vector<std::string>& arguments);
int run_tokenize(const std::vector<std::string>& arguments);
int run_verify_command(const std::vector<std::string>& arguments);

// What main does: finds the command, runs it, and turns what it throws into one line on stderr and an exit code.
int run_veil(const std::vector<std::string>& arguments);

}  // namespace veil
