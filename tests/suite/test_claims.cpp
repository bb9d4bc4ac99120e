#include "suite/test_claims.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

namespace veil::verdict_claims {
namespace {

using Pieces = std::vector<std::string>;
using Group = std::vector<const Record*>;

// A printed number with its unit, and half of its last digit.
struct Amount {
  double value = NAN, slack = 0;
  bool is(double truth) const {
    return std::abs(value - truth) <= slack * (1 + 1e-9) + 1e-9 * std::abs(truth);
  }
};

Amount amount_of(const std::string& text) {
  static const std::map<std::string, double> units = {
      {"", 1},         {"ms", 1},          {"B", 1},
      {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0},
      {"%", 0.01},     {"k", 1e3},         {"M", 1e6},
      {"G", 1e9}};
  size_t end = 0;
  while (end < text.size() && (std::isdigit(static_cast<unsigned char>(text[end])) != 0 ||
                               text[end] == '.' || text[end] == '-'))
    ++end;
  if (end == 0) return {};
  const std::string digits = text.substr(0, end);
  size_t from = end;
  while (from < text.size() && text[from] == ' ') ++from;
  const auto unit = units.find(text.substr(from));
  if (unit == units.end()) return {};
  const size_t point = digits.find('.');
  const auto decimals =
      point == std::string::npos ? 0.0 : static_cast<double>(digits.size() - point - 1);
  return {std::stod(digits) * unit->second, 0.5 * std::pow(10, -decimals) * unit->second};
}

// A count to three digits: "12.3 k".
bool is_count(const std::string& text, double truth) {
  const Amount amount = amount_of(text);
  return std::abs(amount.value - truth) <= 0.00501 * std::abs(truth);
}

bool number_is(const std::string& text, double truth) {
  return amount_of(text).is(truth);
}

std::vector<std::string> cut(const std::string& text, const std::string& at) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = text.find(at); end != std::string::npos; end = text.find(at, begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + at.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

bool good(const Record& r) {
  return r.outcome.empty() || r.outcome == "ok";
}
// As documented: the modelled step in a simulated world, otherwise the mean.
double ms_of(const Record& r) {
  return r.simulated && r.modelled_step_ms ? *r.modelled_step_ms : *r.avg_time_ms;
}
double bytes_of(const Record& r) {
  return *r.peak_memory_bytes;
}
double spread_of(const Record& a, const Record& b) {
  return std::hypot(a.std_time_ms.value_or(0), b.std_time_ms.value_or(0));
}
bool within_spread(const Record& a, const Record& b) {
  return std::abs(ms_of(a) - ms_of(b)) <= spread_of(a, b);
}
std::string option(const Record& r, const std::string& name, const std::string& usual) {
  if (!r.config.is_object() || !r.config.contains(name)) return usual;
  const nlohmann::json value = r.config[name];
  return value.is_string() ? value.get<std::string>() : value.dump();
}
std::string strategy(const Record& r) {
  return option(r, "strategy", "");
}
double exposed_of(const Record& r, const RecordTransfer& t) {
  return (r.simulated && t.modelled_exposed_ms ? t.modelled_exposed_ms : t.exposed_ms).value_or(0);
}
// A step's parts by its phases and waits; what is left of it is "other".
std::map<std::string, double> parts_of(const Record& r) {
  std::map<std::string, double> parts(r.phases.begin(), r.phases.end());
  for (const auto& [kind, t] : r.communication) {
    if (exposed_of(r, t) > 0) parts["wait for " + kind] = exposed_of(r, t);
  }
  double sum = 0;
  for (const auto& [name, ms] : parts) sum += ms;
  if (!parts.empty() && ms_of(r) > 1.005 * sum) parts["other"] = ms_of(r) - sum;
  return parts;
}
std::string underscored(std::string text) {
  std::replace(text.begin(), text.end(), ' ', '_');
  return text;
}

class Reader {
 public:
  Reader(const std::string& suite, const RecordFolder& folder, const std::set<std::string>& options)
      : suite_(suite), records_(folder.records), options_(options) {}

  void headline(const std::string& text) {
    sentence_ = text;
    if (cut(text, " ").size() > 25) wrong("more than 25 words");
    const size_t stop = text.find(". ");
    if (stop != std::string::npos || text.empty() || text.back() != '.') wrong("not one sentence");
    read(text);
  }

  // One sentence or item.
  void read(const std::string& text) {
    sentence_ = text;
    image_.clear();
    check_options(text);
    Pieces p;
    const std::vector<std::pair<const char*, std::function<void(const Pieces&)>>>& known =
        suite_ == "llama3-dp"     ? mode_patterns()
        : suite_ == "bottlenecks" ? bottleneck_patterns()
        : suite_ == "zero"        ? zero_patterns()
                                  : general_patterns();
    for (const auto* list : {&known, &caveat_patterns()}) {
      for (const auto& [pattern, check] : *list) {
        if (!read_pattern(text, pattern, p)) continue;
        check(p);
        return;
      }
    }
    wrong("a sentence that the checker does not know");
  }

  std::string found;  // false claims

 private:
  using Patterns = std::vector<std::pair<const char*, std::function<void(const Pieces&)>>>;

  void wrong(const std::string& what) { found += what + ": " + sentence_ + "\n"; }
  void claim(bool holds, const std::string& what) {
    if (!holds) wrong(what);
  }

  const Record* find(const std::string& label) {
    for (const Record& r : records_) {
      if (r.label == label) return &r;
    }
    wrong("no record is called '" + label + "'");
    return nullptr;
  }
  // A record that ended well.
  const Record* ended(const std::string& label) {
    const Record* r = find(label);
    if (r && !good(*r)) wrong(label + " did not end well");
    return r && good(*r) ? r : nullptr;
  }

  // Of the same work; private ones alone where the plain step is the baseline.
  Group peers(const Record& of, bool with_plain = false) const {
    Group group;
    bool any_private = false;
    for (const Record& r : records_) {
      if (option(r, "image-size", "") != option(of, "image-size", "") ||
          r.batch_size != of.batch_size || r.seq_length != of.seq_length || r.world != of.world ||
          r.device != of.device || r.simulated != of.simulated)
        continue;
      any_private = any_private || r.mode != "no_dp";
      if (good(r)) group.push_back(&r);
    }
    if (suite_ == "dit-dp" && any_private && !with_plain)
      std::erase_if(group, [](const Record* r) { return r->mode == "no_dp"; });
    return group;
  }
  static const Record* fastest(const Group& group) {
    return *std::min_element(group.begin(), group.end(), [](const Record* a, const Record* b) {
      return ms_of(*a) < ms_of(*b);
    });
  }
  static double least_bytes(const Group& group) {
    double least = HUGE_VAL;
    for (const Record* r : group) least = std::min(least, bytes_of(*r));
    return least;
  }

  // Every option in the text is one of the suite's.
  void check_options(const std::string& text) {
    for (size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
      size_t end = at + 2;
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 ||
                                   text[end] == '-' || text[end] == '_'))
        ++end;
      const std::string name = text.substr(at + 2, end - at - 2);
      if (!options_.count(name)) wrong("the suite has no option --" + name);
    }
  }

