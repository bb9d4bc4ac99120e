#include "train/checkpoint_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class CheckpointFiles : public testing::Test {
 protected:
  CheckpointFiles() { fs::create_directories(folder_); }
  ~CheckpointFiles() override { fs::remove_all(run_); }
  // What is said of a checkpoint with this state; "" if it is read.
  std::string refusal(const Json& state) const {
    write_file_atomically(file(), state.dump());
    try {
      checkpoint_state(folder_);
      return "";
    } catch (const UserError& error) {
      return error.what();
    }
  }
  std::string file() const { return join_path(folder_, kStateFile); }
  const std::string run_ = (fs::temp_directory_path() / "veil_checkpoint_files").string(),
                    folder_ = run_ + "/checkpoints/" + checkpoint_name(4);
  // As earlier versions wrote it, without a digest.
  const Json sound_ = {{"steps", 4},
                       {"global_batch", 8},
                       {"position", {{"epoch", 0}, {"step", 4}}},
                       {"settings", Json::object()},
                       {"frozen", "00ff"},
                       {"average_updates", 4},
                       {"privacy", {{"segment", "00ff"}, {"clip_norm", 1.0}}},
                       {"sha256", {{"rank_00000.safetensors", "00ff"}}}};
};

// Most of them would be an internal error where a resumed run reads them.
TEST_F(CheckpointFiles, AFieldOfAnotherKindIsNamedInOneLineWithItsFile) {
  EXPECT_EQ(refusal(sound_), "");
  const std::vector<std::pair<std::string, Json>> wrong = {
      {"steps", 1e300},
      {"position", {{"epoch", 0}}},
      {"position", {{"epoch", 0}, {"step", -1}}},
      {"position", 4},
      {"global_batch", "8"},
      {"global_batch", 0},
      {"settings", {1, 2}},
      {"frozen", 5},
      {"average_updates", UINT64_MAX},
      {"privacy", {1, 2}},
      {"sha256", 5},
      {"sha256", {{"rank_00000.safetensors", 5}}},
      {"sha256", {{"a\nb", "00ff"}}},
      {"sha256", {{"../rank_00000.safetensors", "00ff"}}},
      {"sha256", {{std::string(300, 'x'), "00ff"}}}};
  for (const auto& [field, value] : wrong) {
    Json state = sound_;
    state[field] = value;
    EXPECT_THAT(refusal(state), AllOf(StartsWith(file() + ": " + field + " "),
                                      HasSubstr(": allowed is "), Not(HasSubstr("\n"))))
        << value.dump();
  }
  for (const char* field : {"segment", "clip_norm"}) {
    Json state = sound_;
    state["privacy"][field] = Json::array();
    EXPECT_THAT(refusal(state), StartsWith(file() + ": privacy: " + field + " []: allowed is "));
  }
  Json state = sound_;
  state.erase("position");
  EXPECT_EQ(refusal(state), file() + ": position is missing");
}

TEST_F(CheckpointFiles, AnOlderStateThatCannotBeReadIsNotOfferedAsWhole) {
  const std::string older = run_ + "/checkpoints/" + checkpoint_name(2);
  fs::create_directories(older);
  Json state = sound_;
  state["sha256"] = 5;
  write_file_atomically(join_path(older, kStateFile), state.dump());
  EXPECT_THAT(refusal(Json::array()), HasSubstr("no other whole checkpoint is there"));
  state.erase("sha256");
  write_file_atomically(join_path(older, kStateFile), state.dump());
  EXPECT_THAT(refusal(Json::array()), HasSubstr("step_00000002 is whole"));
}

}  // namespace
}  // namespace veil
