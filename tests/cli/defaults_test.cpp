// What the help says is what runs: the defaults in the option tables, which help, man page and
// docs/options.md print, against the settings that a run resolves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/test_paths.h"
#include "cli/command.h"
#include "cli/manual.h"
#include "cli/program.h"

namespace veil {
namespace {

using ::testing::HasSubstr;

const OptionTable& table_of(const std::string& command) {
  static const std::vector<OptionTable> tables = option_tables();
  for (const OptionTable& table : tables) {
    if (table.command == command) return table;
  }
  throw std::runtime_error("no command " + command);
}

std::string as_text(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "";
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  if (!value.is_array()) return value.dump();
  std::vector<std::string> parts;
  for (const auto& part : value) parts.push_back(as_text(part));
  return join(parts, ",");
}

// What a table says of a run with these facts ("private", "from scratch", ...) and given options.
std::string promised(const OptionRow& row, const std::set<std::string>& facts,
                     const std::set<std::string>& given) {
  std::string value;
  for (const DefaultCase& one : row.defaults) {
    bool applies = true;
    for (const std::string& name : given)
      applies = applies && one.unless.find("--" + name + " ") == std::string::npos;
    std::string left = one.when;
    for (size_t at; !left.empty(); left = at == std::string::npos ? "" : left.substr(at + 2)) {
      at = left.find(", ");
      applies = applies && facts.count(left.substr(0, at)) > 0;
    }
    if (applies) value = one.value;
  }
  return value;
}

class ProgramDefaults : public ProgramTest {
 protected:
  // Every option of `command` that `words` do not give is as the table promises.
  void expect_promised(const std::string& command, const std::string& words,
                       const std::set<std::string>& facts, std::set<std::string> given,
                       const std::set<std::string>& derived) const {
    SCOPED_TRACE(command + " " + words);
    const Answer answer = veil(command + " " + words + " --dry-run --json");
    ASSERT_EQ(answer.code, kExitDone) << answer.err;
    given.insert({"dry-run", "json"});
    const Json settings = Json::parse(answer.out);
    int compared = 0;
    for (const OptionRow& row : table_of(command).rows) {
      ASSERT_TRUE(settings.contains(row.name)) << row.name;
      if (given.count(row.name) || derived.count(row.name)) continue;
      EXPECT_EQ(as_text(settings[row.name]), promised(row, facts, given)) << "--" << row.name;
      ++compared;
    }
    EXPECT_GT(compared, 50);
  }