  // --- the general verdict ---

  void costs(const Record* r, const std::string& ms, const std::string& bytes) {
    if (!r) return;
    claim(number_is(ms, ms_of(*r)), "time of " + r->label);
    claim(number_is(bytes, bytes_of(*r)), "memory of " + r->label);
  }

  void takes(const Record* take, const Record* small) {
    if (take) {
      const Group others = peers(*take, true);
      claim(within_spread(*take, *fastest(peers(*take).empty() ? others : peers(*take))),
            "the one to take is measurably slower");
      const Group group = peers(*take);
      claim(std::find(group.begin(), group.end(), take) != group.end(),
            "a step without privacy is recommended");
    }
    if (small) claim(bytes_of(*small) == least_bytes(peers(*small)), "another needs less memory");
    if (take && small) claim(bytes_of(*small) < bytes_of(*take), "it does not need less");
  }

  void level(const std::string& with, const std::string& labels) {
    const Record* take = ended(with);
    for (const std::string& label : cut(labels, ", ")) {
      const Record* r = ended(label);
      if (!take || !r) continue;
      claim(within_spread(*r, *fastest(peers(*take))), label + " is slower");
      claim(bytes_of(*r) <= 1.01 * bytes_of(*take), label + " is larger");
    }
  }

  void time_claim(const Pieces& p) {
    const Record *first = ended(p[0]), *next = ended(p[2]);
    if (!first || !next) return;
    const Group group = peers(*first);
    const double more = ms_of(*next) - ms_of(*first), spread = spread_of(*first, *next);
    claim(fastest(group) == first || ms_of(*fastest(group)) == ms_of(*first), "not the fastest");
    for (const Record* r : group)
      claim(r == first || ms_of(*r) >= ms_of(*next), r->label + " comes before the next");
    claim(number_is(p[1], ms_of(*first)), "its time");
    claim(number_is(p[3], more), "the difference");
    claim(number_is(p[4], more / ms_of(*first)), "the percentage");
    Pieces q;
    if (read_pattern(p[5], "more than the steps' spread of {}", q)) {
      claim(more > spread && number_is(q[0], spread), "the spread");
    } else if (read_pattern(p[5],
                            "within the steps' spread of {}, so they are equally fast as far as "
                            "this run can tell",
                            q)) {
      claim(more <= spread && number_is(q[0], spread), "the spread");
    } else {
      claim(p[5] == "and the noise of single steps is not known", "the noise");
      claim(!first->std_time_ms || !next->std_time_ms || first->times_ms.size() == 1 ||
                next->times_ms.size() == 1,
            "the noise is known");
    }
  }

  void sharding_claim(const Pieces& p) {
    const Record *sharded = ended(p[0]), *whole = ended(p[3]);
    if (!sharded || !whole) return;
    claim(sharded->world.value_or(1) > 1, "one rank shards nothing");
    claim(strategy(*sharded) != "ddp" && strategy(*whole) == "ddp", "the strategies");
    Pieces q;
    const double saved = bytes_of(*whole) - bytes_of(*sharded),
                 longer = ms_of(*sharded) - ms_of(*whole);
    if (read_pattern(p[1], "{} less", q)) {
      claim(saved > 0 && number_is(q[0], saved), "the memory");
    } else if (read_pattern(p[1], "{} more", q)) {
      claim(saved < 0 && number_is(q[0], -saved), "the memory");
    } else {
      claim(p[1] == "the same memory" && saved == 0, "the memory");
    }
    if (read_pattern(p[2], "{} longer", q)) {
      claim(longer > 0 && number_is(q[0], longer), "the time");
    } else if (read_pattern(p[2], "{} less time", q)) {
      claim(longer < 0 && number_is(q[0], -longer), "the time");
    } else {
      claim(p[2] == "the same time" && longer == 0, "the time");
    }
  }

  void choices_claim(const Pieces& p) {
    double before = HUGE_VAL;
    for (const std::string& item : cut(p[0], "; ")) {
      Pieces q;
      if (!read_pattern(item, "from {} on {} ({})", q)) return wrong("a choice: " + item);
      const Record* r = ended(q[1]);
      if (!r) continue;
      costs(r, q[2], q[0]);
      claim(bytes_of(*r) < before, "choices do not fall");
      before = bytes_of(*r);
      for (const Record* other : peers(*r))
        claim(bytes_of(*other) > bytes_of(*r) || ms_of(*other) >= ms_of(*r),
              other->label + " is faster in no more memory");
    }
  }

  void fills_claim(const Pieces& p) {
    for (const std::string& item : cut(p[0], "; ")) {
      Pieces q;
      if (!read_pattern(item, "{}% of {} ({})", q)) return wrong("what fills: " + item);
      const Record* r = ended(q[2]);
      const size_t space = q[0].rfind(' ');
      if (!r || space == std::string::npos) continue;
      double total = 0, most = 0;
      for (const auto& [name, bytes] : r->breakdown) total += bytes, most = std::max(most, bytes);
      const auto part = r->breakdown.find(underscored(q[0].substr(0, space)));
      claim(part != r->breakdown.end() && part->second == most, "not the largest part");
      claim(number_is(q[0].substr(space + 1) + "%", most / total), "its share");
      claim(number_is(q[1], total), "the whole");
    }
  }

  void hidden_claim(const Pieces& p) {
    for (const std::string& item : cut(p[0], "; ")) {
      Pieces q;
      if (!read_pattern(item, "{} ({}, {} of its step)", q)) return wrong("exposed: " + item);
      const Record* r = ended(q[1]);
      if (!r) continue;
      double exposed = 0, total = 0;
      for (const auto& [kind, t] : r->communication) {
        exposed += exposed_of(*r, t);
        total += std::max(t.modelled_ms.value_or(0), t.total_ms.value_or(0));
      }
      const std::vector<std::string> halves = cut(q[0], " of ");
      claim(halves[0] == "none" ? exposed == 0 : number_is(halves[0], exposed), "exposed time");
      if (halves.size() == 2) claim(number_is(halves[1], total), "the whole time");
      claim(number_is(q[2], exposed / ms_of(*r)), "its share");
    }
  }

  void prices_claim(const Pieces& p) {
    const Record* plain = ended(p[0]);
    claim(plain && plain->mode == "no_dp", "it is private");
    for (const std::string& item : cut(p[1], "; ")) {
      Pieces q;
      if (!read_pattern(item, "{} times the time, {} times the memory", q))
        return wrong("a price: " + item);
      const size_t space = q[0].rfind(' ');
      const Record* r = ended(q[0].substr(0, space));
      if (!r || !plain) continue;
      claim(r->mode != "no_dp", "it is not private");
      claim(number_is(q[0].substr(space + 1), ms_of(*r) / ms_of(*plain)), "times the time");
      claim(number_is(q[1], bytes_of(*r) / bytes_of(*plain)), "times the memory");
    }
  }

