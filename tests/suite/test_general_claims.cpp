#include <algorithm>

#include "suite/test_claim_reader.h"
#include "suite/test_claims.h"

namespace veil::verdict_claims {

void Reader::costs(const Record* r, const std::string& ms, const std::string& bytes) {
  if (!r) return;
  claim(number_is(ms, ms_of(*r)), "time of " + r->label);
  claim(number_is(bytes, bytes_of(*r)), "memory of " + r->label);
}

void Reader::takes(const Record* take, const Record* small) {
  if (take) {
    claim(suite_ != "dit-dp" || is_judged(*take), "there are larger images");
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

void Reader::level(const std::string& with, const std::string& labels) {
  const Record* take = ended(with);
  for (const std::string& label : cut(labels, ", ")) {
    const Record* r = ended(label);
    if (!take || !r) continue;
    claim(within_spread(*r, *fastest(peers(*take))), label + " is slower");
    claim(bytes_of(*r) <= 1.01 * bytes_of(*take), label + " is larger");
  }
}

void Reader::time_claim(const Pieces& p) {
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

void Reader::sharding_claim(const Pieces& p) {
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

void Reader::choices_claim(const Pieces& p) {
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

void Reader::fills_claim(const Pieces& p) {
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

void Reader::hidden_claim(const Pieces& p) {
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

void Reader::prices_claim(const Pieces& p) {
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
    claim(r->attention == plain->attention, "another attention");
    claim(r->seq_length == plain->seq_length && r->batch_size == plain->batch_size, "other work");
    claim(number_is(q[0].substr(space + 1), ms_of(*r) / ms_of(*plain)), "times the time");
    claim(number_is(q[1], bytes_of(*r) / bytes_of(*plain)), "times the memory");
  }
}

const Patterns& Reader::general_patterns() {
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
         std::set<std::pair<std::string, int64_t>> sizes;
         for (const Record& r : records_)
           sizes.insert({option(r, "image-size", ""), r.batch_size.value_or(0)});
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
         batch_ = p[1];
         group_sentence(p[3]);
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
      {"Sharding: {} takes {} and {}, against {}.", [this](const Pieces& p) { sharding_claim(p); }},
      {"What fills the peak: {}.", [this](const Pieces& p) { fills_claim(p); }},
      {"Communication and copies that no computing hid: {}.",
       [this](const Pieces& p) { hidden_claim(p); }},
      {"Choose by the memory you have: {}.", [this](const Pieces& p) { choices_claim(p); }},
      {"Beside {}, which protects nobody: {}.", [this](const Pieces& p) { prices_claim(p); }}};
  return general_;
}

void Reader::group_sentence(const std::string& text) {
  Pieces p;
  for (const auto& [pattern, check] : general_patterns()) {
    if (!read_pattern(text, pattern, p)) continue;
    check(p);
    return;
  }
  wrong("a sentence of a group that the checker does not know");
}

bool Reader::in_group(const Record& r) const {
  return (image_.empty() || option(r, "image-size", "") == image_) &&
         (batch_.empty() || std::to_string(r.batch_size.value_or(0)) == batch_) &&
         (suite_ != "dit-dp" || is_judged(r));
}

void Reader::none_ended(bool plain_too) {
  for (const Record& r : records_)
    claim(!in_group(r) || !good(r) || (!plain_too && r.mode == "no_dp"), r.label + " ended well");
}

void Reader::slower_claim(const Pieces& p) {
  const Record *a = ended(p[0]), *b = ended(p[1]);
  if (!a || !b) return;
  claim(within_spread(*a, *b), "it is measurably slower");
  claim(number_is(p[2], bytes_of(*b)), "what it needs");
  claim(bytes_of(*a) <= bytes_of(*b), "it needs more");
}

}  // namespace veil::verdict_claims
