#include "report/verdict.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "base/quantity.h"
#include "base/text.h"
#include "base/units.h"
#include "report/tables.h"

namespace veil {
namespace {

constexpr double kLowClockShare = 0.9;  // of the fastest experiment's clock
constexpr double kBusyPercent = 10;     // of the CPUs, by other work: as much as a GPU may be busy
// How much faster than a plain step a private one may be on a CPU before it is doubted.
constexpr double kDoubtfulShare = 0.05;

using Figure = std::optional<double> (*)(const Record&);

std::optional<double> peak_bytes(const Record& record) {
  return record.ok() ? record.peak_memory_bytes : std::nullopt;
}

const Record* least(const std::vector<const Record*>& records, Figure figure) {
  const Record* best = nullptr;
  for (const Record* const record : records) {
    if (figure(*record) && (!best || *figure(*record) < *figure(*best))) best = record;
  }
  return best;
}

// Whether two means differ by more than the steps of either spread. The spread of single steps is
// taken, not the error of the mean: neighbouring steps are not independent.
std::string noise_words(const Record& a, const Record& b, double difference_ms) {
  if (!a.std_time_ms || !b.std_time_ms || a.times_ms.size() == 1 || b.times_ms.size() == 1)
    return "and the noise of single steps is not known";
  const double spread = std::hypot(*a.std_time_ms, *b.std_time_ms);
  return difference_ms > spread
             ? fmt::format("more than the steps' spread of {}", format_ms(spread))
             : fmt::format(
                   "within the steps' spread of {}, so they are equally fast as far as this run "
                   "can tell",
                   format_ms(spread));
}

bool within_noise(const Record& a, const Record& b) {
  const double spread = std::hypot(a.std_time_ms.value_or(0), b.std_time_ms.value_or(0));
  return std::abs(*compared_ms(a) - *compared_ms(b)) <= spread;
}

std::string time_words(const std::vector<const Record*>& records) {
  const Record* const fastest = least(records, compared_ms);
  std::vector<const Record*> others;
  for (const Record* const record : records) {
    if (record != fastest) others.push_back(record);
  }
  const Record* const next = least(others, compared_ms);
  if (!fastest || !next) return "";
  const double ms = *compared_ms(*fastest), more = *compared_ms(*next) - ms;
  return fmt::format("Time: {} is fastest with {} per step; {} follows with {} more ({}), {}.",
                     fastest->label, shown_ms(ms), next->label, shown_ms(more),
                     percent_text(ms > 0 ? more / ms : 0), noise_words(*fastest, *next, more));
}

std::string memory_words(const std::vector<const Record*>& records) {
  const Record* const smallest = least(records, peak_bytes);
  const Record* largest = nullptr;
  for (const Record* const record : records) {
    if (peak_bytes(*record) && (!largest || *peak_bytes(*record) > *peak_bytes(*largest)))
      largest = record;
  }
  if (!smallest || smallest == largest) return "";
  const double low = *peak_bytes(*smallest), high = *peak_bytes(*largest);
  if (low == high)
    return fmt::format("Memory: all need the same, {} at the peak.", shown_bytes(low));
  return fmt::format(
      "Memory: {} needs least, {} at the peak; {} needs most, {} ({:.2f} times as much).",
      smallest->label, shown_bytes(low), largest->label, shown_bytes(high),
      low > 0 ? high / low : 0);
}

// The fastest replicated set-up against the fastest sharded one.
std::string strategy_words(const std::vector<const Record*>& records) {
  std::vector<const Record*> replicated, sharded;
  for (const Record* const record : records) {
    const std::string strategy = strategy_of(*record);
    if (record->world.value_or(2) < 2) return "";  // one rank shards nothing
    if (strategy == "ddp" || strategy == "no-shard") {
      replicated.push_back(record);
    } else if (!strategy.empty()) {
      sharded.push_back(record);
    }
  }
  const Record* const ddp = least(replicated, compared_ms);
  const Record* const fsdp = least(sharded, compared_ms);
  if (!ddp || !fsdp || !peak_bytes(*ddp) || !peak_bytes(*fsdp)) return "";
  const double saved = *peak_bytes(*ddp) - *peak_bytes(*fsdp),
               longer = *compared_ms(*fsdp) - *compared_ms(*ddp);
  const std::string memory =
      saved == 0 ? "the same memory"
                 : fmt::format("{} {}", shown_bytes(std::abs(saved)), saved > 0 ? "less" : "more");
  const std::string time = longer == 0 ? "the same time"
                                       : fmt::format("{} {}", format_ms(std::abs(longer)),
                                                     longer > 0 ? "longer" : "less time");
  return fmt::format("Sharding: {} takes {} and {}, against {}.", fsdp->label, memory, time,
                     ddp->label);
}

std::string choice_words(const RecordGroup& group) {
  const std::vector<Choice> front = choices(group);
  if (front.size() < 2) return "";
  std::vector<std::string> parts;
  for (const Choice& choice : front) {
    parts.push_back(fmt::format("from {} on {} ({})", shown_bytes(choice.bytes),
                                choice.record->label, shown_ms(choice.ms)));
  }
  return "Choose by the memory you have: " + join(parts, "; ") + ".";
}

std::string breakdown_words(const std::vector<const Record*>& records) {
  std::vector<std::string> parts;
  for (const Record* const record : records) {
    double total = 0;
    const std::pair<const std::string, double>* largest = nullptr;
    for (const auto& entry : record->breakdown) {
      total += entry.second;
      if (!largest || entry.second > largest->second) largest = &entry;
    }
    if (!largest || total <= 0) continue;
    std::string name = largest->first;
    std::replace(name.begin(), name.end(), '_', ' ');
    parts.push_back(fmt::format("{} {} of {} ({})", name, percent_text(largest->second / total),
                                shown_bytes(total), record->label));
  }
  return parts.empty() ? "" : "What fills the peak: " + join(parts, "; ") + ".";
}

std::string communication_words(const std::vector<const Record*>& records) {
  std::vector<std::string> parts;
  for (const Record* const record : records) {
    const auto exposed = exposed_ms(*record);
    const auto step = compared_ms(*record);
    if (!exposed || !step || *step <= 0) continue;
    double total = 0;
    for (const auto& [kind, transfer] : record->communication)
      total += std::max(transfer.modelled_ms.value_or(0), transfer.total_ms.value_or(0));
    const std::string of = total >= *exposed && total > 0 ? " of " + format_ms(total) : "";
    parts.push_back(fmt::format("{}{} ({}, {} of its step)",
                                *exposed > 0 ? format_ms(*exposed) : "none", of, record->label,
                                percent_text(*exposed / *step)));
  }
  return parts.empty()
             ? ""
             : "Communication and copies that no computing hid: " + join(parts, "; ") + ".";
}

std::string rank_words(const std::vector<const Record*>& records) {
  for (const Record* const record : records) {
    const RecordRank *slow = nullptr, *fast = nullptr;
    for (const RecordRank& rank : record->ranks) {
      if (!rank.avg_time_ms) continue;
      if (!slow || *rank.avg_time_ms > *slow->avg_time_ms) slow = &rank;
      if (!fast || *rank.avg_time_ms < *fast->avg_time_ms) fast = &rank;
    }
    if (!slow || *slow->avg_time_ms <= 1.05 * *fast->avg_time_ms) continue;
    return fmt::format(
        "Ranks: in {} rank {} takes {} per step and rank {} {}; the others wait for the slow one.",
        record->label, slow->rank, format_ms(*slow->avg_time_ms), fast->rank,
        format_ms(*fast->avg_time_ms));
  }
  return "";
}

// "a takes 100 ms per step in 1.00 GiB"
std::string place_words(const Choice& choice) {
  return fmt::format("{} ({} per step, {})", choice.record->label, shown_ms(choice.ms),
                     shown_bytes(choice.bytes));
}

std::string headline_of(const RecordGroup& group) {
  const Record* const fastest = least(group.records, compared_ms);
  const Record* const smallest = least(group.records, peak_bytes);
  if (!fastest && !smallest) return "No experiment ended well, so there is nothing to compare.";
  if (!fastest || !smallest) {
    const Record* const only = fastest ? fastest : smallest;
    return fastest ? fmt::format("Fastest is {}: {} per step; no memory was recorded.", only->label,
                                 shown_ms(*compared_ms(*only)))
                   : fmt::format("Least memory needs {}: {}; no time was recorded.", only->label,
                                 shown_bytes(*peak_bytes(*only)));
  }
  const double ms = *compared_ms(*fastest), bytes = *peak_bytes(*smallest);
  const auto ended = std::count_if(group.records.begin(), group.records.end(),
                                   [](const Record* record) { return compared_ms(*record); });
  if (ended == 1) {
    return fmt::format("{} takes {} per step and {} at its peak.", fastest->label, shown_ms(ms),
                       shown_bytes(bytes));
  }
  if (fastest == smallest) {
    return fmt::format("Take {}: it is the fastest ({} per step) and needs the least memory ({}).",
                       fastest->label, shown_ms(ms), shown_bytes(bytes));
  }
  // Of those that are as fast as the fastest, the one that needs least.
  const std::vector<Choice> front = choices(group);
  const Choice &take = front.front(), &least_memory = front.back();
  if (front.size() == 1) return fmt::format("Take {}.", place_words(take));
  return short_headline({fmt::format("Take {}, or if memory is short {}.", place_words(take),
                                     place_words(least_memory)),
                         fmt::format("Take {}, or if memory is short {}.", take.record->label,
                                     least_memory.record->label)});
}

// What the headline leaves out: what is as good as the one to take.
std::string level_words(const RecordGroup& group) {
  const std::vector<Choice> front = choices(group);
  if (front.empty()) return "";
  const Choice& take = front.front();
  std::string words;
  if (take.record != take.fastest && peak_bytes(*take.fastest))
    words = fmt::format("{} is not measurably slower than {}, which needs {}", take.record->label,
                        take.fastest->label, shown_bytes(*peak_bytes(*take.fastest)));
  std::vector<std::string> level;  // no slower and no larger that one could see
  for (const Record* const record : group.records) {
    if (record == take.record || record == take.fastest || !compared_ms(*record) ||
        !peak_bytes(*record))
      continue;
    if (within_noise(*take.fastest, *record) && *peak_bytes(*record) <= 1.01 * take.bytes)
      level.push_back(record->label);
  }
  if (!level.empty())
    words += (words.empty() ? "" : "; ") +
             fmt::format("level with {}: {}", take.record->label, join(level, ", "));
  return words.empty() ? "" : words + ".";
}

// The first plain record with the same attention; nullptr if there is none.
const Record* plain_beside(const std::vector<const Record*>& records, const Record& record) {
  const auto plain = std::find_if(records.begin(), records.end(), [&](const Record* other) {
    return is_plain(other) && other->attention == record.attention;
  });
  return plain == records.end() ? nullptr : *plain;
}

// About CPU runs during which other work ran on the machine.
std::string busy_words(const std::vector<Record>& records) {
  std::vector<std::string> disturbed;
  double most = 0;
  for (const Record& record : records) {
    if (record.cpu_during.others_percent.value_or(0) <= kBusyPercent) continue;
    disturbed.push_back(record.label);
    most = std::max(most, *record.cpu_during.others_percent);
  }
  if (disturbed.empty()) return "";
  const std::string which = disturbed.size() == records.size() ? "these runs"
                            : disturbed.size() > 4
                                ? fmt::format("{} of these runs", disturbed.size())
                                : join(disturbed, "; ");
  return fmt::format(
      "Other work used up to {:.0f}% of the CPUs during {}: times mean little. Memory is not "
      "touched by it.",
      most, which);
}

// A private step does all that a plain one does and more; on a GPU another update kernel may make
// up for it, on a CPU nothing does.
std::string doubtful_words(const std::vector<Record>& records) {
  std::vector<std::string> doubtful;
  for (const RecordGroup& group : comparable_groups(records)) {
    for (const Record* record : group.records) {
      const Record* const plain = plain_beside(group.records, *record);
      const auto ms = compared_ms(*record);
      if (!plain || plain->device != "cpu" || is_plain(record) || !ms || !compared_ms(*plain) ||
          within_noise(*plain, *record))
        continue;
      if (*ms < (1 - kDoubtfulShare) * *compared_ms(*plain)) doubtful.push_back(record->label);
    }
  }
  if (doubtful.empty()) return "";
  return fmt::format(
      "Doubtful: {} came out more than {:.0f}% faster than the step without privacy, beyond the "
      "spread. On a CPU the "
      "times are doubtful then: measure again when nothing else runs, or with --repeat.",
      join(doubtful, "; "), 100 * kDoubtfulShare);
}

// "these experiments" if they are many, otherwise their labels.
std::string named(const std::vector<std::string>& labels) {
  return labels.size() > 4 ? fmt::format("{} experiments", labels.size()) : join(labels, "; ");
}

// Sharded steps of a world of one.
std::string unsharded_words(const std::vector<Record>& records) {
  std::vector<std::string> labels;
  for (const Record& record : records) {
    const std::string strategy = strategy_of(record);
    const bool sharded =
        strategy == "zero2" || strategy == "zero3" || canonical(record.mode).ends_with("-fsdp");
    if (record.ok() && sharded && record.world == 1) labels.push_back(record.label);
  }
  if (labels.empty()) return "";
  return fmt::format(
      "One rank shards nothing: {} held everything on it, as DDP would. --ranks N on N GPUs, or "
      "--simulate-world N on one, shows what sharding saves.",
      named(labels));
}

// Offloading to the host where the step runs on the host.
std::string offload_words(const std::vector<Record>& records) {
  std::vector<std::string> labels;
  for (const Record& record : records) {
    if (!record.ok() || record.device != "cpu" || !record.config.is_object()) continue;
    for (const char* name : {"cpu-offload", "offload-params", "offload-optimizer"}) {
      if (record.config.value(name, nlohmann::json()) != true) continue;
      labels.push_back(record.label);
      break;
    }
  }
  if (labels.empty()) return "";
  return fmt::format(
      "CPU offload saves nothing on a CPU, where everything is in host memory already: {}. Its "
      "effect shows on a GPU.",
      named(labels));
}

// What private steps cost compared with the plain record of the group that has their attention, a
// sentence for each plain record.
std::vector<std::string> price_words(const std::vector<const Record*>& records) {
  std::vector<std::string> sentences;
  for (const Record* const plain : records) {
    if (!is_plain(plain) || plain_beside(records, *plain) != plain) continue;
    const auto plain_ms = compared_ms(*plain), plain_bytes = peak_bytes(*plain);
    if (!plain_ms || !plain_bytes || *plain_ms <= 0 || *plain_bytes <= 0) continue;
    std::vector<std::string> words;
    for (const Record* record : records) {
      const auto ms = compared_ms(*record), bytes = peak_bytes(*record);
      if (is_plain(record) || plain_beside(records, *record) != plain || !ms || !bytes) continue;
      words.push_back(fmt::format("{} {:.2f} times the time, {:.2f} times the memory",
                                  record->label, *ms / *plain_ms, *bytes / *plain_bytes));
    }
    if (!words.empty())
      sentences.push_back(
          fmt::format("Beside {}, which protects nobody: {}.", plain->label, join(words, "; ")));
  }
  return sentences;
}

}  // namespace

std::string short_headline(const std::vector<std::string>& headlines) {
  constexpr size_t kMostWords = 25;
  std::string taken;
  for (const std::string& headline : headlines) {
    if (headline.empty()) continue;
    taken = headline;
    if (split(headline, ' ').size() <= kMostWords) break;
  }
  if (!taken.empty())
    taken[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(taken[0])));
  return taken;
}

