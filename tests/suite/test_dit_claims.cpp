#include <algorithm>

#include "suite/test_claim_reader.h"
#include "suite/test_claims.h"

namespace veil::verdict_claims {

Group Reader::series(const std::string& words) {
  static const std::map<std::string, std::string> modes = {{"vanilla", "no_dp"},
                                                           {"flash_clip", "flash"}};
  const std::vector<std::string> parts = cut(words, ", ");
  const std::string mode = modes.count(parts[0]) ? modes.at(parts[0]) : parts[0];
  std::string attention, batch;
  for (size_t i = 1; i < parts.size(); ++i) {
    Pieces p;
    if (read_pattern(parts[i], "{} attention", p)) {
      attention = p[0] == "math" ? "math" : "auto";
    } else if (read_pattern(parts[i], "batch {}", p)) {
      batch = p[0];
    } else {
      wrong("a series: " + parts[i]);
    }
  }
  Group group;
  std::set<std::string> attentions;
  std::set<int64_t> batches, lengths;
  for (const Record& r : records_) {
    if (r.mode != mode || (!attention.empty() && option(r, "attention", "") != attention) ||
        (!batch.empty() && std::to_string(*r.batch_size) != batch))
      continue;
    group.push_back(&r);
    attentions.insert(option(r, "attention", ""));
    batches.insert(*r.batch_size);
    claim(lengths.insert(*r.seq_length).second, "a length occurs twice in " + words);
  }
  if (group.empty()) wrong("no record of " + words);
  claim(attentions.size() < 2 && batches.size() < 2, "a series of several: " + words);
  return group;
}

bool Reader::is_judged(const Record& r) const {
  std::map<int64_t, std::pair<bool, bool>> ended_at;  // by length: a private step, any step
  for (const Record& other : records_) {
    if (other.batch_size != r.batch_size || !good(other)) continue;
    auto& [with_privacy, any] = ended_at[*other.seq_length];
    with_privacy = with_privacy || other.mode != "no_dp";
    any = true;
  }
  for (const bool plain_too : {false, true}) {
    for (auto at = ended_at.rbegin(); at != ended_at.rend(); ++at) {
      if (plain_too ? at->second.second : at->second.first) return *r.seq_length == at->first;
    }
  }
  return true;
}

void Reader::judged_claim(const std::string& length, const std::string& who,
                          const std::string& batch) {
  bool any = false;
  for (const Record& r : records_) {
    if (!batch.empty() && "batch " + std::to_string(*r.batch_size) != batch) continue;
    claim(is_judged(r) == (std::to_string(*r.seq_length) == length), "it is another size");
    any = any || (good(r) && (r.mode != "no_dp" || who == "an") &&
                  std::to_string(*r.seq_length) == length);
  }
  claim(any, "none finished them");
}

// The math step of the same mode and work, if both ended well.
Group Reader::math_pair(const Record& flash) const {
  if (!good(flash) || flash.attention == "math") return {};
  for (const Record& r : records_) {
    if (good(r) && r.attention == "math" && r.mode == flash.mode &&
        r.seq_length == flash.seq_length && r.batch_size == flash.batch_size)
      return {&r};
  }
  return {};
}

void Reader::attentions_claim(const Pieces& p) {
  double pairs = 0, faster = 0, slower = 0, smaller = 0, larger = 0;
  for (const Record& flash : records_) {
    for (const Record* math : math_pair(flash)) {
      ++pairs;
      const bool level = within_spread(flash, *math),
                 alike = std::abs(bytes_of(flash) - bytes_of(*math)) < 0.01 * bytes_of(*math);
      faster += !level && ms_of(flash) < ms_of(*math);
      slower += !level && ms_of(flash) > ms_of(*math);
      smaller += !alike && bytes_of(flash) < bytes_of(*math);
      larger += !alike && bytes_of(flash) > bytes_of(*math);
    }
  }
  claim(number_is(cut(p[0], " ")[0], pairs), "how many pairs");
  claim(number_is(p[1], faster) && number_is(p[2], slower), "how many are faster");
  claim(number_is(p[3], smaller) && number_is(p[4], larger), "how many need less");
  if (p[5] == "Take flash (--attention auto).") {
    claim(slower + larger == 0 && faster + smaller > 0, "flash is not better");
  } else if (p[5] == "Take math (--attention math).") {
    claim(faster + smaller == 0 && slower + larger > 0, "math is not better");
  } else if (p[5] == "They are level.") {
    claim(faster + slower + smaller + larger == 0, "they are not level");
  } else {
    claim(p[5] == "Neither is better throughout." && faster + smaller > 0 && slower + larger > 0,
          "one is better");
  }
}

const Patterns& Reader::dit_patterns() {
  if (!dit_.empty()) return dit_;
  dit_ = {
      {"Set-ups are compared at T = {}, the largest images that {} private experiment finished "
       "({}).",
       [this](const Pieces& p) { judged_claim(p[0], p[1], p[2]); }},
      {"Set-ups are compared at T = {}, the largest images that {} private experiment finished.",
       [this](const Pieces& p) { judged_claim(p[0], p[1], ""); }},
      {"Set-ups are compared at T = {}, the largest images that {} experiment finished ({}).",
       [this](const Pieces& p) { judged_claim(p[0], p[1], p[2]); }},
      {"Set-ups are compared at T = {}, the largest images that {} experiment finished.",
       [this](const Pieces& p) { judged_claim(p[0], p[1], ""); }},
      {"{} experiments in {} groups, each judged below at its largest images.",
       [this](const Pieces& p) {
         std::set<std::pair<int64_t, int64_t>> groups;
         for (const Record& r : records_) {
           if (is_judged(r)) groups.insert({*r.batch_size, *r.seq_length});
         }
         claim(number_is(p[0], static_cast<double>(records_.size())), "how many");
         claim(number_is(p[1], static_cast<double>(groups.size())), "how many groups");
       }},
      {"Growth of {}: {}.", [this](const Pieces& p) { growth_sentence(p[1], series(p[0])); }},
      {"Flash against math attention, {}: flash is faster in {} and slower in {}, and needs less "
       "memory in {} and more in {}. {}",
       [this](const Pieces& p) { attentions_claim(p); }},
      {"Flash attention in {}: T = {}.",
       [this](const Pieces& p) {
         // Both attentions of the mode; the batch, if it is named.
         for (const std::string& item : cut("T = " + p[1], "; ")) {
           Pieces q, w;
           if (!read_pattern(item, "T = {} {} and {} than math", q) &&
               !read_pattern(item, "T = {} {} and {} compared with math", q))
             return wrong("a pair: " + item);
           const Group math = series(p[0] + ", math attention"),
                       flash = series(p[0] + ", flash attention");
           const auto at = [&](const Group& group) -> const Record* {
             for (const Record* r : group) {
               if (std::to_string(*r->seq_length) == q[0] && good(*r)) return r;
             }
             return nullptr;
           };
           if (!at(math) || !at(flash)) return wrong("no pair at " + q[0]);
           difference_claim(*at(flash), *at(math), q[1], q[2]);
         }
       }},
      {"{}: T = {}.",
       [this](const Pieces& p) { lengths_claim("T = " + p[1], series(p[0]), "vanilla"); }},
      {"{} cannot tell how time and memory grow with the tokens: give --image-sizes four of them.",
       [this](const Pieces& p) {
         std::set<int64_t> lengths;
         for (const Record& r : records_) lengths.insert(*r.seq_length);
         claim(lengths.size() == (p[0] == "One image size" ? 1u : 2u), "how many sizes");
       }},
      {"All experiments use {} attention: --attentions auto,math compares flash with math.",
       [this](const Pieces& p) {
         for (const Record& r : records_)
           claim(!good(r) || r.attention == p[0], r.label + " uses " + r.attention);
       }},
      {"batch {}, {}: {}", [this](const Pieces& p) {
         batch_ = p[0];
         group_sentence(p[2]);
       }}};
  for (const auto& pattern : general_patterns()) dit_.push_back(pattern);
  return dit_;
}

}  // namespace veil::verdict_claims