  // What follows from the model, the data or the batch, and has no default of its own.
  const std::set<std::string> derived_ = {"mode", "samples", "privacy-unit", "clip-norm",
                                          "max-grad-norm"};
};

TEST_F(ProgramDefaults, OfTrainingAreThoseOfItsHelp) {
  const std::string data = " --data '" + source_root() + "/examples/text' --device cpu";
  const std::set<std::string> given = {"model", "from-scratch", "data", "device"};
  expect_promised("train", "--model llama-tiny --from-scratch" + data,
                  {"from scratch", "language model"}, given, derived_);
  expect_promised("train", "--model llama-tiny --from-scratch --optimizer sgd" + data,
                  {"from scratch", "language model", "sgd"},
                  {"model", "from-scratch", "data", "device", "optimizer"}, derived_);
  expect_promised("train", "--model llama-tiny --from-scratch --batch-size 4 --steps 3" + data,
                  {"from scratch", "language model"},
                  {"model", "from-scratch", "data", "device", "batch-size", "steps"}, derived_);
  ASSERT_EQ(
      veil("train --model llama-tiny --from-scratch --steps 1 --seq-length 16 --export tuned" +
           data)
          .code,
      kExitDone);
  expect_promised("train", "--model tuned" + data, {"language model"}, given, derived_);
}

TEST_F(ProgramDefaults, OfPrivateTrainingAreThoseOfItsHelp) {
  const std::string more =
      " --epsilon 8 --delta 1e-6 --device cpu --data '" + source_root() + "/examples/text'";
  const std::set<std::string> given = {"model",  "from-scratch", "data",
                                       "device", "epsilon",      "delta"};
  std::set<std::string> derived = derived_;
  derived.insert("accumulation");  // as many as the logical batch needs
  expect_promised("train", "--model llama-tiny --from-scratch" + more,
                  {"private", "from scratch", "language model"}, given, derived);
  expect_promised("train", "--model llama-tiny --from-scratch --optimizer sgd-momentum" + more,
                  {"private", "from scratch", "language model", "sgd"},
                  {"model", "from-scratch", "data", "device", "epsilon", "delta", "optimizer"},
                  derived);
  expect_promised("train", "--model llama-tiny --from-scratch --batch-size 4" + more,
                  {"private", "from scratch", "language model"},
                  {"model", "from-scratch", "data", "device", "epsilon", "delta", "batch-size"},
                  derived_);
}

TEST_F(ProgramDefaults, OfDiffusionTrainingAreThoseOfItsHelp) {
  std::set<std::string> derived = derived_;
  for (const char* name :
       {"image-size", "patch-size", "channels", "classes", "hidden-dim", "heads", "layers"})
    derived.insert(name);
  expect_promised("train", "--model dit-l/8 --from-scratch --device cpu",
                  {"from scratch", "diffusion"}, {"model", "from-scratch", "device"}, derived);
  derived.insert("accumulation");
  expect_promised("train", "--model dit-l/8 --from-scratch --device cpu --epsilon 8 --delta 1e-6",
                  {"private", "from scratch", "diffusion"},
                  {"model", "from-scratch", "device", "epsilon", "delta"}, derived);
}

TEST_F(ProgramDefaults, OfMeasuringAreThoseOfItsHelp) {
  expect_promised("profile", "--device cpu", {"linear stack", "from scratch"}, {"device"}, {});
  expect_promised("profile", "--model llama-tiny --device cpu",
                  {"from scratch", "language model", "other models", "adamw"}, {"model", "device"},
                  {});
  expect_promised("profile", "--model llama-tiny --optimizer sgd --device cpu",
                  {"from scratch", "language model", "other models", "sgd"},
                  {"model", "device", "optimizer"}, {});
}

// Commands that share the options of `veil profile` promise the same.
TEST_F(ProgramDefaults, OfPlanAndFindBatchAreThoseOfProfile) {
  for (const char* command : {"plan", "find-batch"}) {
    int compared = 0;
    for (const OptionRow& row : table_of(command).rows) {
      for (const OptionRow& other : table_of("profile").rows) {
        const bool own = row.name == "output-dir" || row.name == "clip" || row.name == "ranks";
        if (row.name != other.name || own) continue;
        EXPECT_EQ(default_text(row), default_text(other)) << command << " --" << row.name;
        ++compared;
      }
    }
    EXPECT_GT(compared, 30) << command;
  }
}

// What an experiment of a suite resolves if the suite passes nothing on.
TEST_F(ProgramDefaults, OfSuitesAreWhatTheirExperimentsResolve) {
  const Answer listed = veil("suite checkpointing --device cpu --dry-run --json");
  ASSERT_EQ(listed.code, kExitDone) << listed.err;
  const Json experiment = Json::parse(listed.out)[0];
  std::string words;
  for (const auto& word : experiment["arguments"]) words += " '" + word.get<std::string>() + "'";
  const Answer answer = veil("profile" + words + " --dry-run --json");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const Json settings = Json::parse(answer.out);
  int compared = 0;
  for (const OptionRow& row : table_of("suite checkpointing").rows) {
    const bool own = row.name == "json" || row.name == "dry-run" || row.name == "output-dir" ||
                     row.name == "device" || row.name == "checkpointing" || row.name == "preset";
    if (!settings.contains(row.name) || own) continue;
    EXPECT_EQ(as_text(settings[row.name]),
              promised(row, {"language model", "other models", "adamw", "from scratch"}, {}))
        << "--" << row.name;
    ++compared;
  }
  EXPECT_GT(compared, 30);
}

TEST_F(ProgramDefaults, OnThePageOfOptionsAreTheProgramsOwn) {
  EXPECT_TRUE(text(source_root() + "/docs/options.md") == options_page(option_tables()))
      << "write it anew: build/veil man --markdown > docs/options.md";
}

TEST(Defaults, TheHelpOfEveryCommandPrintsTheDefaultsOfItsTable) {
  for (const OptionTable& table : option_tables()) {
    const std::string help = help_text(table, "all", 10000);
    for (const OptionRow& row : table.rows) {
      EXPECT_THAT(help, HasSubstr("--" + row.name)) << table.command;
      const std::string value = default_text(row);
      if (value.empty()) continue;
      EXPECT_THAT(help, HasSubstr(row.help + " (default " + value + ")"))
          << table.command << " --" << row.name;
    }
  }
}

TEST_F(ProgramDefaults, ModelsTrainedOnThemLearn) {
  const std::string line =
      "train --model llama-tiny --from-scratch --device cpu --seq-length 64 --data '" +
      source_root() + "/examples/text' --epochs 1 --resume run";
  std::filesystem::create_directory(work() / "run");
  ASSERT_EQ(veil(line).code, kExitDone);
  std::istringstream lines(text(work() / "run" / "metrics.jsonl"));
  std::vector<double> losses;
  for (std::string one; std::getline(lines, one);) {
    const Json entry = Json::parse(one);
    if (entry.contains("loss")) losses.push_back(entry["loss"].get<double>());
  }
  ASSERT_GT(losses.size(), 50u);
  EXPECT_GT(losses.front(), 5.3);  // all bytes are alike
  EXPECT_LT(losses.back(), 3.4);
}

TEST_F(ProgramDefaults, PrivateSgdWithoutALearningRateIsWarnedAbout) {
  const std::string line =
      "train --model llama-tiny --from-scratch --device cpu --seq-length 16 --batch-size 16 "
      "--epsilon 8 --delta "
      "1e-6 --steps 1 --data '" +
      source_root() + "/examples/text' --optimizer ";
  EXPECT_THAT(veil(line + "sgd").err, HasSubstr("--learning-rate is left at its default of 0.5"));
  EXPECT_THAT(veil(line + "sgd --learning-rate 1").err, ::testing::Not(HasSubstr("left at")));
  EXPECT_THAT(veil(line + "adamw").err, ::testing::Not(HasSubstr("left at")));
}

}  // namespace
}  // namespace veil