std::vector<Choice> choices(const RecordGroup& group) {
  std::vector<Choice> all;
  for (const Record* const record : group.records) {
    const auto ms = compared_ms(*record);
    const auto bytes = peak_bytes(*record);
    if (ms && bytes) all.push_back({record, *ms, *bytes, record});
  }
  std::stable_sort(all.begin(), all.end(), [](const Choice& a, const Choice& b) {
    return a.ms != b.ms ? a.ms < b.ms : a.bytes < b.bytes;
  });
  std::vector<Choice> front;
  for (Choice choice : all) {
    if (!front.empty() && choice.bytes >= front.back().bytes) continue;
    // One that needs less and is not measurably slower takes the place of the one before.
    if (!front.empty() && within_noise(*front.back().fastest, *choice.record)) {
      choice.fastest = front.back().fastest;
      front.pop_back();
    }
    front.push_back(choice);
  }
  return front;
}

std::vector<std::string> caveats_of(const RecordFolder& folder) {
  std::vector<std::string> result;
  std::vector<std::string> simulated;
  std::set<int64_t> worlds;
  for (const Record& record : folder.records) {
    if (!record.simulated) continue;
    simulated.push_back(record.label);
    worlds.insert(record.world.value_or(1));
  }
  if (!simulated.empty()) {
    result.push_back(fmt::format(
        "{} ran as one rank of a simulated world{}: memory and computing are measured, "
        "communication is modelled, and a step's time is the modelled one. Losses mean nothing "
        "there.",
        simulated.size() == folder.records.size() ? "All experiments" : join(simulated, "; "),
        worlds.size() == 1 ? fmt::format(" of {}", *worlds.begin()) : ""));
  }
  if (const std::string words = unsharded_words(folder.records); !words.empty())
    result.push_back(words);
  if (const std::string words = offload_words(folder.records); !words.empty())
    result.push_back(words);
  const auto at_random = [](const Record& record) {
    return record.weights && record.weights->rfind("random", 0) == 0;
  };
  if (std::any_of(folder.records.begin(), folder.records.end(), at_random))
    result.push_back(
        "The weights are random: time and memory are measured, and losses mean nothing.");
  for (const Record& record : folder.records) {
    if (record.outcome == "oom") {
      result.push_back(fmt::format("{} did not fit: out of memory{}", record.label,
                                   record.message.empty() ? "." : " (" + record.message + ")."));
    } else if (!record.ok()) {
      result.push_back(fmt::format("{} failed{}", record.label,
                                   record.message.empty() ? "." : ": " + record.message));
    }
    const auto nothing = std::count(record.losses.begin(), record.losses.end(), std::nullopt);
    if (nothing > 0)
      result.push_back(fmt::format("{}: the loss was no number in {}.", record.label,
                                   quantity(nothing, "step")));
  }
  double fastest_clock = 0;
  for (const Record& record : folder.records)
    fastest_clock = std::max(fastest_clock, record.gpu_state.sm_clock_mhz.value_or(0));
  std::vector<std::string> slower;
  for (const Record& record : folder.records) {
    if (record.gpu_state.sm_clock_mhz &&
        *record.gpu_state.sm_clock_mhz < kLowClockShare * fastest_clock)
      slower.push_back(fmt::format("{} at {:.0f}", record.label, *record.gpu_state.sm_clock_mhz));
    if (const std::string outside = record.gpu_outside(); !outside.empty())
      result.push_back(
          fmt::format("{} was begun outside the stated bounds: {}.", record.label, outside));
  }
  if (!slower.empty()) {
    result.push_back(fmt::format(
        "Clocks in MHz differ: {}, others up to {:.0f}. Dense products draw power, and a GPU at "
        "its limit "
        "slows down for them: that is their price. One that was hot before is named above.",
        join(slower, "; "), fastest_clock));
  }
  if (const std::string words = busy_words(folder.records); !words.empty()) result.push_back(words);
  if (const std::string words = doubtful_words(folder.records); !words.empty())
    result.push_back(words);
  for (const DamagedRecord& damaged : folder.damaged) {
    result.push_back(fmt::format("{} is left out: {}.", damaged.file, damaged.reason));
  }
  return result;
}

