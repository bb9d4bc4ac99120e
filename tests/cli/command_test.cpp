#include "cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>

#include "base/error.h"

namespace veil::command_test {
namespace {

using ::testing::HasSubstr;

struct Answer {
  int code;
  std::string out, err;
};

Answer veil_says(const std::vector<std::string>& arguments) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_veil(arguments);
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

TEST(Command, VeilAloneAndHelpListTheCommands) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{}, {"--help"}}) {
    const Answer answer = veil_says(arguments);
    EXPECT_EQ(answer.code, kExitDone);
    for (const Command& command : commands()) EXPECT_THAT(answer.out, HasSubstr(command.help));
    EXPECT_THAT(answer.out, HasSubstr("usage: veil COMMAND"));
  }
}

TEST(Command, VersionIsOneLine) {
  const Answer answer = veil_says({"--version"});
  EXPECT_EQ(answer.code, kExitDone);
  EXPECT_THAT(answer.out, ::testing::MatchesRegex("veil [0-9]+\\.[0-9]+\\.[0-9]+.*\n"));
}

TEST(Command, AnUnknownCommandIsOneLineOnStderrAndExitCodeTwo) {
  const Answer answer = veil_says({"fnord"});
  EXPECT_EQ(answer.code, kExitUsage);
  EXPECT_THAT(answer.err, ::testing::StartsWith("veil: unknown command 'fnord'"));
  EXPECT_EQ(std::count(answer.err.begin(), answer.err.end(), '\n'), 1);
}

TEST(Command, AnErrorsFieldsAreShownAsOptions) {
  EXPECT_EQ(in_options(UserError("clip_norm", "must be positive, got -1")),
            "--clip-norm must be positive, got -1");
  EXPECT_EQ(in_options(UserError("3 labels: pass `num` or `labels` 4, or run `veil fetch x`")),
            "3 labels: pass `num` or --labels 4, or run `veil fetch x`");
}

TEST(Command, OutOfMemoryIsAnOutcomeAndNoInternalError) {
  const std::string text = failure_text(std::bad_alloc());
  EXPECT_THAT(text, ::testing::StartsWith("out of memory: "));
  EXPECT_THAT(text, HasSubstr("of host memory are available); try a smaller --batch-size"));
  EXPECT_EQ(failure_text(std::runtime_error("broken")), "internal error: broken");
}

}  // namespace
}  // namespace veil::command_test