  const Patterns& general_patterns() {
    if (!general_.empty()) return general_;
    general_ = {
        {"Take {}: it is the fastest ({} per step) and needs the least memory ({}).",
         [this](const Pieces& p) {
           const Record* r = ended(p[0]);
           if (!r) return;
           costs(r, p[1], p[2]);
           claim(ms_of(*fastest(peers(*r))) == ms_of(*r), "not the fastest");
           takes(r, nullptr);
           claim(bytes_of(*r) == least_bytes(peers(*r)), "not the least memory");
         }},
        {"Take {} ({} per step, {}), or if memory is short {} ({} per step, {}).",
         [this](const Pieces& p) {
           costs(ended(p[0]), p[1], p[2]);
           costs(ended(p[3]), p[4], p[5]);
           takes(ended(p[0]), ended(p[3]));
         }},
        {"Take {} ({} per step, {}).",
         [this](const Pieces& p) {
           costs(ended(p[0]), p[1], p[2]);
           takes(ended(p[0]), nullptr);
         }},
        {"Take {}, or if memory is short {}.",
         [this](const Pieces& p) { takes(ended(p[0]), ended(p[1])); }},
        {"{} experiments in {} groups that do the same work; each is judged below.",
         [this](const Pieces& p) {
           std::set<std::string> sizes;
           for (const Record& r : records_) sizes.insert(option(r, "image-size", ""));
           claim(number_is(p[0], static_cast<double>(records_.size())), "how many");
           claim(number_is(p[1], static_cast<double>(sizes.size())), "how many groups");
         }},
        {"No experiment ended well, so there is nothing to compare.",
         [this](const Pieces&) { none_ended(/*plain_too=*/true); }},
        {"No private experiment ended well, so there is nothing to compare.",
         [this](const Pieces&) { none_ended(/*plain_too=*/false); }},
        {"image-size {}, batch {}, {}: {}",
         [this](const Pieces& p) {
           image_ = p[0];
           Pieces q;
           for (const auto& [pattern, check] : general_patterns()) {
             if (!read_pattern(p[3], pattern, q)) continue;
             check(q);
             return;
           }
           wrong("a sentence of a group that the checker does not know");
         }},
        {"{} takes {} per step and {} at its peak.",
         [this](const Pieces& p) { costs(ended(p[0]), p[1], p[2]); }},
        {"{} is not measurably slower than {}, which needs {}; level with {}: {}.",
         [this](const Pieces& p) {
           slower_claim(p);
           level(p[3], p[4]);
         }},
        {"{} is not measurably slower than {}, which needs {}.",
         [this](const Pieces& p) { slower_claim(p); }},
        {"level with {}: {}.", [this](const Pieces& p) { level(p[0], p[1]); }},
        {"Time: {} is fastest with {} per step; {} follows with {} more ({}), {}.",
         [this](const Pieces& p) { time_claim(p); }},
        {"Memory: all need the same, {} at the peak.",
         [this](const Pieces& p) {
           for (const Record& r : records_) {
             if (in_group(r) && good(r) && (suite_ != "dit-dp" || r.mode != "no_dp"))
               claim(number_is(p[0], bytes_of(r)), r.label + " needs other memory");
           }
         }},
        {"Memory: {} needs least, {} at the peak; {} needs most, {} ({} times as much).",
         [this](const Pieces& p) {
           const Record *small = ended(p[0]), *large = ended(p[2]);
           if (!small || !large) return;
           claim(number_is(p[1], bytes_of(*small)) && number_is(p[3], bytes_of(*large)), "bytes");
           claim(number_is(p[4], bytes_of(*large) / bytes_of(*small)), "how many times");
           for (const Record* r : peers(*small))
             claim(bytes_of(*r) >= bytes_of(*small) && bytes_of(*r) <= bytes_of(*large),
                   r->label + " is outside");
         }},
        {"Sharding: {} takes {} and {}, against {}.",
         [this](const Pieces& p) { sharding_claim(p); }},
        {"What fills the peak: {}.", [this](const Pieces& p) { fills_claim(p); }},
        {"Communication and copies that no computing hid: {}.",
         [this](const Pieces& p) { hidden_claim(p); }},
        {"Choose by the memory you have: {}.", [this](const Pieces& p) { choices_claim(p); }},
        {"Beside {}, which protects nobody: {}.", [this](const Pieces& p) { prices_claim(p); }}};
    return general_;
  }

  bool in_group(const Record& r) const {
    return image_.empty() || option(r, "image-size", "") == image_;
  }
  void none_ended(bool plain_too) {
    for (const Record& r : records_)
      claim(!in_group(r) || !good(r) || (!plain_too && r.mode == "no_dp"), r.label + " ended well");
  }

  void slower_claim(const Pieces& p) {
    const Record *a = ended(p[0]), *b = ended(p[1]);
    if (!a || !b) return;
    claim(within_spread(*a, *b), "it is measurably slower");
    claim(number_is(p[2], bytes_of(*b)), "what it needs");
    claim(bytes_of(*a) <= bytes_of(*b), "it needs more");
  }

  // --- caveats of any folder ---

  void labels_claim(const std::string& labels, const std::function<bool(const Record&)>& of) {
    std::vector<std::string> truth;
    for (const Record& r : records_) {
      if (of(r)) truth.push_back(r.label);
    }
    Pieces p;
    if (read_pattern(labels, "{} experiments", p)) {
      claim(number_is(p[0], static_cast<double>(truth.size())), "how many");
    } else {
      claim(cut(labels, "; ") == truth, "which");
    }
  }