Verdict general_verdict(const RecordFolder& folder, bool plain_is_baseline) {
  Verdict verdict;
  std::vector<RecordGroup> groups = comparable_groups(folder.records);
  std::vector<std::string> headlines;
  for (RecordGroup& group : groups) {
    const std::string where = groups.size() > 1 && !group.name.empty() ? group.name + ": " : "";
    bool plain_ended = false;
    if (plain_is_baseline) {
      for (const std::string& words : price_words(group.records))
        verdict.findings.push_back(where + words);
      const auto before = group.records.size();
      leave_plain_out(group);
      plain_ended = group.records.size() < before && !least(group.records, compared_ms);
    }
    headlines.push_back(
        where + (plain_ended ? "No private experiment ended well, so there is nothing to compare."
                             : headline_of(group)));
    for (const std::string& words :
         {level_words(group), time_words(group.records), memory_words(group.records),
          strategy_words(group.records), breakdown_words(group.records),
          communication_words(group.records), rank_words(group.records)}) {
      if (!words.empty()) verdict.findings.push_back(where + words);
    }
    if (const std::string words = choice_words(group); !words.empty())
      verdict.choices.push_back(where + words);
  }
  verdict.headline =
      groups.size() == 1
          ? headlines.front()
          : fmt::format("{} in {} groups that do the same work; each is judged below.",
                        quantity(std::ssize(folder.records), "experiment"), groups.size());
  if (groups.size() > 1)
    verdict.findings.insert(verdict.findings.begin(), headlines.begin(), headlines.end());
  return verdict;
}

}  // namespace veil
