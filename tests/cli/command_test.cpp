#include "cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace veil::command_test {
namespace {

using ::testing::HasSubstr;

struct CommandAnswer {
  int code;
  std::string out, err;
};

CommandAnswer veil_says(const std::vector<std::string>& arguments) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_veil(arguments);
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

TEST(Command, VeilAloneAndHelpListTheCommands) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{}, {"--help"}}) {
    const CommandAnswer answer = veil_says(arguments);
    EXPECT_EQ(answer.code, kExitDone);
    for (const Command& command : commands()) EXPECT_THAT(answer.out, HasSubstr(command.help));
    EXPECT_THAT(answer.out, HasSubstr("usage: veil COMMAND"));
    EXPECT_THAT(answer.out, HasSubstr("  4           stopped early by a signal; --resume"));
  }
}

TEST(Command, VersionIsOneLine) {
  for (const char* const word : {"--version", "version"}) {
    const CommandAnswer answer = veil_says({word});
    EXPECT_EQ(answer.code, kExitDone);
    EXPECT_THAT(answer.out, ::testing::MatchesRegex("veil [0-9]+\\.[0-9]+\\.[0-9]+.*\n"));
  }
}

TEST(Command, CommandsAreListedInGroupsWithThreeExamples) {
  const std::string out = veil_says({"--help"}).out;
  size_t last = 0;
  for (const char* const group : {"examples:", "train:", "understand:", "measure:", "check:"}) {
    const size_t at = out.find(std::string("\n") + group + "\n");
    ASSERT_NE(at, std::string::npos) << group;
    EXPECT_GE(at, last) << group;
    last = at;
  }
  const std::string examples = out.substr(out.find("examples:"), out.find("\ntrain:"));
  size_t count = 0;
  for (size_t at = 0; (at = examples.find("\n  veil ", at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 3u);
}

TEST(Command, HelpWithACommandIsTheCommandsHelp) {
  EXPECT_EQ(veil_says({"help", "train"}).out, veil_says({"train", "--help"}).out);
  EXPECT_EQ(veil_says({"help", "train", "privacy"}).out,
            veil_says({"train", "--help", "privacy"}).out);
  EXPECT_EQ(veil_says({"help", "suite", "linear"}).out,
            veil_says({"suite", "linear", "--help"}).out);
  EXPECT_EQ(veil_says({"help", "suite"}).out, veil_says({"suite", "--help"}).out);
  EXPECT_EQ(veil_says({"help"}).out, veil_says({"--help"}).out);
}

TEST(Command, TheHelpOfTrainIsShortAndEachTopicShowsItsOptions) {
  const std::string brief = veil_says({"train", "--help"}).out;
  const auto options_in = [](const std::string& text) {
    size_t count = 0;
    for (size_t at = 0; (at = text.find("\n  --", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_GE(options_in(brief), 18u);
  EXPECT_LE(options_in(brief), 25u);
  EXPECT_THAT(brief, HasSubstr("--help all|data|diffusion|privacy|sharding"));
  EXPECT_THAT(veil_says({"train", "--help", "privacy"}).out, HasSubstr("--clip-quantile"));
  EXPECT_THAT(veil_says({"train", "--help", "sharding"}).out, HasSubstr("--backward-prefetch"));
  EXPECT_THAT(veil_says({"train", "--help", "diffusion"}).out, HasSubstr("--label-drop"));
  EXPECT_THAT(veil_says({"train", "--help", "data"}).out, HasSubstr("--text-key"));
  EXPECT_GT(options_in(veil_says({"train", "--help", "all"}).out), 80u);
}

// What people bring from Hugging Face's Trainer.
TEST(Command, SpellingsOfHuggingFaceAreOptionsOfTrain) {
  for (const OptionTable& table : option_tables()) {
    if (table.command != "train") continue;
    std::set<std::string> known;
    for (const OptionRow& row : table.rows) {
      known.insert(canonical(row.name));
      for (const std::string& alias : row.aliases) known.insert(canonical(alias));
    }
    for (const char* const name : {"num_train_epochs",
                                   "per_device_train_batch_size",
                                   "gradient_accumulation_steps",
                                   "learning_rate",
                                   "max_seq_length",
                                   "bf16",
                                   "output_dir",
                                   "model_name_or_path",
                                   "warmup_steps",
                                   "weight_decay",
                                   "lr_scheduler_type",
                                   "max_steps",
                                   "seed",
                                   "logging_steps",
                                   "save_steps",
                                   "eval_steps",
                                   "save_total_limit",
                                   "resume_from_checkpoint",
                                   "max_grad_norm",
                                   "adam_beta1",
                                   "adam_beta2",
                                   "adam_epsilon",
                                   "optim",
                                   "train_file"})
      EXPECT_TRUE(known.count(canonical(name))) << name;
  }
}

TEST(Command, AnUnknownCommandIsOneLineOnStderrAndExitCodeTwo) {
  const CommandAnswer answer = veil_says({"fnord"});
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
  const auto full = std::make_error_code(std::errc::no_space_on_device);
  EXPECT_EQ(failure_text(std::filesystem::filesystem_error("cannot create", "run/new", full)),
            "'run/new': No space left on device");
}

}  // namespace
}  // namespace veil::command_test
