#include "profile/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/files.h"

namespace veil {

namespace {

nlohmann::json events_of(const Trace& trace, const std::string& phase) {
  nlohmann::json found = nlohmann::json::array();
  const nlohmann::json whole = nlohmann::json::parse(trace.json());
  for (const auto& event : whole["traceEvents"]) {
    if (event["ph"] == phase) found.push_back(event);
  }
  return found;
}

}  // namespace

TEST(Trace, ASpanIsACompleteEventInMicrosecondsOnItsRankAndLane) {
  Trace trace(2, 4, 1700000000000000000);
  trace.name_lane(1, "gather");
  trace.span(1, "gather block.0", 1.5, 0.25, "communication", {{"bytes", 4096}});
  const auto spans = events_of(trace, "X");
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0]["name"], "gather block.0");
  EXPECT_EQ(spans[0]["pid"], 2);
  EXPECT_EQ(spans[0]["tid"], 1);
  EXPECT_EQ(spans[0]["ts"], 1500.0);
  EXPECT_EQ(spans[0]["dur"], 250.0);
  EXPECT_EQ(spans[0]["args"]["bytes"], 4096);
  std::vector<std::string> names;
  for (const auto& event : events_of(trace, "M")) {
    if (event["args"].contains("name")) names.push_back(event["args"]["name"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"rank 2 of 4", "gather"}));
}

TEST(Trace, TheHeadHasWhatTensorBoardsPluginReads) {
  Trace trace(0, 1, 5);
  trace.step(0, 3, 0, 10);
  const auto json = nlohmann::json::parse(trace.json());
  EXPECT_EQ(json["schemaVersion"], 1);
  EXPECT_TRUE(json["deviceProperties"].is_array());
  EXPECT_EQ(json["distributedInfo"]["world_size"], 1);
  EXPECT_EQ(json["baseTimeNanoseconds"], 5);
  const auto spans = events_of(trace, "X");
  EXPECT_EQ(spans[0]["name"], "ProfilerStep#3");
  EXPECT_EQ(spans[0]["cat"], "user_annotation");
}

TEST(Trace, MemoryIsACounterWithEveryCategory) {
  Trace trace(0, 1, 0);
  CategoryBytes bytes;
  bytes[Category::gradients] = 12;
  trace.memory(Space::device, 2, bytes);
  const auto counters = events_of(trace, "C");
  ASSERT_EQ(counters.size(), 1u);
  EXPECT_EQ(counters[0]["name"], "device memory (bytes)");
  EXPECT_EQ(counters[0]["args"].size(), static_cast<size_t>(kCategories));
  EXPECT_EQ(counters[0]["args"]["gradients"], 12);
  EXPECT_EQ(counters[0]["args"]["data"], 0);
}

TEST(Trace, TheFileIsNamedAsTensorBoardsPluginLooksForIt) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("veil_trace_" + std::to_string(getpid()));
  const std::string path = Trace(0, 1, 0).write(folder.string());
  // worker, a full stop, digits, and the plugin's ending (no std::regex: sanitized builds warn
  // inside it)
  const std::string name = std::filesystem::path(path).filename().string(),
                    ending = ".pt.trace.json";
  ASSERT_TRUE(name.ends_with(ending)) << name;
  const std::string stem = name.substr(0, name.size() - ending.size());
  const std::string worker = stem.substr(0, stem.find('.')), span = stem.substr(stem.find('.') + 1);
  EXPECT_TRUE(worker.ends_with("_" + std::to_string(getpid()))) << name;
  EXPECT_EQ(span.size(), 19u) << name;
  EXPECT_EQ(span.find_first_not_of("0123456789"), std::string::npos) << name;
  EXPECT_NO_THROW(nlohmann::json::parse(read_file(path)));
  std::filesystem::remove_all(folder);
}

TEST(Trace, AFolderNameTellsTheConfigurationAndIsSafe) {
  EXPECT_EQ(config_folder_name(
                {{"", "fsdp"}, {"bs", "8192"}, {"in", "16384"}, {"l", "8"}, {"prefetch", ""}}),
            "fsdp_bs8192_in16384_l8_prefetch");
  EXPECT_EQ(config_folder_name({{"", "../../etc"}, {"lr", "0.01"}}), "------etc_lr0.01");
  EXPECT_THROW(config_folder_name({}), std::logic_error);
}

TEST(Trace, NamesOfModelsAndLanesStayText) {
  const std::string name = "</script><script>alert(1)</script>\"},{\"name\":\"x\n\\";
  Trace trace(0, 1, 5);
  trace.name_lane(1, name);
  trace.span(1, name, 1, 2, name);
  ASSERT_EQ(events_of(trace, "X").size(), 1u);
  EXPECT_EQ(events_of(trace, "X")[0]["name"], name);
  int lanes = 0;
  for (const auto& event : events_of(trace, "M")) lanes += event["args"].value("name", "") == name;
  EXPECT_EQ(lanes, 1);
}

}  // namespace veil
