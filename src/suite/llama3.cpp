// What a private step costs over one that is not, in memory and time: clipping modes by sequence
// lengths on Llama 3.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/units.h"
#include "report/tables.h"
#include "suite/mode_costs.h"
#include "suite/mode_plots.h"
#include "suite/modes.h"

namespace veil {
namespace {

using All = std::vector<ModeFigures>;

// Private modes of one length that have a time, the fastest first.
std::vector<const ModeFigures*> fastest_first(const All& all, int64_t length) {
  std::vector<const ModeFigures*> found;
  for (const ModeFigures& f : all) {
    if (f.length == length && f.mode != "no_dp" && f.ms) found.push_back(&f);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const ModeFigures* a, const ModeFigures* b) { return *a->ms < *b->ms; });
  return found;
}

// The figures that the headline is about: auto's at its longest length, or else those of the
// fastest mode at the longest length, with a cost if one is known.
const ModeFigures* headline_figures(const All& all) {
  const std::vector<int64_t> lengths = lengths_of(all);
  for (const bool with_cost : {true, false}) {
    for (const bool only_auto : {true, false}) {
      for (auto length = lengths.rbegin(); length != lengths.rend(); ++length) {
        for (const ModeFigures* f : fastest_first(all, *length)) {
          if ((!only_auto || f->mode == "auto") && (!with_cost || has_cost(*f))) return f;
        }
      }
    }
  }
  return nullptr;
}

std::string llama3_headline(const All& all) {
  const ModeFigures* f = headline_figures(all);
  if (!f) {
    const bool any = std::any_of(all.begin(), all.end(),
                                 [](const ModeFigures& one) { return one.ms.has_value(); });
    return any ? "No private mode ended well, so nothing can be said of what privacy costs."
               : "No experiment ended well, so there is nothing to compare.";
  }
  if (!has_cost(*f))
    return fmt::format("At T = {}, private training takes {} per step and {} ({}).", f->length,
                       shown_ms(f->ms), shown_bytes(f->bytes), f->mode);
  const StepDifference cost =
      step_difference(*f->record, *find_mode(all, "no_dp", f->length)->record);
  if (cost.time_sign != 0 && cost.memory_sign != 0)
    return fmt::format("At T = {}, private training takes {} and {} than plain training ({}).",
                       f->length, cost.time, cost.memory, f->mode);
  return fmt::format(
      "Compared with plain training at T = {}, private training takes {} and {} ({}).", f->length,
      cost.time, cost.memory, f->mode);
}

std::vector<KeyFigure> llama3_figures(const All& all) {
  std::vector<KeyFigure> figures;
  const ModeFigures *cheapest = nullptr, *smallest = nullptr;
  for (const ModeFigures& f : all) {
    if (f.more_share && (!cheapest || *f.more_share < *cheapest->more_share)) cheapest = &f;
    if (f.more_bytes && (!smallest || *f.more_bytes < *smallest->more_bytes)) smallest = &f;
  }
  if (cheapest)
    figures.push_back({"least time for privacy",
                       fmt::format("{}{}", *cheapest->more_share < 0 ? "-" : "+",
                                   percent_text(std::abs(*cheapest->more_share))),
                       fmt::format("{}, T = {}", cheapest->mode, cheapest->length)});
  if (smallest)
    figures.push_back({"least memory for privacy",
                       fmt::format("{}{}", *smallest->more_bytes < 0 ? "-" : "+",
                                   shown_bytes(std::abs(*smallest->more_bytes))),
                       fmt::format("{}, T = {}", smallest->mode, smallest->length)});
  const auto ended =
      std::count_if(all.begin(), all.end(), [](const ModeFigures& f) { return f.ms.has_value(); });
  figures.push_back({"experiments", fmt::format("{} of {} ended well", ended, all.size()),
                     all.front().record->device.empty() ? "" : all.front().record->device});
  return figures;
}

// One sentence per private mode: its cost at every length.
std::vector<std::string> mode_words(const All& all) {
  std::vector<std::string> findings;
  for (const std::string& mode : modes_of(all)) {
    if (mode == "no_dp") continue;
    findings.push_back(fmt::format("{}: {}.", mode, mode_costs_text(all, mode)));
  }
  return findings;
}

Verdict llama3_verdict(const RecordFolder& folder) {
  const All all = mode_figures(folder.records);
  Verdict verdict;
  verdict.headline = llama3_headline(all);
  verdict.findings = mode_words(all);
  for (const std::string& mode : modes_of(all)) {
    if (const std::string words = growth_sentence(folder.records, mode); !words.empty())
      verdict.findings.push_back(words);
  }
  verdict.figures = llama3_figures(all);
  if (std::none_of(all.begin(), all.end(),
                   [](const ModeFigures& f) { return f.more_share.has_value(); }))
    verdict.caveats.push_back(
        "There is no no_dp record of the same length, so no overhead can be told.");
  return verdict;
}

// Also records without a suite that all name a mode and a sequence length, as other profilers of
// private training write them.
bool is_mode_comparison(const std::vector<Record>& records) {
  // Single profiles that differ in something else are no such comparison.
  std::set<std::pair<std::string, int64_t>> seen;
  for (const Record& record : records) {
    if (!seen.emplace(record.mode, record.seq_length.value_or(0)).second && record.suite.empty())
      return false;
  }
  return std::all_of(records.begin(), records.end(), [](const Record& record) {
    return record.suite == "llama3-dp" ||
           (record.suite.empty() && !record.mode.empty() && record.seq_length);
  });
}

}  // namespace

Suite llama3_suite() {
  const auto grid = std::make_shared<ModeGrid>();
  grid->modes.push_back(Mode::automatic);
  Suite suite = mode_suite("llama3-dp", grid);
  suite.help = "what privacy costs on Llama 3: clipping modes by sequence lengths, memory and time";
  suite.page = {
      .question =
          "What does privacy cost in memory and time, by clipping mode and sequence length?",
      .holds = is_mode_comparison,
      .table = mode_table,
      .plots = {mode_plots, phase_plot, memory_plot, timeline_plots},
      .verdict = llama3_verdict,
      .summary_beside_pictures = true,
      .peer_plots = privacy_cost_plots};
  RunConfig& e = suite.config;
  e.model.name = "llama3.1-8b";
  e.model.task = Task::sequence_classification;
  e.model.labels = 3;
  e.step.batch_size = 2;
  e.measure.iterations = 3;
  e.measure.warmup = 1;
  return suite;
}

}  // namespace veil