  const Patterns& caveat_patterns() {
    if (!caveats_.empty()) return caveats_;
    caveats_ = {
        {"No experiment ended well, so there is nothing to compare.",
         [this](const Pieces&) { none_ended(/*plain_too=*/true); }},
        {"Instead of {}, try: {}.",
         [this](const Pieces& p) {
           const Record* r = find(p[0]);
           claim(r && r->outcome == "oom", "it fitted");
           for (const std::string& item : cut(p[1], "; "))
             claim(item.find(", fits, ") != std::string::npos, "it does not fit: " + item);
         }},
        {"Instead of {}, these need less, and none is enough alone: {}.",
         [this](const Pieces& p) {
           const Record* r = find(p[0]);
           claim(r && r->outcome == "oom", "it fitted");
           claim(p[1].find(", fits, ") == std::string::npos, "one fits");
         }},
        {"{} ran as one rank of a simulated world of {}: memory and computing are measured, "
         "communication is modelled, and a step's time is the modelled one. Losses mean nothing "
         "there.",
         [this](const Pieces& p) {
           for (const Record& r : records_)
             claim(!r.simulated || number_is(p[1], static_cast<double>(*r.world)), "the world");
           if (p[0] != "All experiments")
             labels_claim(p[0], [](const Record& r) { return r.simulated; });
         }},
        {"One rank shards nothing: {} held everything on it, as DDP would. --ranks N on N GPUs, or "
         "--simulate-world N on one, shows what sharding saves.",
         [this](const Pieces& p) {
           labels_claim(p[0], [](const Record& r) {
             return good(r) && r.world == 1 &&
                    (strategy(r).starts_with("zero") || r.mode.ends_with("_fsdp"));
           });
         }},
        {"CPU offload saves nothing on a CPU, where everything is in host memory already: {}. Its "
         "effect shows on a GPU.",
         [this](const Pieces& p) {
           labels_claim(p[0], [](const Record& r) {
             return good(r) && r.device == "cpu" && option(r, "cpu-offload", "") == "true";
           });
         }},
        {"{} did not fit: out of memory{}",
         [this](const Pieces& p) {
           const Record* r = find(p[0]);
           claim(r && r->outcome == "oom", "it fitted");
         }},
        {"{} failed{}",
         [this](const Pieces& p) {
           const Record* r = find(p[0]);
           claim(r && r->outcome == "error", "it did not fail");
         }},
        {"Doubtful: {} came out more than 5% faster than the step without privacy, beyond the "
         "spread. On a CPU the times are doubtful then: measure again when nothing else runs, or "
         "with --repeat.",
         [this](const Pieces& p) {
           for (const std::string& label : cut(p[0], "; ")) {
             const Record* r = ended(label);
             if (!r) continue;
             claim(r->mode != "no_dp" && r->device == "cpu", "no doubt");
             const Group group = peers(*r, true);
             claim(std::any_of(group.begin(), group.end(),
                               [&](const Record* base) {
                                 return base->mode == "no_dp" && !within_spread(*base, *r) &&
                                        ms_of(*r) < 0.95 * ms_of(*base);
                               }),
                   label + " is not that fast");
           }
         }},
        {"There is no no_dp record of the same length, so no overhead can be told.",
         [this](const Pieces&) {
           for (const Record& r : records_)
             claim(!good(r) || r.mode == "no_dp" || !plain_of(r), r.label + " has one");
         }},
        {"Fewer than three lengths were measured: they cannot tell a law of growth.",
         [this](const Pieces&) {
           std::set<int64_t> lengths;
           for (const Record& r : records_) lengths.insert(r.seq_length.value_or(0));
           claim(lengths.size() < 3, "there are more lengths");
         }},
        {"Steps read synthetic tokens, so no time of a loader is in these figures; --data names "
         "your text.",
         [this](const Pieces&) {
           claim(std::any_of(records_.begin(), records_.end(),
                             [](const Record& r) { return good(r) && r.data.source.empty(); }),
                 "there is text");
         }},
        {"Every figure of time holds communication modelled.",
         [this](const Pieces&) {
           claim(std::any_of(records_.begin(), records_.end(),
                             [](const Record& r) { return r.simulated; }),
                 "nothing is modelled");
         }},
        {"Every figure of time holds communication modelled at {} GB/s.", [this](const Pieces& p) {
           claim(std::any_of(records_.begin(), records_.end(),
                             [&](const Record& r) {
                               return r.simulated && r.link_gb_per_s &&
                                      number_is(p[0], *r.link_gb_per_s);
                             }),
                 "the link");
         }}};
    return caveats_;
  }

  // --- modes by lengths ---

  const Record* plain_of(const Record& of) const {
    for (const Record& r : records_) {
      if (r.mode == "no_dp" && r.seq_length == of.seq_length && good(r)) return &r;
    }
    return nullptr;
  }
  const Record* of_mode(const std::string& mode, const std::string& length) {
    for (const Record& r : records_) {
      if (r.mode == mode && std::to_string(r.seq_length.value_or(0)) == length) return &r;
    }
    wrong("no record of " + mode + " at " + length);
    return nullptr;
  }

  void cost_claim(const Record* r, const std::string& time, const std::string& memory) {
    if (!r) return;
    if (!good(*r)) return wrong("it did not end well");
    const Record* plain = plain_of(*r);
    if (!plain) return wrong("there is nothing to compare it with");
    const double share = (ms_of(*r) - ms_of(*plain)) / ms_of(*plain),
                 more = bytes_of(*r) - bytes_of(*plain);
    Pieces p;
    if (read_pattern(time, "{} more time", p)) {
      claim(share > 0 && number_is(p[0], share), "the time");
    } else if (read_pattern(time, "{} less time", p)) {
      claim(share < 0 && number_is(p[0], -share), "the time");
    } else {
      claim(time == "the same time within the spread" && within_spread(*r, *plain), "the time");
    }
    if (read_pattern(memory, "{} more memory", p)) {
      claim(more > 0 && number_is(p[0], more), "the memory");
    } else if (read_pattern(memory, "{} less memory", p)) {
      claim(more < 0 && number_is(p[0], -more), "the memory");
    } else {
      claim(memory == "about the same memory" && std::abs(more) < 0.01 * bytes_of(*plain),
            "the memory");
    }
  }

  // The headline is auto's if auto has a cost, at the longest length where it has one.
  void leads(const Record* r) {
    if (!r) return;
    for (const Record& other : records_) {
      if (!good(other) || other.mode == "no_dp") continue;
      const bool more_known = plain_of(other) && !plain_of(*r);
      claim(!more_known, "a cost is known, of " + other.label);
      if (!plain_of(other) && plain_of(*r)) continue;
      claim(r->mode == "auto" || other.mode != "auto", "auto does not lead");
      if ((r->mode == "auto") == (other.mode == "auto"))
        claim(*other.seq_length <= *r->seq_length, "a longer one was measured");
    }
  }

  using Value = std::function<std::optional<double>(const Record&)>;

