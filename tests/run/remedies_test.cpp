#include "run/remedies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/units.h"
#include "cli/command.h"
#include "estimate/estimator.h"
#include "suite/suite.h"

namespace veil::remedies_test {
namespace {

using ::testing::HasSubstr;

RunConfig private_language_model() {
  RunConfig config;
  config.model.name = "llama-tiny";
  config.model.shapes_do = true;
  config.model.seq_length = 64;
  config.step.batch_size = 8;
  config.step.strategy = Strategy::ddp;
  config.privacy.method.mode = Mode::materialize;
  config.privacy.sigma = config.privacy.clip_norm = 1;
  return config;
}

std::vector<RunConfig> configurations() {
  std::vector<RunConfig> all = {private_language_model()};
  all.push_back(private_language_model());
  all.back().privacy.method.mode = Mode::no_dp;
  all.back().step.checkpointing = Checkpointing::full;
  RunConfig diffusion;
  diffusion.model.name = "dit-tiny";
  diffusion.model.shapes_do = true;
  diffusion.step.batch_size = 4;
  all.push_back(diffusion);
  diffusion.model.name = "dit-b/8";
  all.push_back(diffusion);
  RunConfig linear;
  linear.model.input_size = 256;
  linear.model.layers = 4;
  linear.step.batch_size = 64;
  all.push_back(linear);
  return all;
}

// "--batch-size 4 --accumulation 2" on a configuration, for the options that remedies have.
RunConfig with_options(RunConfig config, const std::string& options, int& world) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < options.size();) {
    const size_t end = std::min(options.find(' ', begin), options.size());
    words.push_back(options.substr(begin, end - begin));
    begin = end + 1;
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string value = i + 1 < words.size() ? words[i + 1] : "";
    if (words[i] == "--batch-size") config.step.batch_size = std::stoll(value);
    if (words[i] == "--accumulation") config.step.accumulation = std::stoi(value);
    if (words[i] == "--checkpointing") config.step.checkpointing = Checkpointing::full;
    if (words[i] == "--pass-plan") config.privacy.method.pass = privacy::PassKind::two_pass;
    if (words[i] == "--strategy") config.step.strategy = Strategy::zero3;
    if (words[i] == "--cpu-offload") config.step.cpu_offload = true;
    if (words[i] == "--seq-length") config.model.seq_length = std::stoll(value);
    if (words[i] == "--lora") config.model.lora_rank = std::stoll(value);
    if (words[i] == "--image-size") config.model.diffusion.image_size = std::stoll(value);
    if (words[i] == "--input-size") config.model.input_size = std::stoll(value);
    if (words[i] == "--model") config.model.name = value;
    if (words[i] == "--simulate-world") world = std::stoi(value);
  }
  return config;
}

int64_t estimated_bytes(const RunConfig& config, int world, bool on_gpu) {
  StepOptions step = step_options(config, world, on_gpu);
  const ModelShape shape = make_model(config, model_source(config), world)
                               .shape(config.step.batch_size, step.compute, on_gpu);
  if (config.privacy.is_private())
    step.clip = clip_method(config.privacy.method, shape, step, false);
  return estimate_memory(build_schedule(shape, step))
      .peak(on_gpu ? Space::device : Space::host)
      .total();
}

