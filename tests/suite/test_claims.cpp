#include "suite/test_claims.h"

#include <algorithm>

#include "suite/test_claim_reader.h"

namespace veil::verdict_claims {
namespace {

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

void Reader::headline(const std::string& text) {
  sentence_ = text;
  if (cut(text, " ").size() > 25) wrong("more than 25 words");
  const size_t stop = text.find(". ");
  if (stop != std::string::npos || text.empty() || text.back() != '.') wrong("not one sentence");
  read(text);
}

// One sentence or item.
void Reader::read(const std::string& text) {
  sentence_ = text;
  image_.clear();
  batch_.clear();
  check_options(text);
  Pieces p;
  const std::vector<std::pair<const char*, std::function<void(const Pieces&)>>>& known =
      suite_ == "llama3-dp"     ? mode_patterns()
      : suite_ == "bottlenecks" ? bottleneck_patterns()
      : suite_ == "zero"        ? zero_patterns()
      : suite_ == "dit-dp"      ? dit_patterns()
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

void Reader::wrong(const std::string& what) {
  found += what + ": " + sentence_ + "\n";
}

void Reader::claim(bool holds, const std::string& what) {
  if (!holds) wrong(what);
}

const Record* Reader::find(const std::string& label) {
  for (const Record& r : records_) {
    if (r.label == label) return &r;
  }
  wrong("no record is called '" + label + "'");
  return nullptr;
}

// A record that ended well.
const Record* Reader::ended(const std::string& label) {
  const Record* r = find(label);
  if (r && !good(*r)) wrong(label + " did not end well");
  return r && good(*r) ? r : nullptr;
}

// Of the same work; private ones alone where the plain step is the baseline.
Group Reader::peers(const Record& of, bool with_plain) const {
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

const Record* Reader::fastest(const Group& group) {
  return *std::min_element(group.begin(), group.end(),
                           [](const Record* a, const Record* b) { return ms_of(*a) < ms_of(*b); });
}

double Reader::least_bytes(const Group& group) {
  double least = HUGE_VAL;
  for (const Record* r : group) least = std::min(least, bytes_of(*r));
  return least;
}

// Every option in the text is one of the suite's.
void Reader::check_options(const std::string& text) {
  for (size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
    size_t end = at + 2;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 ||
                                 text[end] == '-' || text[end] == '_'))
      ++end;
    const std::string name = text.substr(at + 2, end - at - 2);
    if (!options_.count(name)) wrong("the suite has no option --" + name);
  }
}

void Reader::labels_claim(const std::string& labels, const std::function<bool(const Record&)>& of) {
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

const Patterns& Reader::caveat_patterns() {
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
                               return base->mode == "no_dp" && base->attention == r->attention &&
                                      !within_spread(*base, *r) && ms_of(*r) < 0.95 * ms_of(*base);
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