  // "grows linearly ...", of a mode's figure.
  void growth_claim(const std::string& words, const std::string& mode, const Value& value) {
    std::map<double, double> points;
    for (const Record& r : records_) {
      if (r.mode != mode || !good(r) || !r.seq_length) continue;
      if (const auto y = value(r); y && *y > 0) points[static_cast<double>(*r.seq_length)] = *y;
    }
    if (points.size() < 2) return wrong("growth of fewer than two points");
    const double first = points.begin()->first, last = points.rbegin()->first,
                 from = points.begin()->second, to = points.rbegin()->second;
    const auto range = [&](const std::string& a, const std::string& b) {
      claim(number_is(a, first) && number_is(b, last), "the lengths");
    };
    const auto within = [&](const Amount& a, const Amount& b, const Amount& c,
                            const std::string& share) {
      for (const auto& [x, y] : points) {
        const double t = x / last, law = a.value + (b.value + c.value * t) * t;
        const double slack = a.slack + b.slack * t + c.slack * t * t;
        claim(std::abs(law - y) <= amount_of(share).value * y + slack + 1e-6 * y,
              "the law is farther from a point");
      }
    };
    const auto at_last = [&](const Amount& per_1000) {
      return Amount{per_1000.value * last / 1000, per_1000.slack * last / 1000};
    };
    Pieces p;
    if (read_pattern(words, "stays at {} from T = {} to {}, within {}", p)) {
      range(p[1], p[2]);
      within(amount_of(p[0]), {0, 0}, {0, 0}, p[3]);
      claim(std::abs(to / from - 1) < 0.042, "it grows");
    } else if (read_pattern(words,
                            "grows linearly with T from {} to {}: {} plus {} per 1000 tokens, "
                            "within {}",
                            p)) {
      range(p[0], p[1]);
      within(amount_of(p[2]), at_last(amount_of(p[3])), {0, 0}, p[4]);
      claim(points.size() >= 3, "too few lengths for a line");
    } else if (read_pattern(words,
                            "grows in proportion to T from {} to {}: {} per 1000 tokens, within {}",
                            p)) {
      range(p[0], p[1]);
      within({0, 0}, at_last(amount_of(p[2])), {0, 0}, p[3]);
      claim(points.size() >= 3, "too few lengths for a line");
    } else if (read_pattern(words,
                            "grows faster than linearly with T from {} to {}: at T = {} {} plus {} "
                            "by T and {} by T^2, within {}",
                            p)) {
      range(p[0], p[1]);
      claim(number_is(p[2], last), "the longest");
      within(amount_of(p[3]), amount_of(p[4]), amount_of(p[5]), p[6]);
      claim(points.size() >= 4, "too few lengths for a square");
    } else if (read_pattern(words, "is {} times as large at T = {} as at T = {} ({})", p)) {
      range(p[2], p[1]);
      claim(number_is(p[0], to / from), "how many times");
      Pieces q;
      if (read_pattern(p[3], "{} lengths cannot tell the law", q)) {
        claim(number_is(q[0], static_cast<double>(points.size())) && points.size() <= 3, "lengths");
      } else {
        claim(p[3] == "neither a + bT nor a + bT + cT^2 is within 2% of every length" &&
                  points.size() >= 4,
              "lengths");
      }
    } else {
      wrong("a growth that the checker does not know");
    }
  }

  void growth_sentence(const Pieces& p) {
    for (const std::string& item : cut(p[1], "; ")) {
      if (item.starts_with("time ")) {
        growth_claim(item.substr(5), p[0], [](const Record& r) { return std::optional(ms_of(r)); });
      } else if (item.starts_with("memory ")) {
        growth_claim(item.substr(7), p[0],
                     [](const Record& r) { return std::optional(bytes_of(r)); });
      } else {
        wrong("growth of what");
      }
    }
  }

  void lengths_claim(const Pieces& p) {
    for (const std::string& item : cut(p[1], "; ")) {
      Pieces q;
      if (!read_pattern(item, "T = {} {}", q)) return wrong("a length: " + item);
      const Record* r = of_mode(p[0], q[0]);
      if (!r) continue;
      Pieces w;
      if (q[1] == "out of memory") {
        claim(r->outcome == "oom", "it fitted");
      } else if (q[1] == "failed") {
        claim(r->outcome == "error", "it did not fail");
      } else if (read_pattern(q[1], "{} and {} than no_dp", w) ||
                 read_pattern(q[1], "{} and {} compared with no_dp", w)) {
        cost_claim(r, w[0], w[1]);
      } else if (read_pattern(q[1], "{} per step in {}", w)) {
        costs(r, w[0], w[1]);
      } else {
        wrong("a cost: " + item);
      }
    }
  }

  const Patterns& mode_patterns() {
    if (!modes_.empty()) return modes_;
    modes_ = {{"At T = {}, private training takes {} per step and {} ({}).",
               [this](const Pieces& p) {
                 const Record* r = of_mode(p[3], p[0]);
                 costs(r, p[1], p[2]);
                 leads(r);
               }},
              {"At T = {}, private training takes {} and {} than plain training ({}).",
               [this](const Pieces& p) {
                 cost_claim(of_mode(p[3], p[0]), p[1], p[2]);
                 leads(of_mode(p[3], p[0]));
               }},
              {"Compared with plain training at T = {}, private training takes {} and {} ({}).",
               [this](const Pieces& p) {
                 cost_claim(of_mode(p[3], p[0]), p[1], p[2]);
                 leads(of_mode(p[3], p[0]));
               }},
              {"No private mode ended well, so nothing can be said of what privacy costs.",
               [this](const Pieces&) {
                 for (const Record& r : records_) claim(!good(r) || r.mode == "no_dp", "one did");
               }},
              {"Growth of {}: {}.", [this](const Pieces& p) { growth_sentence(p); }},
              {"{}: T = {}.", [this](const Pieces& p) {
                 lengths_claim({p[0], "T = " + p[1]});
               }}};
    return modes_;
  }

  // --- bottlenecks ---

  const Record* longest_of(const std::string& mode) const {
    const Record* longest = nullptr;
    for (const Record& r : records_) {
      if (r.mode == mode && good(r) && (!longest || *r.seq_length > *longest->seq_length))
        longest = &r;
    }
    return longest;
  }

  // The part's name as the record has it.
  static std::string part_named(const std::map<std::string, double>& parts,
                                const std::string& words) {
    return parts.count(words) ? words : underscored(words);
  }

  void largest_claim(const std::string& mode, const std::string& length, const std::string& part,
                     const std::string& share) {
    const Record* r = longest_of(mode);
    if (!r) return wrong("nothing of " + mode + " ended well");
    claim(std::to_string(*r->seq_length) == length, "not the longest");
    const std::map<std::string, double> parts = parts_of(*r);
    const std::string name = part_named(parts, part);
    if (!parts.count(name)) return wrong("no part " + part);
    for (const auto& [other, ms] : parts)
      claim(ms <= parts.at(name), other + " is larger than " + part);
    claim(number_is(share, parts.at(name) / ms_of(*r)), "the share");
  }

