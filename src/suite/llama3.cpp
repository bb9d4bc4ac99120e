// What a private step costs over one that is not, in memory and time: clipping modes by sequence
// lengths on Llama 3.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "base/units.h"
#include "report/tables.h"
#include "suite/mode_plots.h"
#include "suite/modes.h"

namespace veil {
namespace {

using All = std::vector<ModeFigures>;

std::string signed_bytes(double bytes) {
  return shown_bytes(std::abs(bytes)) + (bytes < 0 ? " less" : " more");
}

std::string signed_share(double share) {
  return percent_text(std::abs(share)) + (share < 0 ? " less time" : " more time");
}

bool told_apart(const ModeFigures& a, const ModeFigures& b) {
  return std::abs(*a.ms - *b.ms) > std::hypot(a.spread_ms.value_or(0), b.spread_ms.value_or(0));
}

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

std::string cost_words(const All& all, const ModeFigures& f) {
  std::vector<std::string> parts;
  const ModeFigures* base = find_mode(all, "no_dp", f.length);
  if (f.more_share)
    parts.push_back(told_apart(f, *base) ? signed_share(*f.more_share)
                                         : "no other time within the spread");
  if (f.more_bytes) parts.push_back(signed_bytes(*f.more_bytes));
  return parts.empty() ? fmt::format("{} per step in {}", shown_ms(f.ms), shown_bytes(f.bytes))
                       : fmt::format("{} than no_dp", join(parts, " and "));
}

std::string llama3_headline(const All& all) {
  const std::vector<int64_t> lengths = lengths_of(all);
  std::vector<std::string> parts;
  for (const int64_t length : lengths) {
    const auto private_ones = fastest_first(all, length);
    if (private_ones.empty()) continue;
    const ModeFigures& best = *private_ones.front();
    std::string words = fmt::format("at T = {} {}, {}", length, best.mode, cost_words(all, best));
    if (private_ones.size() > 1 && !told_apart(best, *private_ones[1]))
      words += fmt::format(" ({} is as fast within the spread)", private_ones[1]->mode);
    parts.push_back(words);
  }
  if (parts.empty()) {
    const bool any =
        std::any_of(all.begin(), all.end(), [](const ModeFigures& f) { return f.ms.has_value(); });
    return any ? "No private mode ended well, so nothing can be said of what privacy costs."
               : "No experiment ended well, so there is nothing to compare.";
  }
  return "The fastest private mode: " + join(parts, "; ") + ".";
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
    std::vector<std::string> parts;
    for (const int64_t length : lengths_of(all)) {
      const ModeFigures* f = find_mode(all, mode, length);
      if (!f) continue;
      parts.push_back(fmt::format("T = {} {}", length,
                                  f->ms ? cost_words(all, *f) : outcome_words(*f->record)));
    }
    findings.push_back(mode + ": " + join(parts, "; ") + ".");
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
  Suite suite = mode_suite("llama3-dp", std::make_shared<ModeGrid>());
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
