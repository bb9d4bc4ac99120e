// veil train: a language model on a folder of text, or a diffusion transformer on images.
#include "run/train.h"

#include "cli/command.h"
#include "cli/run_options.h"
#include "cli/train_printer.h"
#include "cli/train_signals.h"
#include "cli/train_words.h"
#include "profile/memory.h"

namespace veil {
namespace {

// No one learning rate suits private SGD: its steps are as long as the clip norm times the rate,
// whatever the model.
void warn_of_learning_rate(const Options& options, const RunConfig& c) {
  const bool is_private = c.privacy.epsilon || c.privacy.sigma || c.privacy.is_private();
  if (!is_private || options.given("learning-rate") || c.optimizer.kind == OptimizerKind::adamw)
    return;
  print_notice(fmt::format(
      "--learning-rate is left at its default of {} for private {}, which may learn nothing: pass "
      "one that suits the model, or --optimizer adamw",
      c.optimizer.learning_rate, name_of(c.optimizer.kind)));
}

int train_here(TrainCommand& command, Options& options, const RankInfo& info) {
  memory::install();
  TrainPrinter printer(command, options);
  TrainingEvents events = printer.events();
  events.stop = stop_requested;
  events.before_first_step = [&] { stop_after_steps(printer.folder()); };
  const TrainResult result = train(command.config, events, info);
  if (info.rank == 0) printer.end(result);
  // launchers end all ranks when one fails: rank 0 has the last word
  const bool refuted = result.audit && !result.audit->failures.empty();
  if (info.rank != 0) return kExitDone;
  if (refuted) return kExitFailed;
  return result.finished ? kExitDone : kExitStopped;
}

}  // namespace

int run_train(const CommandCall& call) {
  TrainCommand command;
  Options options("train",
                  "trains a language model on your text or a diffusion transformer on your images; "
                  "privately with --epsilon or --sigma");
  RankInfo info = rank_info_from_environment();
  if (!parse_train(call, info, options, command)) return kExitDone;
  info.collective_timeout_s = command.collective_timeout_s;

  RankInfo wanted = info;
  if (info.launcher == Launcher::none)
    wanted.world = wanted.local_world = command.config.placement.ranks.value_or(1);
  if (command.dry_run) {
    command.config = prepare_training(command.config, wanted).config;
    print_settings(options, command.json);
    return kExitDone;
  }
  if (info.rank == 0) warn_of_learning_rate(options, command.config);
  std::optional<RankStart> start;
  if (info.launcher == Launcher::none && wanted.world > 1) {
    prepare_training(command.config, wanted);  // what cannot be is reported once
    start = RankStart{wanted.world, {"train"}, OnSignal::ask_ranks};
    start->words.insert(start->words.end(), call.arguments.begin(), call.arguments.end());
  }
  // before the ranks meet: the launcher may ask them from then on
  if (!start) hear_stop_signals(info.rank == 0);
  return on_ranks(info, start, [&] { return train_here(command, options, info); });
}

}  // namespace veil
