#include "report/peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/units.h"
#include "report/report.h"
#include "report/test_records.h"
#include "suite/mode_plots.h"
#include "suite/suite.h"

namespace veil {
namespace {

using nlohmann::json;
using test::Folder;
using ::testing::HasSubstr;

// What a measuring script printed: a line of its own, then records.
constexpr const char* kLines =
    "loading the model\n"
    "RESULT {\"mode\": \"no_dp\", \"lib\": \"opacus\", \"layers\": 32, \"batch\": 2, \"seq\": "
    "1024, "
    "\"ms\": 400.0, \"peak_gb\": 20}\n"
    "RESULT {\"mode\": \"ghost\", \"lib\": \"opacus\", \"layers\": 32, \"batch\": 2, \"seq\": "
    "1024, "
    "\"ms\": 1000.0, \"peak_gb\": 30}\n"
    "RESULT {\"mode\": \"ghost\", \"lib\": \"opacus\", \"seq\": 4096, \"error\": \"OOM\"}\n";

json step_record(const std::string& mode, int64_t length, double ms, double gib) {
  return {{"suite", "llama3-dp"},
          {"experiment", mode + "_seq" + std::to_string(length)},
          {"title", mode + ", T=" + std::to_string(length)},
          {"outcome", "ok"},
          {"mode", mode},
          {"seq_length", length},
          {"batch_size", 2},
          {"avg_time_ms", ms},
          {"peak_memory_bytes", gib * static_cast<double>(kGiB)}};
}

void write_steps(const Folder& folder) {
  folder.write_records({step_record("no_dp", 1024, 200, 20), step_record("auto", 1024, 205, 21),
                        step_record("no_dp", 2048, 500, 30), step_record("auto", 2048, 600, 33),
                        step_record("ghost", 2048, 900, 36)});
}

TEST(Peers, LinesOfAMeasuringScriptAndAnArrayAreTheSame) {
  Folder folder;
  folder.write("peers.txt", kLines);
  const Peers peers = read_peers(folder.path("peers.txt"));
  ASSERT_EQ(peers.size(), 3u);
  EXPECT_EQ(peers[1].name(), "opacus ghost");
  EXPECT_EQ(peers[1].tokens, 1024);
  EXPECT_EQ(peers[1].bytes, 30 * static_cast<double>(kGiB));
  EXPECT_EQ(plain_peer(peers, peers[1]), &peers[0]);
  EXPECT_EQ(plain_peer(peers, peers[2]), nullptr);  // another length
  EXPECT_FALSE(peers[2].ms);
  folder.write("peers.json",
               R"([{"library": "opacus", "mode": "ghost", "seq_length": 1024, "ms": 3}])");
  EXPECT_EQ(read_peers(folder.path("peers.json"))[0].name(), "opacus ghost");
}

TEST(Peers, ABadFileIsOneClearLine) {
  Folder folder;
  for (const auto& [content, says] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "there is no record in it"},
           {"nothing", "there is no record in it"},
           {"{\"mode\": \"ghost\", \"seq\": 5}", "line 1: \"ms\" is missing"},
           {"{\"seq\": 5, \"ms\": 1}", "\"mode\" is missing"},
           {"{\"mode\": \"a\", \"ms\": 1}", "\"seq\" is missing"},
           {"{\"mode\": \"a\", \"seq\": 4, \"ms\": -1}", "\"ms\" is not above 0"},
           {"x\n{\"mode\": ", "line 2: this is no JSON"}}) {
    folder.write("peers.json", content);
    try {
      read_peers(folder.path("peers.json"));
      ADD_FAILURE() << content;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
}

TEST(Peers, TheCostOfPrivacyIsAPrivateStepOverThePlainOneOfTheSameLength) {
  Folder folder;
  write_steps(folder);
  folder.write("peers.txt", kLines);
  const RecordFolder records = read_records(folder.path());
  const auto plots = privacy_cost_plots(records.records, read_peers(folder.path("peers.txt")));
  ASSERT_EQ(plots.size(), 1u);
  const std::string csv = plots[0].figures.csv();
  EXPECT_THAT(csv, HasSubstr("auto,1024,1.025x,1.050x"));
  EXPECT_THAT(csv, HasSubstr("auto,2048,1.200x,1.100x"));
  EXPECT_THAT(csv, HasSubstr("ghost,2048,1.800x,1.200x"));
  EXPECT_THAT(csv, HasSubstr("opacus ghost,1024,2.500x,1.500x"));
  EXPECT_THAT(csv, ::testing::Not(HasSubstr("4096")));  // out of memory: no ratio
  EXPECT_THAT(plots[0].script, HasSubstr("1024 2.5 0"));
  EXPECT_THAT(plots[0].caption, HasSubstr("other software"));
  EXPECT_TRUE(privacy_cost_plots({records.records[0]}, {}).empty());
}

TEST(Peers, ThePageShowsThemAndAFolderWithoutPrivateStepsRefusesThem) {
  Folder folder;
  write_steps(folder);
  folder.write("peers.txt", kLines);
  const Peers peers = read_peers(folder.path("peers.txt"));
  write_report(folder.path(), "", suite_pages(), false, peers);
  EXPECT_THAT(folder.read("index.html"), HasSubstr("opacus ghost"));
  Folder linear;
  linear.write_records(test::linear_suite_records());
  try {
    write_report(linear.path(), "", suite_pages(), false, peers);
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--with"));
  }
  EXPECT_FALSE(std::filesystem::exists(linear.path("index.html")));
}

}  // namespace
}  // namespace veil
