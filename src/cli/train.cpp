// veil train: a language model on a folder of text, or a diffusion transformer on images.
#include <cmath>
#include <filesystem>

#include "cli/command.h"
#include "cli/train_privacy.h"
#include "cli/train_run.h"
#include "profile/ledger.h"
#include "suite/profile_run.h"
#include "suite/sweep.h"

namespace veil {
namespace {

// Named, not made: rank 0 makes it when all input is known to be good.
std::string run_folder(const TrainCommand& command, const RankInfo& info) {
  if (command.resume.empty()) return unused_run_folder(command.output_dir);
  if (command.resume == "latest") return newest_run_folder(command.output_dir);
  const bool named_by_our_launcher = !info.launcher_socket.empty();
  if (!named_by_our_launcher && !std::filesystem::is_directory(command.resume))
    user_error("--resume {}: no such folder", command.resume);
  return command.resume;
}

}  // namespace

int run_train(const std::vector<std::string>& arguments) {
  TrainCommand command;
  Options options("train",
                  "trains a language model on your text or a diffusion transformer on your images; privately with "
                  "--epsilon or --sigma");
  add_train_options(options, command);
  if (!options.parse(arguments)) return kExitDone;
  use_train_defaults(options, command);
  check_options(command.experiment);
  check_train_options(command, options);

  const RankInfo info = rank_info_from_environment();
  const bool launches = info.launcher == Launcher::none && command.experiment.ranks.value_or(1) > 1;
  if (info.launcher != Launcher::none && command.resume.empty())
    user_error("ranks started by a launcher need one folder: pass --resume DIR (an empty folder starts a new run)");
  RankInfo planned = info;
  if (launches) planned.world = planned.local_world = *command.experiment.ranks;
  const Device device = choose_device(command.experiment, planned);
  if (command.experiment.graph == GraphMode::on && !device.is_cuda())
    user_error("--graph on cannot be met (no GPU): pass --graph auto or off");
  const std::string folder = run_folder(command, info);
  const bool is_private = command.privacy.is_private();
  if (is_private) settle_private_batch(command, options, planned.world);
  const int64_t batch =
      is_private ? std::llround(*command.expected_batch)
                 : rank_batch(command.experiment, planned.world) * command.experiment.accumulation * planned.world;
  check_resumed_options(folder, options, batch, is_private);
  if (launches) {
    std::vector<std::string> words{"train"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    if (command.resume.empty()) words.insert(words.end(), {"--resume", folder});
    return launch_local_ranks(planned.world, words, OnSignal::ask_ranks);
  }
  ledger::install();
  if (info.launcher == Launcher::none) return run_training(command, options, info, folder);
  World world(info);
  try {
    return run_training(command, options, info, folder);
  } catch (const UserError& error) {
    world.fail(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    world.fail(error.what(), kExitFailed);
  }
}

}  // namespace veil
