// The commands that a build under the thread sanitizer leaves out, for it takes long enough: they start
// no threads while they work. They say that they are not there.
#include "base/error.h"
#include "cli/command.h"
#include "suite/suite.h"

namespace veil {
namespace {

[[noreturn]] void left_out() {
  user_error("this build has the command train alone");
}

}  // namespace

int run_audit(const CommandCall&) {
  left_out();
}
int run_completion(const CommandCall&) {
  left_out();
}
int run_data(const CommandCall&) {
  left_out();
}
int run_doctor(const CommandCall&) {
  left_out();
}
int run_evaluate(const CommandCall&) {
  left_out();
}
int run_fetch(const CommandCall&) {
  left_out();
}
int run_find_batch(const CommandCall&) {
  left_out();
}
int run_man(const CommandCall&) {
  left_out();
}
int run_plan(const CommandCall&) {
  left_out();
}
int run_privacy(const CommandCall&) {
  left_out();
}
int run_profile(const CommandCall&) {
  left_out();
}
int run_report(const CommandCall&) {
  left_out();
}
int run_sample(const CommandCall&) {
  left_out();
}
int run_suite(const CommandCall&) {
  left_out();
}
int run_tokenize(const CommandCall&) {
  left_out();
}
int run_verify_command(const CommandCall&) {
  left_out();
}
int run_version(const CommandCall&) {
  left_out();
}
std::string version_text() {
  left_out();
}
std::vector<Suite> suites() {
  return {};
}

}  // namespace veil
