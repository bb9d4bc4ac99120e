#include <algorithm>

#include "suite/test_claim_reader.h"
#include "suite/test_claims.h"

namespace veil::verdict_claims {

const Record* Reader::plain_of(const Record& of) const {
  for (const Record& r : records_) {
    if (r.mode == "no_dp" && r.seq_length == of.seq_length && good(r) &&
        r.batch_size == of.batch_size && option(r, "attention", "") == option(of, "attention", ""))
      return &r;
  }
  return nullptr;
}

const Record* Reader::of_mode(const std::string& mode, const std::string& length) {
  for (const Record& r : records_) {
    if (r.mode == mode && std::to_string(r.seq_length.value_or(0)) == length) return &r;
  }
  wrong("no record of " + mode + " at " + length);
  return nullptr;
}

void Reader::cost_claim(const Record* r, const std::string& time, const std::string& memory) {
  if (!r) return;
  if (!good(*r)) return wrong("it did not end well");
  const Record* plain = plain_of(*r);
  if (!plain) return wrong("there is nothing to compare it with");
  difference_claim(*r, *plain, time, memory);
}

void Reader::difference_claim(const Record& r, const Record& base, const std::string& time,
                              const std::string& memory) {
  const double share = (ms_of(r) - ms_of(base)) / ms_of(base), more = bytes_of(r) - bytes_of(base);
  const bool apart = !within_spread(r, base);
  Pieces p;
  if (read_pattern(time, "{} more time", p)) {
    claim(apart && share > 0 && number_is(p[0], share), "the time");
  } else if (read_pattern(time, "{} less time", p)) {
    claim(apart && share < 0 && number_is(p[0], -share), "the time");
  } else {
    claim(time == "the same time within the spread" && !apart, "the time");
  }
  if (read_pattern(memory, "{} more memory", p)) {
    claim(more > 0 && number_is(p[0], more), "the memory");
  } else if (read_pattern(memory, "{} less memory", p)) {
    claim(more < 0 && number_is(p[0], -more), "the memory");
  } else {
    claim(memory == "about the same memory" && std::abs(more) < 0.01 * bytes_of(base),
          "the memory");
  }
}

// The headline is auto's if auto has a cost, at the longest length where it has one.
void Reader::leads(const Record* r) {
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

// "grows linearly ...", of a mode's figure.
Group Reader::of_mode(const std::string& mode) const {
  Group group;
  for (const Record& r : records_) {
    if (r.mode == mode) group.push_back(&r);
  }
  return group;
}

void Reader::growth_claim(const std::string& words, const Group& of, const Value& value) {
  std::map<double, double> points;
  for (const Record* r : of) {
    if (!good(*r) || !r->seq_length) continue;
    if (const auto y = value(*r); y && *y > 0) points[static_cast<double>(*r->seq_length)] = *y;
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

void Reader::growth_sentence(const std::string& words, const Group& of) {
  for (const std::string& item : cut(words, "; ")) {
    if (item.starts_with("time ")) {
      growth_claim(item.substr(5), of, [](const Record& r) { return std::optional(ms_of(r)); });
    } else if (item.starts_with("memory ")) {
      growth_claim(item.substr(7), of, [](const Record& r) { return std::optional(bytes_of(r)); });
    } else {
      wrong("growth of what");
    }
  }
}

void Reader::lengths_claim(const std::string& words, const Group& of, const std::string& plain) {
  for (const std::string& item : cut(words, "; ")) {
    Pieces q;
    if (!read_pattern(item, "T = {} {}", q)) return wrong("a length: " + item);
    const auto found_record = std::find_if(of.begin(), of.end(), [&](const Record* one) {
      return std::to_string(one->seq_length.value_or(0)) == q[0];
    });
    if (found_record == of.end()) return wrong("no record at " + q[0]);
    const Record* r = *found_record;
    Pieces w;
    if (q[1] == "out of memory") {
      claim(r->outcome == "oom", "it fitted");
    } else if (q[1] == "failed") {
      claim(r->outcome == "error", "it did not fail");
    } else if (read_pattern(q[1], ("{} and {} than " + plain).c_str(), w) ||
               read_pattern(q[1], ("{} and {} compared with " + plain).c_str(), w)) {
      cost_claim(r, w[0], w[1]);
    } else if (read_pattern(q[1], "{} per step in {}", w)) {
      costs(r, w[0], w[1]);
    } else {
      wrong("a cost: " + item);
    }
  }
}

const Patterns& Reader::mode_patterns() {
  if (!modes_.empty()) return modes_;
  modes_ = {
      {"At T = {}, private training takes {} per step and {} ({}).",
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
      {"Growth of {}: {}.", [this](const Pieces& p) { growth_sentence(p[1], of_mode(p[0])); }},
      {"{}: T = {}.",
       [this](const Pieces& p) { lengths_claim("T = " + p[1], of_mode(p[0]), "no_dp"); }}};
  return modes_;
}

const Record* Reader::longest_of(const std::string& mode) const {
  const Record* longest = nullptr;
  for (const Record& r : records_) {
    if (r.mode == mode && good(r) && (!longest || *r.seq_length > *longest->seq_length))
      longest = &r;
  }
  return longest;
}

// The part's name as the record has it.
std::string Reader::part_named(const std::map<std::string, double>& parts,
                               const std::string& words) {
  return parts.count(words) ? words : underscored(words);
}

void Reader::largest_claim(const std::string& mode, const std::string& length,
                           const std::string& part, const std::string& share) {
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

void Reader::advice_claim(const std::string& mode, const std::string& words) {
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

void Reader::memory_sentence(const Pieces& p) {
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
    growth_claim(growth, of_mode(p[0]), [&](const Record& one) -> std::optional<double> {
      const auto at = one.breakdown.find(category);
      return at == one.breakdown.end() ? std::nullopt : std::optional(at->second);
    });
  advice_claim(p[0], advice);
}

void Reader::bottleneck_sentence(const Pieces& p) {
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
    growth_claim(growth, of_mode(p[0]), [&](const Record& one) -> std::optional<double> {
      const std::map<std::string, double> all = parts_of(one);
      return all.count(name) ? std::optional(all.at(name)) : std::nullopt;
    });
}

void Reader::layer_norms_claim(const Pieces& p, bool backward) {
  const Record* r = longest_of(p[0]);
  if (!r) return wrong("nothing ended well");
  std::map<std::string, double> layers;
  std::set<std::string> with_backward;
  double whole = 0;
  for (const auto& [row, ms] : r->layer_ms) {
    const std::vector<std::string> words = cut(row, " ");
    const bool both = words[0] == "backward_and_norms" || words[0] == "backward_and_kept_norms";
    if (!both && words[0] != "norms" && words[0] != "kept_norms") continue;
    layers[words[1]] += ms;
    whole += ms;
    if (both) with_backward.insert(words[1]);
  }
  if (!layers.count(p[1])) return wrong("no layer " + p[1]);
  for (const auto& [layer, ms] : layers)
    claim(ms <= layers[p[1]], "the norms of " + layer + " take more");
  claim(number_is(p[2], layers[p[1]]) && number_is(p[3], whole), "the time of norms");
  claim(number_is(p[4], layers[p[1]] / whole), "the share of norms");
  claim(with_backward.count(p[1]) == (backward ? 1 : 0), "what the row holds");
}

const Patterns& Reader::bottleneck_patterns() {
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
           claim(parts.count(name) && number_is(item.substr(space + 1), parts.at(name) / ms_of(*r)),
                 "the share of " + name);
         }
       }},
      {"Growth of {}: {}.", [this](const Pieces& p) { growth_sentence(p[1], of_mode(p[0])); }},
      {"Norms by layer, {}: {} takes most, {} of {} ({}), backward included.",
       [this](const Pieces& p) { layer_norms_claim(p, true); }},
      {"Norms by layer, {}: {} takes most, {} of {} ({}).",
       [this](const Pieces& p) { layer_norms_claim(p, false); }},
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

}  // namespace veil::verdict_claims
