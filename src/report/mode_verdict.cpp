#include "report/mode_verdict.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"
#include "report/tables.h"

namespace veil {
namespace {

using All = std::vector<ModeFigures>;

constexpr double kLargeMemoryShare = 0.4;  // of the peak: from here on a category is worth advice

std::string percent(double share) {
  return std::abs(share) < 0.1 ? fmt::format("{:.1f}%", share * 100) : fmt::format("{:.0f}%", share * 100);
}

std::string signed_bytes(double bytes) {
  return shown_bytes(std::abs(bytes)) + (bytes < 0 ? " less" : " more");
}

std::string signed_share(double share) {
  return percent(std::abs(share)) + (share < 0 ? " less time" : " more time");
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
    parts.push_back(told_apart(f, *base) ? signed_share(*f.more_share) : "no other time within the spread");
  if (f.more_bytes) parts.push_back(signed_bytes(*f.more_bytes));
  return parts.empty() ? fmt::format("{} a step in {}", shown_ms(f.ms), shown_bytes(f.bytes))
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
    const bool any = std::any_of(all.begin(), all.end(), [](const ModeFigures& f) { return f.ms.has_value(); });
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
    figures.push_back(
        {"least time for privacy",
         fmt::format("{}{}", *cheapest->more_share < 0 ? "-" : "+", percent(std::abs(*cheapest->more_share))),
         fmt::format("{}, T = {}", cheapest->mode, cheapest->length)});
  if (smallest)
    figures.push_back(
        {"least memory for privacy",
         fmt::format("{}{}", *smallest->more_bytes < 0 ? "-" : "+", shown_bytes(std::abs(*smallest->more_bytes))),
         fmt::format("{}, T = {}", smallest->mode, smallest->length)});
  const auto ended = std::count_if(all.begin(), all.end(), [](const ModeFigures& f) { return f.ms.has_value(); });
  figures.push_back({"experiments", fmt::format("{} of {} ended well", ended, all.size()),
                     all.front().record->device.empty() ? "" : all.front().record->device});
  return figures;
}

// A sentence a private mode: its price at every length.
std::vector<std::string> mode_words(const All& all) {
  std::vector<std::string> findings;
  for (const std::string& mode : modes_of(all)) {
    if (mode == "no_dp") continue;
    std::vector<std::string> parts;
    for (const int64_t length : lengths_of(all)) {
      const ModeFigures* f = find_mode(all, mode, length);
      if (!f) continue;
      parts.push_back(fmt::format("T = {} {}", length, f->ms ? cost_words(all, *f) : outcome_words(*f->record)));
    }
    findings.push_back(mode + ": " + join(parts, "; ") + ".");
  }
  return findings;
}

std::string growth_sentence(const std::vector<Record>& records, const std::string& mode) {
  std::vector<std::string> parts;
  const auto add = [&](const std::vector<PartGrowth>& growth, const char* whole, const char* name) {
    for (const PartGrowth& part : growth) {
      if (part.part == whole && part.fit && part.fit->points > 2)
        parts.push_back(fmt::format("{} {}, {}", name, growth_words(*part.fit), exponent_words(*part.fit)));
    }
  };
  add(time_growth(records, mode), "step", "time");
  add(memory_growth(records, mode), "peak", "memory");
  return parts.empty() ? "" : fmt::format("Growth of {}: {}.", mode, join(parts, "; "));
}

const Record* longest_of(const std::vector<Record>& records, const std::string& mode) {
  const Record* longest = nullptr;
  for (const Record& record : records) {
    const bool fits = record.mode == mode && record.ok() && record.seq_length && compared_ms(record);
    if (fits && (!longest || *record.seq_length > *longest->seq_length)) longest = &record;
  }
  return longest;
}

std::string pass_plan_of(const Record& record) {
  if (record.mode.find("bookkeeping") != std::string::npos) return "book";
  if (record.mode == "materialize") return "keep";
  return record.mode == "no_dp" || record.mode == "auto" ? "" : "two_pass";
}

std::string quoted_command(const std::string& words) {
  return fmt::format("`{}`", words);
}

void judge_mode(const std::vector<Record>& records, const std::string& mode, Verdict& verdict) {
  const auto found = bottleneck_of(records, mode);
  if (!found) return;
  const Record& longest = *longest_of(records, mode);
  const std::string law = found->fit && found->fit->points > 2
                              ? fmt::format(", which {}, {}", growth_words(*found->fit), exponent_words(*found->fit))
                              : "";
  verdict.findings.push_back(fmt::format("Bottleneck of {}: {} of a step at T = {} ({} of {}) goes to {}{}.", mode,
                                         percent(found->share), found->length, shown_ms(found->ms),
                                         shown_ms(compared_ms(longest)), spaced(found->part), law));
  std::vector<std::string> next;
  for (const PartGrowth& part : time_growth(records, mode)) {
    if (part.part == "step" || part.part == found->part || part.share < 0.03 || next.size() >= 4) continue;
    next.push_back(fmt::format("{} {}{}", spaced(part.part), percent(part.share),
                               part.fit && part.fit->points > 2 ? fmt::format(" (T^{:.1f})", part.fit->exponent) : ""));
  }
  if (!next.empty()) verdict.findings.push_back(fmt::format("Then, in {}: {}.", mode, join(next, ", ")));
  if (const std::string words = growth_sentence(records, mode); !words.empty()) verdict.findings.push_back(words);
  const std::vector<std::string> advice = advice_on_time(longest, found->part);
  if (!advice.empty()) verdict.findings.push_back(fmt::format("Advice on time, {}: {}.", mode, join(advice, "; ")));
  for (const PartGrowth& part : memory_growth(records, mode)) {
    if (part.part == "peak" || part.share < kLargeMemoryShare) continue;
    const std::vector<std::string> help = advice_on_memory(longest, part.part);
    verdict.findings.push_back(
        fmt::format("Memory of {}: {} of the peak at T = {} is for {}{}{}.", mode, percent(part.share), found->length,
                    spaced(part.part),
                    part.fit && part.fit->points > 2 ? fmt::format(", an amount that {}", growth_words(*part.fit)) : "",
                    help.empty() ? "" : fmt::format("; {}", join(help, "; "))));
    break;
  }
  // Communication that computing hid is no bottleneck, but a person wants to know that it was.
  for (const auto& [kind, transfer] : longest.communication) {
    const double total = std::max(transfer.modelled_ms.value_or(0), transfer.total_ms.value_or(0));
    const double exposed = exposed_ms(longest, transfer).value_or(0);
    if (total > 0)
      verdict.findings.push_back(fmt::format("Hidden in {}: of {} of {} {} were not waited for.", mode, shown_ms(total),
                                             kind, percent(std::clamp(1 - exposed / total, 0.0, 1.0))));
  }
  verdict.figures.push_back(
      {mode + ": largest phase", percent(found->share), fmt::format("{}, T = {}", spaced(found->part), found->length)});
}

}  // namespace

std::optional<Bottleneck> bottleneck_of(const std::vector<Record>& records, const std::string& mode) {
  const Record* longest = longest_of(records, mode);
  if (!longest) return {};
  for (const PartGrowth& part : time_growth(records, mode)) {
    if (part.part == "step") continue;
    return Bottleneck{mode, part.part, *longest->seq_length, part.longest, part.share, part.fit};
  }
  return {};
}

std::vector<std::string> advice_on_time(const Record& record, const std::string& part) {
  const std::string plan = pass_plan_of(record);
  if (part == "wait for gather")
    return {"gather earlier, under the computing of the unit before: " +
                quoted_command("--forward-prefetch 1 --backward-prefetch pre"),
            "larger units send fewer messages: " + quoted_command("--wrap size"),
            quoted_command("--strategy zero2") + " gathers once a step, for more memory"};
  if (part == "wait for reduce")
    return {"reduce under computing: a booked or two-pass plan reduces a unit while the next one's gradient is made",
            quoted_command("--accumulate whole") + " reduces once a logical batch, for more memory",
            quoted_command("--reduce bf16") + " halves what is sent"};
  if (part == "wait for copy")
    return {"keep on the device what fits: leave " + quoted_command("--cpu-offload") + " out"};
  if (part == "norms" || part == "backward_and_norms" || part == "kept_norms") {
    std::vector<std::string> advice;
    const std::string rule = record.mode.find("flash") != std::string::npos ? "flash" : "ghost";
    if (rule == "ghost")
      advice.push_back("ghost pairs all tokens, so its norms grow with the square of T: " +
                       quoted_command("--rule flash") + " grows linearly and is cheaper for long sequences");
    if (rule == "flash")
      advice.push_back("flash costs a weight gradient whatever T is: " + quoted_command("--rule ghost") +
                       " is cheaper for short sequences");
    advice.push_back(quoted_command("--mode auto") + " takes the cheaper rule for each parameter by T");
    advice.push_back(quoted_command("--tile-size") +
                     " sets the tiles; larger ones have fewer launches and more memory");
    return advice;
  }
  if (part.starts_with("second_") || (part == "weight_grad" && plan == "two_pass"))
    return {"a second backward is what two passes cost: " + quoted_command("--pass-plan book") +
                " or keep make it once, where their memory is there",
            quoted_command("--mode auto --memory-budget GIB") + " takes the fastest plan that fits"};
  if (part == "recompute") return {quoted_command("--checkpointing selective") + " or none, where the memory is there"};
  if (part == "gap" || part == "other")
    return {"the device waits for the host: " + quoted_command("--graph on") + ", or a larger batch"};
  if (part == "data") return {"the loader is waited for: a token store is read faster than text"};
  if (part.find("update") != std::string::npos)
    return {"noise and update touch every parameter once a step: more samples a step share them (" +
            quoted_command("--accumulation") + " or a larger batch); " + quoted_command("--strategy zero3") +
            " shares them among ranks"};
  return {
      "this is the model's own computing, which a step that is not private has as well; no clipping mode changes it"};
}

std::vector<std::string> advice_on_memory(const Record& record, const std::string& category) {
  if (category == "activations")
    return {quoted_command("--checkpointing full") + " computes activations again instead of holding them",
            "activations are let go as soon as their last pass has read them; a smaller " +
                quoted_command("--batch-size") + " with " + quoted_command("--accumulation") +
                " holds fewer at a time"};
  if (category == "clip_records") {
    const bool keeps = pass_plan_of(record) == "keep";
    return {std::string(keeps ? "per-sample gradients" : "booked inputs and gradients") +
            " are held until the norms are known: " + quoted_command("--pass-plan two-pass") +
            " holds none and streams its norms block by block, for a second backward"};
  }
  if (category == "temporary") return {"a smaller " + quoted_command("--tile-size") + " takes less at a time"};
  if (category == "parameters" || category == "optimizer" || category == "gradients")
    return {quoted_command("--strategy zero3") + " spreads them over ranks, " + quoted_command("--cpu-offload") +
            " keeps them on the host"};
  return {};
}

Verdict judge_llama3(const RecordFolder& folder, std::vector<std::string> caveats) {
  const All all = mode_figures(folder.records);
  Verdict verdict;
  verdict.question = "What does privacy cost in memory and time, by clipping mode and sequence length?";
  verdict.headline = llama3_headline(all);
  verdict.findings = mode_words(all);
  for (const std::string& mode : modes_of(all)) {
    if (const std::string words = growth_sentence(folder.records, mode); !words.empty())
      verdict.findings.push_back(words);
  }
  verdict.figures = llama3_figures(all);
  verdict.caveats = std::move(caveats);
  if (std::none_of(all.begin(), all.end(), [](const ModeFigures& f) { return f.more_share.has_value(); }))
    verdict.caveats.push_back("There is no no_dp record of the same length, so no overhead can be told.");
  return verdict;
}

Verdict judge_bottlenecks(const RecordFolder& folder, std::vector<std::string> caveats) {
  const All all = mode_figures(folder.records);
  Verdict verdict;
  verdict.question = "Which part of a private step takes the time, and how does it grow with the sequence?";
  std::vector<std::string> parts;
  for (const std::string& mode : modes_of(all)) {
    if (const auto found = bottleneck_of(folder.records, mode))
      parts.push_back(fmt::format("in {} {} of a step at T = {} goes to {}", mode, percent(found->share), found->length,
                                  spaced(found->part)));
    judge_mode(folder.records, mode, verdict);
  }
  std::string headline = parts.empty()
                             ? "No experiment ended well with its phases recorded, so there is nothing to say."
                             : join(parts, "; ") + ".";
  headline[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(headline[0])));
  verdict.headline = headline;
  verdict.caveats = std::move(caveats);
  if (lengths_of(all).size() < 3)
    verdict.caveats.push_back("Fewer than three lengths were measured: exponents have no confidence.");
  return verdict;
}

}  // namespace veil