TEST(Remedies, EachNeedsLessAndItsBytesAreThoseOfTheEstimator) {
  std::set<std::string> seen;
  for (const RunConfig& config : configurations()) {
    for (const bool on_gpu : {false, true}) {
      for (const int world : {1, 4}) {
        const int64_t now = estimated_bytes(config, world, on_gpu), room = now * 6 / 10;
        const std::vector<Remedy> all = priced_remedies(config, world, on_gpu, room);
        EXPECT_FALSE(all.empty()) << config.model.name;
        for (const Remedy& remedy : all) {
          SCOPED_TRACE(config.model.name + " " + remedy_text(remedy));
          seen.insert(remedy.options.substr(0, remedy.options.find(' ')));
          int ranks = world;
          const RunConfig changed = with_options(config, remedy.options, ranks);
          EXPECT_EQ(remedy.bytes, estimated_bytes(changed, ranks, on_gpu));
          EXPECT_LT(remedy.bytes, now);
          EXPECT_EQ(remedy.fits, remedy.bytes <= room);
          EXPECT_GT(remedy.time, 0);
          if (!on_gpu) {
            EXPECT_THAT(remedy.options, ::testing::Not(HasSubstr("offload")));
          }
          if (world == 1) {
            EXPECT_THAT(remedy.options, ::testing::Not(HasSubstr("--strategy")));
          }
        }
        const auto changes_work =
            std::find_if(all.begin(), all.end(), [](const Remedy& r) { return !r.same_work; });
        const auto cheaper = [](const Remedy& a, const Remedy& b) { return a.time < b.time; };
        EXPECT_TRUE(std::is_sorted(all.begin(), changes_work, cheaper)) << "cheapest in time first";
        EXPECT_TRUE(std::is_sorted(changes_work, all.end(), cheaper)) << "cheapest in time first";
        EXPECT_TRUE(std::none_of(changes_work, all.end(), [](const Remedy& r) {
          return r.same_work;
        })) << "what trains the same comes first";
      }
    }
  }
  for (const char* option :
       {"--batch-size", "--checkpointing", "--pass-plan", "--strategy", "--cpu-offload",
        "--seq-length", "--lora", "--image-size", "--input-size", "--model"})
    EXPECT_TRUE(seen.count(option)) << option;
}

std::set<std::string> options_of_command(const std::string& command) {
  std::set<std::string> names;
  for (const OptionTable& table : option_tables()) {
    if (table.command != command) continue;
    for (const OptionRow& row : table.rows) {
      names.insert(row.name);
      names.insert(row.aliases.begin(), row.aliases.end());
    }
  }
  return names;
}

// Names after "--".
std::vector<std::string> options_in(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2))
    names.push_back(text.substr(at + 2, text.find_first_of(" (", at) - at - 2));
  return names;
}

TEST(Remedies, EveryOptionIsOneThatTheCommandAccepts) {
  for (const char* command : {"profile", "train", "plan"}) {
    const std::set<std::string> accepted = options_of_command(command);
    ASSERT_GT(accepted.size(), 20u) << command;
    for (const RunConfig& config : configurations()) {
      for (const Remedy& remedy : priced_remedies(config, 4, true, 1)) {
        for (const std::string& name : options_in(remedy.options)) {
          if (command == std::string("train") && name == "input-size") continue;  // of no text
          EXPECT_TRUE(accepted.count(name)) << command << " --" << name;
        }
      }
    }
  }
  for (const Suite& suite : suites()) {
    const std::set<std::string> accepted = options_of_command("suite " + suite.name);
    ASSERT_GT(accepted.size(), 20u) << suite.name;
    int offered = 0;
    for (const RunConfig& config : configurations()) {
      for (const Remedy& remedy : priced_remedies(config, 4, true, 1)) {
        const std::string here = accepted_remedy(suite, remedy_text(remedy));
        offered += !here.empty();
        for (const std::string& name : options_in(here))
          EXPECT_TRUE(accepted.count(name)) << suite.name << " --" << name;
      }
    }
    EXPECT_GT(offered, 5) << suite.name;
  }
}

TEST(Remedies, ASuiteOffersThemInItsOwnWords) {
  const std::string batch = "--batch-size 4 --accumulation 2 (1.00 GiB, fits)";
  EXPECT_EQ(accepted_remedy(find_suite("zero"), batch),
            "--batch-sizes 4 --accumulations 2 (1.00 GiB, fits)");
  EXPECT_EQ(accepted_remedy(find_suite("llama3-dp"), batch), batch);
  EXPECT_EQ(accepted_remedy(find_suite("checkpointing"), "--checkpointing full (1 B)"), "");
  EXPECT_EQ(accepted_remedy(find_suite("linear"), "--strategy zero3 (1 B)"), "");
  EXPECT_EQ(accepted_remedy(find_suite("llama3-dp"), "--pass-plan two-pass (1 B)"), "");
}

}  // namespace
}  // namespace veil::remedies_test
