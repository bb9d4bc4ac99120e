// state.json of a checkpoint, and all that a resumed run reads from it. "RIGHT" as the state's digest
// is replaced by the right one.
#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "cli/options.h"
#include "data/order.h"
#include "fuzz/fuzz.h"
#include "privacy/ledger.h"
#include "privacy/statement.h"
#include "train/checkpoint_files.h"

namespace {

using namespace veil;
using Json = nlohmann::ordered_json;

// What src/run and src/train do with a state that checkpoint_state has accepted. Another kind than
// they expect is an exception of the JSON library, and a finding.
void read_as_resumed(const Json& ordered, const std::string& file) {
  const nlohmann::json state = ordered;
  fuzz::require(state.value("steps", int64_t{0}) >= 0, "steps are counted");
  const data::Position position = data::position_from_json(state.at("position"));
  fuzz::require(position.epoch >= 0 && position.step >= 0, "a position is in the data");
  fuzz::require(state.value("global_batch", int64_t{1}) > 0, "a batch has samples");
  state.value("frozen", std::string());
  if (state.contains("average_updates"))
    fuzz::require(state["average_updates"].get<int64_t>() >= 0, "updates are counted");
  const nlohmann::json stored = state.value("privacy", nlohmann::json::object());
  const std::string segment = stored.value("segment", std::string());
  const double norm = stored.value("clip_norm", 1.0);
  fuzz::require(norm > 0 && std::isfinite(norm), "a clip norm is a positive number");
  fuzz::allow_user_error(
      [&] { privacy::ledger_from_json(stored.value("events", nlohmann::json::array()), file); });
  fuzz::allow_user_error([&] {
    if (state.contains("base")) privacy::statement_from_json(state["base"], file);
  });
  fuzz::allow_user_error([&] {
    int64_t steps = 1;
    double rate = 0.1;
    bool flag = false;
    std::string model;
    std::optional<double> sigma;
    std::vector<std::string> list;
    Options options("fuzz", "settings of every kind");
    options.add("steps", steps, {.minimum = 1});
    options.add("learning-rate", rate, {.minimum = 0});
    options.add("deterministic", flag);
    options.add("model", model);
    options.add("sigma", sigma);
    options.add("freeze", list);
    options.set_stored(state.value("settings", nlohmann::json::object()), {});
    fuzz::require(steps >= 1 && rate >= 0, "settings are within their limits");
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(fuzz::text_of(data, size));
  if (Json state = try_json<Json>(text);
      state.is_object() && state.contains(kStateCheck) && state[kStateCheck] == "RIGHT") {
    state[kStateCheck] = state_check(state);
    text = state.dump();
  }
  static const std::string run = fuzz::work_folder() + "/run", name = "run/checkpoints/step_00000",
                           older = name + "002/", newest = name + "004/";
  std::filesystem::create_directories(fuzz::work_folder() + "/" + older);
  std::filesystem::create_directories(fuzz::work_folder() + "/" + newest);
  // The older one has the same state, so that the search for a whole one reads it too.
  fuzz::input_file(older + kStateFile, text);
  fuzz::input_file(older + "rank_00000.safetensors", "weights");
  const std::string file = fuzz::input_file(newest + kStateFile, text);
  fuzz::input_file(newest + "rank_00000.safetensors", "weights");
  const std::string folder = newest_checkpoint(run).value();
  fuzz::require(folder + "/" + kStateFile == file, "the newest checkpoint is found");
  std::optional<Json> state;
  fuzz::allow_user_error([&] {
    try {
      state = checkpoint_state(folder);
    } catch (const UserError& error) {
      fuzz::require(std::string_view(error.what()).starts_with(file), "a refusal names the file");
      throw;
    }
  });
  if (!state) return 0;
  read_as_resumed(*state, file);
  fuzz::require(checkpoint_digest(folder).size() == 64, "a checkpoint has a digest");
  const std::string damaged = damaged_file(folder, *state, 0, 1);
  if (damaged.empty()) return 0;
  fuzz::require(std::filesystem::path(damaged).parent_path() == folder,
                "files of a checkpoint are in its folder");
  const bool by_two =
      !damaged_file(folder, *state, 0, 2).empty() || !damaged_file(folder, *state, 1, 2).empty();
  fuzz::require(by_two, "two ranks find what one finds");
  fuzz::allow_user_error([&] { damaged_checkpoint(folder, damaged); });
  return 0;
}
