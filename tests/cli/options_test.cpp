#include "cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace veil {

enum class Prefetch { pre, post, none };
static const NameTable<Prefetch>& names(Prefetch) {
  static const NameTable<Prefetch> table = {{Prefetch::pre, "pre", {"BACKWARD_PRE"}},
                                            {Prefetch::post, "post", {"BACKWARD_POST"}},
                                            {Prefetch::none, "none"}};
  return table;
}

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Words = std::vector<std::string>;

struct Fixture {
  int64_t batch_size = 8192;
  int ranks = 1;
  double learning_rate = 0.01;
  bool offload = false;
  bool shuffle = true;
  Prefetch prefetch = Prefetch::pre;
  int64_t forward_prefetch = 0;
  std::vector<int64_t> lengths = {512};
  std::vector<Prefetch> prefetches;
  std::optional<int64_t> layers;
  std::string output, token, name;
  Options options{"profile", "measure one configuration"};

  Fixture() {
    options.add("batch-size", batch_size,
                {.aliases = {"batch_sizes"}, .help = "samples", .minimum = 1});
    options.add("ranks", ranks, {.aliases = {"nproc_per_node"}, .minimum = 1, .maximum = 4096});
    options.add("learning-rate", learning_rate, {.aliases = {"lr"}, .minimum = 0});
    options.add("cpu-offload", offload);
    options.add("shuffle", shuffle);
    options.add("backward-prefetch", prefetch);
    options.add("forward-prefetch", forward_prefetch, {.minimum = 0, .bare = "1"});
    options.add("seq-length", lengths, {.aliases = {"seq"}, .minimum = 1});
    options.add("prefetches", prefetches);
    options.add("layers", layers, {.minimum = 1});
    options.add("output-dir", output);
    options.add("token", token, {.secret = true});
    options.add("name", name, {.positional = true, .value = "NAME"});
    options.preset("tiny", {{"batch-size", "64"}, {"seq-length", "8,16"}});
  }
  void parse(const Words& words) { ASSERT_TRUE(options.parse(words)); }
};

