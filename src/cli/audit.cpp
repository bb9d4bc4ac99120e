// veil audit: is a private run's mechanism what its epsilon is computed from?
#include <algorithm>

#include "audit/canary.h"
#include "audit/mechanism.h"
#include "base/files.h"
#include "base/outputs.h"
#include "base/table.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "cli/train_words.h"
#include "profile/memory.h"
#include "record/verify_record.h"
#include "report/audit_page.h"
#include "run/machine.h"
#include "run/train.h"

namespace veil {
namespace {

struct AuditCommand {
  std::string kind, output_dir = "audit";
  double confidence = 0.95;
  int64_t pairs = 10000;
  bool json = false, overwrite = false;
};

void add_audit_options(Options& options, AuditCommand& c) {
  options.add("confidence", c.confidence,
              {.help = "probability that the bound holds and that no true law is called broken",
               .minimum = 0.5,
               .maximum = 1 - 1e-12});
  if (c.kind == "canary")
    options.add("pairs", c.pairs,
                {.help = "how often the run is imitated with and without the canary",
                 .minimum = 100,
                 .maximum = 10000000});
  options.add(
      "output-dir", c.output_dir,
      {.help = "folder of the record and its page; \"\": none are written", .value = "DIR"});
  options.add("json", c.json, {.help = "print the record instead of tables"});
  add_overwrite_option(options, c.overwrite);
}

int run_audit_word(const std::string& word, const CommandCall& call) {
  AuditCommand c;
  c.kind = word;
  // So much is measured that a false alarm can be made rare.
  if (word == "mechanism") c.confidence = 1 - 1e-6;
  const auto split = std::find(call.arguments.begin(), call.arguments.end(), "--");
  Options options(
      "audit " + word,
      word == "mechanism"
          ? "measures noise, sensitivity and sampling of the run whose `veil train` "
            "options stand after --"
          : "tells a run with a worst-case canary from one without, for the `veil train` "
            "options after --");
  add_audit_options(options, c);
  if (!options.parse_call(
          {.arguments = {call.arguments.begin(), split}, .describe = call.describe}))
    return kExitDone;
  if (split == call.arguments.end())
    user_error(
        "the run is missing: veil audit {} [options] -- TRAIN OPTIONS, as in `veil audit {} "
        "-- --model gpt2 --data my_texts --epsilon 8 --delta 1e-6`",
        word, word);
  RankInfo info = rank_info_from_environment();
  const auto words = read_train_words({split + 1, call.arguments.end()}, info);
  if (!words) return kExitDone;
  info.collective_timeout_s = words->collective_timeout_s;
  const std::string file =
      c.output_dir.empty() ? "" : join_path(c.output_dir, audit_file_name(word));
  if (info.rank == 0 && !file.empty()) {
    check_output_file(file, c.overwrite);
    check_output_file(join_path(c.output_dir, "index.html"), c.overwrite);
  }

  RankInfo wanted = info;
  std::optional<RankStart> start;
  if (info.launcher == Launcher::none) {
    wanted.world = wanted.local_world = words->config.placement.ranks.value_or(1);
    if (wanted.world > 1) {
      prepare_training(words->config, wanted);  // what cannot be is reported once
      start = RankStart{wanted.world, {"audit", word}};
      start->words.insert(start->words.end(), call.arguments.begin(), call.arguments.end());
    }
  }
  return on_ranks(info, start, [&] {
    memory::install();
    Progress progress;
    audit::AuditPlace place{.info = info};
    if (info.rank == 0 && is_terminal(stderr))
      place.on_progress = [&](const std::string& what) { progress.show(what); };
    const audit::AuditOptions wanted_audit{words->config, c.confidence, c.pairs};
    AuditRecord record = word == "mechanism" ? audit::audit_mechanism(wanted_audit, place)
                                             : audit::audit_canary(wanted_audit, place);
    if (info.rank != 0) return kExitDone;
    progress.clear();
    record.command = "veil audit " + word + " " + join(call.arguments, " ");
    record.config = words->settings;
    record.build = build_json();
    if (!file.empty()) {
      ensure_folder_writable(c.output_dir);
      write_file_atomically(file, to_json(record).dump(1) + "\n", /*owner_only=*/true);
      write_audit_page(c.output_dir, "", c.overwrite);
    }
    if (c.json) {
      fmt::print("{}\n", to_json(record).dump());
    } else {
      fmt::print("{}", audit_summary({record}));
      if (!file.empty())
        fmt::print("record    {}\npage      {}\n", file, join_path(c.output_dir, "index.html"));
    }
    return record.verdict == kPass ? kExitDone : kExitFailed;
  });
}

}  // namespace

int run_audit(const CommandCall& call) {
  const std::vector<std::string>& words = call.arguments;
  const std::string word = words.empty() ? "" : words[0];
  if (word == "mechanism" || word == "canary")
    return run_audit_word(
        word, {.arguments = {words.begin() + 1, words.end()}, .describe = call.describe});
  if (word == "--help" || word == "-h") {
    fmt::print(
        "usage: veil audit mechanism|canary [options] -- TRAIN OPTIONS\n\n{}\n`veil audit "
        "mechanism --help` lists its options.\n",
        align_columns({{"mechanism", "noise, sensitivity and sampling against the plan"},
                       {"canary", "an attack on a worst-case sample, many times over"}},
                      2));
    return kExitDone;
  }
  user_error("audit {}: allowed are mechanism and canary{}",
             word.empty() ? "without a word" : "'" + word + "'",
             option_values::did_you_mean(word, {"mechanism", "canary"}));
}

}  // namespace veil