  void advice_claim(const std::string& mode, const std::string& words) {
    const Record* r = longest_of(mode);
    if (!r) return;
    const bool with_plain = std::any_of(records_.begin(), records_.end(),
                                        [](const Record& one) { return one.mode == "no_dp"; });
    const auto says = [&](const char* text) { return words.find(text) != std::string::npos; };
    claim(!says("--mode auto") || mode != "auto", "auto is what runs");
    for (const char* part : {"--rule", "--pass-plan", "--tile-size"})
      claim(!says(part) || !with_plain, std::string("no_dp refuses ") + part);
    claim(!says("--rule flash") || mode.find("flash") == std::string::npos, "it is flash");
    claim(!says("--rule ghost") || mode.find("flash") != std::string::npos, "it is ghost");
    claim(!says("--strategy zero3") || (r->world.value_or(1) > 1 && strategy(*r) != "zero3"),
          "zero3 does not help");
    claim(!says("--strategy zero2") || (strategy(*r) == "zero3" && !mode.ends_with("_fsdp")),
          "zero2 does not help");
    claim(!says("--graph on") || (r->device == "cuda" && r->graph != "on"), "no graph helps");
    claim(!says("--cpu-offload` keeps") ||
              (r->device == "cuda" && option(*r, "cpu-offload", "false") != "true"),
          "offload does not help");
    claim(!says("--cpu-offload` out") || option(*r, "cpu-offload", "false") == "true",
          "it is not given");
    claim(!says("--checkpointing full") || option(*r, "checkpointing", "none") != "full",
          "it is given");
    claim(!says("--checkpointing selective") || option(*r, "checkpointing", "none") == "full",
          "it saves nothing");
    claim(!says("--checkpointing none") || option(*r, "checkpointing", "none") == "selective",
          "nothing is recomputed");
    claim(!says("--accumulate whole") || option(*r, "accumulation", "1") != "1",
          "there is one micro-batch");
    claim(!says("--reduce bf16") || option(*r, "reduce", "fp32") == "fp32", "it is bf16");
    claim(!says("smaller `--batch-size`") || r->batch_size.value_or(1) > 1, "the batch is one");
    claim(!says("tokenize") && !says("store"), "text is encoded before the first step");
    claim(!says("--pass-plan two-pass") || mode.find("bookkeeping") != std::string::npos ||
              mode == "materialize",
          "two passes run already");
    claim(!says("--pass-plan book") || mode.find("bookkeeping") == std::string::npos,
          "it books already");
  }

  void memory_sentence(const Pieces& p) {
    const Record* r = longest_of(p[0]);
    if (!r) return wrong("nothing ended well");
    // "activations, an amount that grows ...; `--x` does"
    std::string rest = p[3], advice;
    if (const size_t at = rest.find("; "); at != std::string::npos) {
      advice = rest.substr(at + 2);
      rest = rest.substr(0, at);
    }
    std::string growth;
    if (const size_t at = rest.find(", an amount that "); at != std::string::npos) {
      growth = rest.substr(at + 17);
      rest = rest.substr(0, at);
    }
    const std::string category = underscored(rest);
    const auto held = r->breakdown.find(category);
    if (held == r->breakdown.end()) return wrong("no category " + rest);
    claim(number_is(p[1], held->second / bytes_of(*r)), "the share");
    claim(p[2] == std::to_string(*r->seq_length), "the length");
    if (!growth.empty())
      growth_claim(growth, p[0], [&](const Record& one) -> std::optional<double> {
        const auto at = one.breakdown.find(category);
        return at == one.breakdown.end() ? std::nullopt : std::optional(at->second);
      });
    advice_claim(p[0], advice);
  }

  void bottleneck_sentence(const Pieces& p) {
    // "norms", or "norms, which grows ..."
    std::string part = p[5], growth;
    if (const size_t at = part.find(", which "); at != std::string::npos) {
      growth = part.substr(at + 8);
      part = part.substr(0, at);
    }
    largest_claim(p[0], p[2], part, p[1]);
    const Record* r = longest_of(p[0]);
    if (!r) return;
    const std::map<std::string, double> parts = parts_of(*r);
    const std::string name = part_named(parts, part);
    claim(parts.count(name) && number_is(p[3], parts.at(name)), "its time");
    claim(number_is(p[4], ms_of(*r)), "the step's time");
    if (!growth.empty())
      growth_claim(growth, p[0], [&](const Record& one) -> std::optional<double> {
        const std::map<std::string, double> all = parts_of(one);
        return all.count(name) ? std::optional(all.at(name)) : std::nullopt;
      });
  }

  const Patterns& bottleneck_patterns() {
    if (!bottlenecks_.empty()) return bottlenecks_;
    bottlenecks_ = {
        {"At T = {}, the largest part of a step is {}.",
         [this](const Pieces& p) {
           for (const std::string& item : cut(p[1], ", ")) {
             Pieces q;
             if (read_pattern(item, "{} in {} ({})", q)) {
               largest_claim(q[1], p[0], q[0], q[2]);
             } else {
               wrong("a part: " + item);
             }
           }
         }},
        {"At T = {}, {} of a step goes to {} in {}, the largest share of any mode.",
         [this](const Pieces& p) {
           largest_claim(p[3], p[0], p[2], p[1]);
           for (const Record& r : records_) {
             if (!good(r) || longest_of(r.mode) != &r) continue;
             for (const auto& [part, ms] : parts_of(r))
               claim(ms / ms_of(r) <= amount_of(p[1]).value + amount_of(p[1]).slack + 1e-9,
                     part + " of " + r.label + " is larger");
           }
         }},
        {"No experiment ended well with its phases recorded, so there is nothing to say.",
         [this](const Pieces&) {
           for (const Record& r : records_) claim(!good(r) || r.phases.empty(), "one did");
         }},
        {"Bottleneck of {}: {} of a step at T = {} ({} of {}) goes to {}.",
         [this](const Pieces& p) { bottleneck_sentence(p); }},
        {"Then, in {}: {}.",
         [this](const Pieces& p) {
           const Record* r = longest_of(p[0]);
           if (!r) return wrong("nothing ended well");
           const std::map<std::string, double> parts = parts_of(*r);
           for (std::string item : cut(p[1], ", ")) {
             if (item.ends_with(")")) item = item.substr(0, item.rfind(" ("));
             const size_t space = item.rfind(' ');
             const std::string name = part_named(parts, item.substr(0, space));
             claim(
                 parts.count(name) && number_is(item.substr(space + 1), parts.at(name) / ms_of(*r)),
                 "the share of " + name);
           }
         }},
        {"Growth of {}: {}.", [this](const Pieces& p) { growth_sentence(p); }},
        {"Advice on time, {}: {}.", [this](const Pieces& p) { advice_claim(p[0], p[1]); }},
        {"Memory of {}: {} of the peak at T = {} is for {}.",
         [this](const Pieces& p) { memory_sentence(p); }},
        {"Hidden in {}: of {} of {} {} were not waited for.", [this](const Pieces& p) {
           const Record* r = longest_of(p[0]);
           if (!r || !r->communication.count(p[2])) return wrong("no such communication");
           const RecordTransfer& t = r->communication.at(p[2]);
           const double total = std::max(t.modelled_ms.value_or(0), t.total_ms.value_or(0));
           claim(number_is(p[1], total), "its time");
           claim(number_is(p[3], std::clamp(1 - exposed_of(*r, t) / total, 0.0, 1.0)), "the share");
         }}};
    return bottlenecks_;
  }

  // --- zero ---

  static int64_t accumulation(const Record& r) {
    return std::stoll(option(r, "accumulation", "1"));
  }
  static double rank_peak(const Record& r) {
    double peak = bytes_of(r);
    for (const RecordRank& rank : r.ranks)
      peak = std::max(peak, rank.peak_memory_bytes.value_or(0));
    return peak;
  }
  static double rate_spread(const Record& a, const Record& b) {
    const auto of = [](const Record& r) {
      return r.std_time_ms ? *r.tokens_per_second * *r.std_time_ms / *r.avg_time_ms : 0.0;
    };
    return std::hypot(of(a), of(b));
  }
  static bool same_rate(const Record& a, const Record& b) {
    return std::abs(*a.tokens_per_second - *b.tokens_per_second) <= rate_spread(a, b);
  }