std::string error_of(const Words& words) {
  Fixture given;
  try {
    given.options.parse(words);
  } catch (const UserError& error) {
    EXPECT_EQ(error.exit_code(), kExitUsage);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << join(words, " ");
  return "";
}

std::string config_file(const std::string& text) {
  const std::string path =
      (std::filesystem::path(::testing::TempDir()) / "veil_options_test.toml").string();
  std::ofstream(path) << text;
  return path;
}

TEST(Options, FieldsKeepTheirDefaultsWhenNothingIsGiven) {
  Fixture given;
  given.parse({});
  EXPECT_EQ(given.batch_size, 8192);
  EXPECT_EQ(given.prefetch, Prefetch::pre);
  EXPECT_FALSE(given.layers);
  EXPECT_FALSE(given.options.given("batch-size"));
}

TEST(Options, HyphenAndUnderscoreAreTheSameInNamesAndAliases) {
  for (const char* spelling : {"--batch-size", "--batch_size", "--batch-sizes", "--batch_sizes"}) {
    Fixture given;
    given.parse({spelling, "16"});
    EXPECT_EQ(given.batch_size, 16) << spelling;
    EXPECT_TRUE(given.options.given("batch-size"));
  }
  Fixture given;
  given.parse({"--batch_size=32", "--nproc-per-node", "2", "--lr", "1e-3"});
  EXPECT_EQ(given.batch_size, 32);
  EXPECT_EQ(given.ranks, 2);
  EXPECT_EQ(given.learning_rate, 1e-3);
}

TEST(Options, FlagsAreSetClearedAndGivenValues) {
  Fixture given;
  given.parse({"--cpu_offload", "--no-shuffle"});
  EXPECT_TRUE(given.offload);
  EXPECT_FALSE(given.shuffle);
  Fixture other;
  other.parse({"--cpu-offload=false", "--shuffle=off"});
  EXPECT_FALSE(other.offload);
  EXPECT_FALSE(other.shuffle);
  EXPECT_THAT(error_of({"--cpu-offload=perhaps"}),
              HasSubstr("--cpu-offload perhaps: allowed are true and false"));
  EXPECT_THAT(error_of({"--no-batch-size"}), HasSubstr("unknown option"));
}

TEST(Options, AFlagDoesNotSwallowThePositionalAfterIt) {
  Fixture given;
  given.parse({"--cpu-offload", "linear"});
  EXPECT_EQ(given.name, "linear");
}

TEST(Options, EnumValuesAreKnownByEveryNameInAnyCase) {
  for (const char* word : {"post", "POST", "BACKWARD_POST", "backward-post"}) {
    Fixture given;
    given.parse({"--backward_prefetch", word});
    EXPECT_EQ(given.prefetch, Prefetch::post) << word;
  }
}

TEST(Options, AFlagWithOptionalValueCountsOneWhenBare) {
  Fixture bare, two, between;
  bare.parse({"--forward_prefetch"});
  EXPECT_EQ(bare.forward_prefetch, 1);
  two.parse({"--forward-prefetch", "2"});
  EXPECT_EQ(two.forward_prefetch, 2);
  between.parse({"--forward-prefetch", "--backward-prefetch", "none"});
  EXPECT_EQ(between.forward_prefetch, 1);
  EXPECT_EQ(between.prefetch, Prefetch::none);
}

TEST(Options, ListsAreSeparatedByCommasAndSpaces) {
  Fixture commas, spaces, mixed, names_list;
  commas.parse({"--seq", "1024,2048"});
  EXPECT_THAT(commas.lengths, ElementsAre(1024, 2048));
  spaces.parse({"linear", "--seq", "1024", "2048", "--ranks", "2"});
  EXPECT_THAT(spaces.lengths, ElementsAre(1024, 2048));
  EXPECT_EQ(spaces.name, "linear");
  mixed.parse({"--seq=1024,2048", "4096"});
  EXPECT_THAT(mixed.lengths, ElementsAre(1024, 2048, 4096));
  names_list.parse({"--prefetches", "pre,BACKWARD_POST"});
  EXPECT_THAT(names_list.prefetches, ElementsAre(Prefetch::pre, Prefetch::post));
}

TEST(Options, ARepeatedOptionKeepsTheCommasOfItsValues) {
  std::vector<std::string> phases;
  std::string name;
  Options options("privacy", "");
  options.add("phase", phases, {.repeated = true});
  options.add("name", name, {.positional = true});
  ASSERT_TRUE(options.parse({"--phase", "1,2,3", "word", "--phase=4,5,6"}));
  EXPECT_THAT(phases, ElementsAre("1,2,3", "4,5,6"));
  EXPECT_EQ(name, "word");
}

TEST(Options, WrongInputIsOneLineThatSaysWhatWasGivenWhatIsAllowedAndWhatWasMeant) {
  EXPECT_THAT(error_of({"--bath-size", "2"}),
              AllOf(HasSubstr("--bath-size"), HasSubstr("did you mean --batch-size?")));
  EXPECT_THAT(error_of({"--zzzzzzzzzzzz"}),
              AllOf(HasSubstr("unknown option"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(error_of({"--batch-size", "0"}),
              AllOf(HasSubstr("--batch-size 0"), HasSubstr("at least 1"), HasSubstr("8192")));
  EXPECT_THAT(error_of({"--batch-size", "-3"}),
              HasSubstr("--batch-size -3: allowed is a whole number of at least 1"));
  EXPECT_THAT(error_of({"--batch-size", "2.5"}), HasSubstr("whole number"));
  EXPECT_THAT(error_of({"--batch-size", "99999999999999999999"}), HasSubstr("9223372036854775807"));
  EXPECT_THAT(error_of({"--ranks", "5000"}), HasSubstr("from 1 to 4096"));
  EXPECT_THAT(error_of({"--lr", "nan"}), HasSubstr("number"));
  EXPECT_THAT(error_of({"--backward-prefetch", "BACKWARD_PRR"}),
              AllOf(HasSubstr("pre (BACKWARD_PRE), post (BACKWARD_POST), none"),
                    HasSubstr("did you mean BACKWARD_PRE?")));
  EXPECT_THAT(error_of({"--batch-size"}), HasSubstr("--batch-size: a value is missing"));
  EXPECT_THAT(error_of({"--batch-size="}), HasSubstr("--batch-size"));
  EXPECT_THAT(error_of({"--seq", "1,,2"}), HasSubstr("--seq 1,,2"));
  EXPECT_THAT(error_of({"--seq"}), HasSubstr("--seq: a value is missing"));
  EXPECT_THAT(error_of({"linear", "more"}), HasSubstr("unexpected argument 'more'"));
  EXPECT_THAT(error_of({"-x"}), HasSubstr("-x"));
}

TEST(Options, AnOptionIsGivenOnceUnderWhateverName) {
  EXPECT_THAT(error_of({"--batch-size", "1", "--batch_sizes", "2"}),
              HasSubstr("--batch_sizes is given twice, also as --batch-size"));
  EXPECT_THAT(error_of({"--seq", "1", "--seq-length", "2"}),
              HasSubstr("give a list as --seq-length A,B"));
  EXPECT_THAT(error_of({"--shuffle", "--no-shuffle"}), HasSubstr("given twice"));
}

TEST(Options, ARefusedListLeavesItsFieldAlone) {
  Fixture given;
  EXPECT_THROW(given.options.parse({"--seq", "1,0"}), UserError);
  EXPECT_THAT(given.lengths, ElementsAre(512));
}

TEST(Options, AFileSetsWhatTheCommandLineDoesNot) {
  const std::string path = config_file(
      "# a comment\nbatch_size = 128   # samples\nseq-length = [1024, 2048]\ncpu-offload = true\n"
      "backward-prefetch = \"BACKWARD_POST\"\nlr = 0.5\noutput-dir = \"two words\"\n");
  Fixture given;
  given.parse({"--config", path, "--lr", "0.25"});
  EXPECT_EQ(given.batch_size, 128);
  EXPECT_THAT(given.lengths, ElementsAre(1024, 2048));
  EXPECT_TRUE(given.offload);
  EXPECT_EQ(given.prefetch, Prefetch::post);
  EXPECT_EQ(given.learning_rate, 0.25);
  EXPECT_EQ(given.output, "two words");
}

TEST(Options, AWrongFileIsNamedWithTheKeyAndWhatWasMeant) {
  EXPECT_THAT(error_of({"--config", "/nowhere/x.toml"}), HasSubstr("--config /nowhere/x.toml"));
  EXPECT_THAT(error_of({"--config", ::testing::TempDir()}), HasSubstr("--config"));
  EXPECT_THAT(error_of({"--config", config_file("batch-sise = 3\n")}),
              AllOf(HasSubstr("veil_options_test.toml: unknown key 'batch-sise'"),
                    HasSubstr("did you mean batch-size?")));
  EXPECT_THAT(error_of({"--config", config_file("batch-size = 0\n")}),
              HasSubstr("batch-size = 0: allowed is"));
  EXPECT_THAT(error_of({"--config", config_file("[model]\nbatch-size = 1\n")}),
              HasSubstr("sections"));
  EXPECT_THAT(error_of({"--config", config_file("ranks = 1\nlr = 1\nranks = 2\n")}),
              HasSubstr("'ranks' is given twice"));
  EXPECT_THAT(error_of({"--config", config_file("config = \"x\"\n")}),
              HasSubstr("unknown key 'config'"));
}

// Older CLI11 cuts a quoted value at '#', newer ones do not: it is refused or read whole, never
// cut.
TEST(Options, AQuotedValueWithAHashIsNeverCut) {
  Fixture fixture;
  try {
    fixture.options.parse({"--config", config_file("output-dir = \"a # b\"\n")});
    EXPECT_EQ(fixture.output, "a # b");
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("quotes"));
  }
}

TEST(Options, APresetLiesBeneathTheFileAndTheCommandLine) {
  Fixture alone, both;
  alone.parse({"--preset", "tiny"});
  EXPECT_EQ(alone.batch_size, 64);
  EXPECT_THAT(alone.lengths, ElementsAre(8, 16));
  both.parse({"--preset", "tiny", "--config", config_file("batch-size = 7\n"), "--seq", "3"});
  EXPECT_EQ(both.batch_size, 7);
  EXPECT_THAT(both.lengths, ElementsAre(3));
  EXPECT_THAT(error_of({"--preset", "tinny"}),
              AllOf(HasSubstr("allowed are tiny"), HasSubstr("did you mean tiny?")));
}

TEST(Options, TheTableShowsResolvedValuesAndWhereTheyComeFrom) {
  Fixture given;
  given.parse({"--batch-size", "16"});
  given.layers = 3;  // as a command resolves a default
  EXPECT_THAT(given.options.table(), ::testing::ContainsRegex("batch-size +16 +command line\n"));
  EXPECT_THAT(given.options.table(), ::testing::ContainsRegex("layers +3\n"));
  EXPECT_THAT(given.options.table(), ::testing::ContainsRegex("backward-prefetch +pre\n"));
  const nlohmann::json record = given.options.json();
  EXPECT_EQ(record["batch-size"], 16);
  EXPECT_EQ(record["layers"], 3);
  EXPECT_EQ(record["backward-prefetch"], "pre");
  EXPECT_EQ(record["seq-length"], nlohmann::json::array({512}));
  EXPECT_EQ(record["cpu-offload"], false);
}

TEST(Options, ASecretIsNeitherShownNorRecorded) {
  Fixture given;
  given.parse({"--token", "hunter2", "--batch-size", "4"});
  EXPECT_EQ(given.token, "hunter2");
  EXPECT_THAT(given.options.table(), Not(HasSubstr("hunter2")));
  EXPECT_THAT(given.options.json().dump(), Not(HasSubstr("hunter2")));
  EXPECT_EQ(given.options.command_line(), "veil profile --token *** --batch-size 4");
  Fixture joined;
  joined.parse({"--token=hunter2"});
  EXPECT_EQ(joined.options.command_line(), "veil profile --token=***");
  Fixture spaced;
  spaced.parse({"--output-dir", "my runs", "--seq-length", "1,2"});
  EXPECT_EQ(spaced.options.command_line(), "veil profile --output-dir 'my runs' --seq-length 1,2");
}

TEST(Options, HelpNamesEveryOptionItsDefaultAndItsAliases) {
  Fixture given;
  ::testing::internal::CaptureStdout();
  EXPECT_FALSE(given.options.parse({"--help"}));
  const std::string help = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(help, HasSubstr("--batch-size N"));
  EXPECT_THAT(help, HasSubstr("samples (default 8192) [also --batch_sizes]"));
  EXPECT_THAT(help, HasSubstr("--backward-prefetch pre|post|none"));
  EXPECT_THAT(help, HasSubstr("presets: tiny"));
}

TEST(Options, ABriefHelpShowsTheNamedOptionsAndTheOthersByTopic) {
  std::string data, model;
  int64_t steps = 3;
  Options options("train", "trains");
  options.section("model");
  options.add("model", model, {.help = "what is trained"});
  options.section("data", "data");
  options.add("data", data, {.help = "what is read"});
  options.section("run");
  options.add("steps", steps, {.help = "how long"});
  options.brief({"model"}, {"veil train --model gpt2"});
  const auto help = [&](const std::vector<std::string>& words) {
    ::testing::internal::CaptureStdout();
    EXPECT_FALSE(options.parse(words));
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_THAT(help({"--help"}), AllOf(HasSubstr("--model"), HasSubstr("veil train --model gpt2"),
                                      HasSubstr("--help all|data"), Not(HasSubstr("how long"))));
  EXPECT_THAT(help({"--help", "data"}),
              AllOf(HasSubstr("what is read"), Not(HasSubstr("what is trained"))));
  EXPECT_THAT(help({"--help=all"}),
              AllOf(HasSubstr("what is read"), HasSubstr("how long (default 3)")));
  EXPECT_THROW(options.parse({"--help", "date"}), UserError);
}

TEST(Options, DefaultsThatDifferAreListedWithWhenTheyHold) {
  double rate = 0.1;
  Options options("train", "trains");
  options.add("learning-rate", rate, {.help = "step size"});
  options.defaults("learning-rate", {{"0.1", ""}, {"0.5", "private"}});
  EXPECT_EQ(default_text(options.description().rows[1]), "0.1; private: 0.5");
  EXPECT_THAT(help_text(options.description(), "", 100),
              HasSubstr("step size (default 0.1; private: 0.5)"));
}

TEST(Options, HelpIsWrappedToTheWidth) {
  std::string data;
  Options options("train", "trains " + std::string(40, 'x') + " " + std::string(40, 'y'));
  options.add("data", data, {.help = "a folder of text or of images, or a token store, or shapes"});
  for (const size_t width : {60u, 80u, 100u}) {
    std::istringstream lines(help_text(options.description(), "all", width));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), width) << line;
  }
}

TEST(Options, AnOptionReplacesAnotherOfASourceOfLowerRank) {
  const auto parsed = [](const Words& words, const std::string& file) {
    Fixture given;
    given.options.replaces({{"ranks", "layers"}, {"layers", "ranks"}, {"ranks", "batch-size"}});
    Words all = words;
    if (!file.empty()) all.insert(all.end(), {"--config", config_file(file)});
    given.parse(all);
    return std::tuple(given.ranks, given.layers.value_or(0), given.batch_size);
  };
  EXPECT_EQ(parsed({"--ranks", "2"}, "layers = 3\n"), std::tuple(2, 0, 8192));
  EXPECT_EQ(parsed({"--layers", "3"}, "ranks = 2\n"), std::tuple(1, 3, 8192));
  EXPECT_EQ(parsed({"--ranks", "2", "--layers", "3"}, ""), std::tuple(2, 3, 8192)) << "one source";
  EXPECT_EQ(parsed({}, "ranks = 2\nlayers = 3\n"), std::tuple(2, 3, 8192)) << "one source";
  // of the preset, which says 64
  EXPECT_EQ(parsed({"--preset", "tiny"}, "layers = 3\n"), std::tuple(1, 3, 64));
  EXPECT_EQ(parsed({"--preset", "tiny"}, "ranks = 2\n"), std::tuple(2, 0, 8192));
  EXPECT_EQ(parsed({"--preset", "tiny", "--ranks", "2"}, ""), std::tuple(2, 0, 8192));
}

TEST(Options, AStoredRunSetsWhatIsNotGivenAndCountsAsNotGiven) {
  Fixture given;
  given.options.replaces({{"batch-size", "learning-rate"}});
  given.parse({"--batch-size", "16"});
  given.options.set_stored({{"batch-size", 4},
                            {"ranks", 2},
                            {"learning-rate", 0.25},
                            {"seq-length", {8, 16}},
                            {"cpu-offload", true},
                            {"layers", nullptr},
                            {"backward-prefetch", "post"},
                            {"other", 1}},
                           {"ranks"});
  EXPECT_EQ(given.batch_size, 16);
  EXPECT_EQ(given.ranks, 1) << "excepted";
  EXPECT_EQ(given.learning_rate, 0.01) << "what was given replaces it";
  EXPECT_THAT(given.lengths, ElementsAre(8, 16));
  EXPECT_TRUE(given.offload);
  EXPECT_EQ(given.prefetch, Prefetch::post);
  EXPECT_FALSE(given.layers);
  EXPECT_FALSE(given.options.given("cpu-offload"));
  EXPECT_TRUE(given.options.is_set("cpu-offload"));
}

TEST(Options, AShortTableHasWhatWasGivenAndWhatDiffersFromTheSettledDefaults) {
  Fixture given;
  given.parse({"--batch-size", "8192"});
  given.learning_rate = 0.5;  // a default that the command resolves
  given.options.settle_defaults();
  given.ranks = 2;
  const std::string table = given.options.short_table({});
  EXPECT_THAT(table, AllOf(HasSubstr("batch-size"), HasSubstr("ranks")));
  EXPECT_THAT(table, AllOf(Not(HasSubstr("learning-rate")), Not(HasSubstr("shuffle"))));
}

TEST(Options, AShortTableHasOfAStoredRunWhatDiffersFromTheDefaults) {
  Fixture resumed;
  resumed.parse({"--ranks", "1"});
  resumed.options.set_stored({{"batch-size", 4}, {"shuffle", true}, {"learning-rate", 0.5}}, {});
  const std::string table = resumed.options.short_table({});
  EXPECT_THAT(table, AllOf(HasSubstr("batch-size"), HasSubstr("learning-rate")));
  EXPECT_THAT(table, HasSubstr("ranks")) << "what the command line gives is shown in any case";
  EXPECT_THAT(table, Not(HasSubstr("shuffle")));
}

TEST(Options, WhatIsRequiredIsMissed) {
  std::string folder;
  Options options("report", "draw");
  options.add("folder", folder,
              {.help = "results to read", .positional = true, .required = true, .value = "DIR"});
  EXPECT_THROW(options.parse({}), UserError);
  EXPECT_TRUE(options.parse({"results"}));
  EXPECT_EQ(folder, "results");
}

}  // namespace
}  // namespace veil