  // "zero2 with batch 8 x 2 (12 k tokens/s in 3.00 GiB per rank)"
  const Record* place(const std::string& words) {
    Pieces p;
    if (!read_pattern(words, "{} with batch {} ({} tokens/s in {} per rank)", p)) {
      wrong("a place: " + words);
      return nullptr;
    }
    const std::vector<std::string> batch = cut(p[1], " x ");
    for (const Record& r : records_) {
      if (strategy(r) != p[0] || std::to_string(*r.batch_size) != batch[0] ||
          accumulation(r) != (batch.size() > 1 ? std::stoll(batch[1]) : 1) || !good(r))
        continue;
      claim(is_count(p[2], *r.tokens_per_second), "tokens/s");
      claim(number_is(p[3], rank_peak(r)), "memory per rank");
      for (const Record& other : records_)
        claim(!good(other) || strategy(other) != p[0] ||
                  *other.tokens_per_second <= *r.tokens_per_second,
              other.label + " is the strategy's best");
      return &r;
    }
    wrong("no record of " + words);
    return nullptr;
  }

  void range_claim(const std::string& shares, const std::function<double(const Record&)>& share) {
    for (const std::string& item : cut(shares, ", ")) {
      const size_t space = item.find(' ');
      const std::vector<std::string> ends = cut(item.substr(space + 1), " to ");
      double low = HUGE_VAL, high = 0;
      for (const Record& r : records_) {
        if (!good(r) || strategy(r) != item.substr(0, space) || share(r) < 0) continue;
        low = std::min(low, share(r));
        high = std::max(high, share(r));
      }
      claim(number_is(ends.front(), low) && number_is(ends.back(), high), "the range of " + item);
    }
  }

  // Below 0 if nothing of it is recorded.
  static double collective_share(const Record& r) {
    if (!r.communication.count("gather") && !r.communication.count("reduce")) return -1;
    double exposed = 0;
    for (const auto& [kind, t] : r.communication) exposed += kind == "copy" ? 0 : exposed_of(r, t);
    return exposed / ms_of(r);
  }
  static double data_share(const Record& r) { return r.data.load_ms.value_or(0) / ms_of(r); }

  void most_claim(const std::string& label, const std::string& share,
                  const std::function<double(const Record&)>& of) {
    const Record* r = ended(label);
    if (!r) return;
    claim(number_is(share, of(*r)), "its share");
    for (const Record& other : records_)
      claim(!good(other) || of(other) <= of(*r) * (1 + 1e-12), other.label + " has more");
  }

  void ratio_claim(const std::string& words, double ratio, const char* what) {
    Pieces p;
    if (read_pattern(words, "{} more", p)) {
      claim(ratio > 1 && number_is(p[0], ratio - 1), what);
    } else if (read_pattern(words, "{} less", p)) {
      claim(ratio < 1 && number_is(p[0], 1 - ratio), what);
    } else {
      claim(words == "the same within 0.5%" && std::abs(ratio - 1) <= 0.005, what);
    }
  }

  void against_claim(const std::string& second, const std::string& first, const std::string& pairs,
                     const std::string& memory, std::string rate) {
    std::string bytes;
    if (const size_t at = rate.find(", "); at != std::string::npos) {
      bytes = rate.substr(at + 2);
      rate = rate.substr(0, at);
    }
    double count = 0, memories = 0, rates = 0, moved = 0, with_bytes = 0;
    const auto sent = [](const Record& r) {
      double sum = 0;
      for (const auto& [kind, t] : r.communication) sum += kind == "copy" ? 0 : t.bytes.value_or(0);
      return sum;
    };
    for (const Record& a : records_) {
      for (const Record& b : records_) {
        if (!good(a) || !good(b) || strategy(a) != first || strategy(b) != second ||
            a.batch_size != b.batch_size || accumulation(a) != accumulation(b))
          continue;
        ++count;
        memories += rank_peak(b) / rank_peak(a);
        rates += *b.tokens_per_second / *a.tokens_per_second;
        if (sent(a) > 0 && sent(b) > 0) ++with_bytes, moved += sent(b) / sent(a);
      }
    }
    if (count == 0) return wrong("no pairs");
    claim(number_is(cut(pairs, " ")[0], count), "how many pairs");
    ratio_claim(memory, memories / count, "the memory");
    ratio_claim(rate, rates / count, "the rate");
    if (!bytes.empty())
      claim(with_bytes > 0 && number_is(cut(bytes, " ")[0], moved / with_bytes), "the bytes");
  }

  const Patterns& zero_patterns() {
    if (!zero_.empty()) return zero_;
    zero_ = {
        {"Take {}.",
         [this](const Pieces& p) {
           const Record* take = place(p[0]);
           if (!take) return;
           const Record* fastest = take;
           for (const Record& r : records_) {
             if (good(r) && *r.tokens_per_second > *fastest->tokens_per_second) fastest = &r;
           }
           claim(same_rate(*take, *fastest), fastest->label + " is measurably faster");
         }},
        {"Only one strategy ended well: {}.",
         [this](const Pieces& p) {
           const Record* one = place(p[0]);
           for (const Record& r : records_)
             claim(!one || !good(r) || strategy(r) == strategy(*one), r.label + " did too");
         }},
        {"Against {}: {}.",
         [this](const Pieces& p) {
           const Record* take = place(p[0]);
           for (const std::string& item : cut(p[1], "; ")) {
             Pieces q;
             if (!read_pattern(item, "{} reaches {}", q)) return wrong("a rival: " + item);
             const Record* r = place(q[0]);
             if (!take || !r) continue;
             const std::vector<std::string> words = cut(q[1], ", ");
             claim(!words[0].starts_with("-"), "a negative share");
             const double ratio = *r->tokens_per_second / *take->tokens_per_second;
             Pieces w;
             if (read_pattern(words[0], "{} more", w)) {
               claim(ratio >= 1 && number_is(w[0], ratio - 1), "how much more");
             } else if (read_pattern(words[0], "{} less", w)) {
               claim(ratio <= 1 && number_is(w[0], 1 - ratio), "how much less");
             } else {
               wrong("a comparison: " + item);
             }
             claim((words.size() > 1) == same_rate(*r, *take), "the spread of " + r->label);
           }
         }},
        {"Where {} per rank does not fit, {}: the same batch in {}.",
         [this](const Pieces& p) {
           bool known = false;
           for (const Record& a : records_) {
             for (const Record& b : records_)
               known = known || (good(a) && good(b) && number_is(p[0], rank_peak(a)) &&
                                 strategy(b) == p[1] && number_is(p[2], rank_peak(b)) &&
                                 a.batch_size == b.batch_size &&
                                 accumulation(a) == accumulation(b) && rank_peak(b) < rank_peak(a));
           }
           claim(known, "no such pair");
         }},
        {"{} against {}, at equal work ({}): peak memory {}, tokens/s {}.",
         [this](const Pieces& p) { against_claim(p[0], p[1], p[2], p[3], p[4]); }},
        {"Throughput: {} (accumulation {}).",
         [this](const Pieces& p) {
           for (const std::string& item : cut(p[0], "; ")) {
             Pieces q;
             if (!read_pattern(item, "{} from {} tokens/s at batch {} to {} tokens/s at batch {}",
                               q))
               return wrong("throughput: " + item);
             for (const auto& [batch, rate] : {std::pair(q[2], q[1]), std::pair(q[4], q[3])}) {
               bool known = false;
               for (const Record& r : records_)
                 known = known || (good(r) && strategy(r) == q[0] &&
                                   std::to_string(*r.batch_size) == batch &&
                                   std::to_string(accumulation(r)) == p[1] &&
                                   is_count(rate, *r.tokens_per_second));
               claim(known, "a rate of " + q[0]);
             }
           }
         }},
        {"Communication that no computing hid, of a step: {}; {} loses {} to it: {}.",
         [this](const Pieces& p) {
           range_claim(p[0], collective_share);
           most_claim(p[1], p[2], collective_share);
           const Record* r = find(p[1]);
           claim(r && (p[3].find("zero2") == std::string::npos || strategy(*r) == "zero3"),
                 "zero2 does not help");
           claim(p[3].find("accumul") == std::string::npos, "each micro-batch communicates");
         }},
        {"Communication that no computing hid, of a step: {}.",
         [this](const Pieces& p) { range_claim(p[0], collective_share); }},
        {"Data, of a step: {}; the loader keeps ahead.",
         [this](const Pieces& p) {
           range_claim(p[0], data_share);
           for (const Record& r : records_)
             claim(!good(r) || data_share(r) <= 0.1, r.label + " waits");
         }},
        {"Data, of a step: {}; {} waits {} for its batches, more than 10%. Text is encoded before "
         "the first step, so this is the loading of batches, and a token store would not change "
         "it.",
         [this](const Pieces& p) {
           range_claim(p[0], data_share);
           most_claim(p[1], p[2], data_share);
           claim(find(p[1]) && data_share(*find(p[1])) > 0.1, "not more than 10%");
         }},
        {"Utilisation: there is no GPU to ask here; the share of a step in which ranks compute is "
         "shown instead.",
         [this](const Pieces&) {
           for (const Record& r : records_)
             claim(!good(r) || !r.gpu_state.utilisation_percent, "there is");
         }},
        {"Utilisation: {} to {} of the time a kernel runs (NVML); {} is under 70%: take a larger "
         "batch, see that data stays under 10% and that the CUDA graph is on.",
         [this](const Pieces& p) {
           const Record* r = ended(p[2]);
           claim(r && *r->gpu_state.utilisation_percent < 70, "it is not under 70%");
         }},
        {"Utilisation: {} to {} of the time a kernel runs (NVML).",
         [this](const Pieces& p) {
           double low = 100, high = 0;
           for (const Record& r : records_) {
             if (!good(r) || !r.gpu_state.utilisation_percent) continue;
             low = std::min(low, *r.gpu_state.utilisation_percent);
             high = std::max(high, *r.gpu_state.utilisation_percent);
           }
           claim(number_is(p[0], low / 100) && number_is(p[1], high / 100) && low >= 70,
                 "the utilisation");
         }},
        {"Out of memory: {}.",
         [this](const Pieces& p) {
           for (const std::string& label : cut(p[0], ", ")) {
             const Record* r = find(label);
             claim(r && r->outcome == "oom", "it fitted");
           }
         }},
        {"Fast paths: CUDA graph {}; fused kernels {}; attention by {}.", [](const Pieces&) {}}};
    return zero_;
  }

  const std::string& suite_;
  const std::vector<Record>& records_;
  const std::set<std::string>& options_;
  std::string sentence_, image_;  // what is read, and the group that it is of
  Patterns general_, caveats_, modes_, bottlenecks_, zero_;
};

bool match(const char* text, const char* pattern, Pieces& pieces) {
  while (*pattern) {
    if (pattern[0] == '{' && pattern[1] == '}') {
      pattern += 2;
      const size_t place = pieces.size();
      for (const char* end = text;; ++end) {
        if (*pattern == '\0' ? *end == '\0' : *end == *pattern || *pattern == '{') {
          pieces.resize(place);
          pieces.emplace_back(text, end);
          if (end != text && match(end, pattern, pieces)) return true;
        }
        if (*end == '\0') return false;
      }
    }
    if (*text++ != *pattern++) return false;
  }
  return *text == '\0';
}

}  // namespace

bool read_pattern(const std::string& text, const std::string& pattern,
                  std::vector<std::string>& pieces) {
  pieces.clear();
  return match(text.c_str(), pattern.c_str(), pieces);
}

std::string false_claims(const std::string& suite, const RecordFolder& folder,
                         const Verdict& verdict, const std::set<std::string>& options) {
  Reader reader(suite, folder, options);
  reader.headline(verdict.headline);
  for (const auto* sentences : {&verdict.findings, &verdict.choices, &verdict.caveats}) {
    for (const std::string& sentence : *sentences) reader.read(sentence);
  }
  return reader.found;
}

std::string false_change_claims(const std::string& headline, const std::vector<Record>& before,
                                const std::vector<Record>& after) {
  Pieces p;
  if (cut(headline, " ").size() > 25) return "more than 25 words: " + headline;
  if (!read_pattern(headline,
                    "Of {} in both runs {} became faster, {} slower, {} did not change beyond the "
                    "noise; {} less memory, {} more.",
                    p))
    return "unknown: " + headline;
  double both = 0, faster = 0, slower = 0, level = 0, smaller = 0, larger = 0;
  for (const Record& a : before) {
    for (const Record& b : after) {
      if (a.experiment != b.experiment) continue;
      ++both;
      if (!good(a) || !good(b)) continue;
      smaller += bytes_of(b) < bytes_of(a);
      larger += bytes_of(b) > bytes_of(a);
      if (!a.std_time_ms || !b.std_time_ms || a.times_ms.size() == 1 || b.times_ms.size() == 1)
        continue;
      const bool apart = std::abs(ms_of(a) - ms_of(b)) > spread_of(a, b);
      level += !apart;
      faster += apart && ms_of(b) < ms_of(a);
      slower += apart && ms_of(b) > ms_of(a);
    }
  }
  const bool holds = number_is(cut(p[0], " ")[0], both) && number_is(p[1], faster) &&
                     number_is(p[2], slower) && number_is(p[3], level) &&
                     number_is(cut(p[4], " ")[0], smaller) && number_is(p[5], larger);
  return holds ? "" : "counts: " + headline;
}

}  // namespace veil::verdict_claims
