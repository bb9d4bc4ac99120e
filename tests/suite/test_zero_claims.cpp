#include <algorithm>

#include "suite/test_claim_reader.h"
#include "suite/test_claims.h"

namespace veil::verdict_claims {

int64_t Reader::accumulation(const Record& r) {
  return std::stoll(option(r, "accumulation", "1"));
}

double Reader::rank_peak(const Record& r) {
  double peak = bytes_of(r);
  for (const RecordRank& rank : r.ranks) peak = std::max(peak, rank.peak_memory_bytes.value_or(0));
  return peak;
}

double Reader::rate_spread(const Record& a, const Record& b) {
  const auto of = [](const Record& r) {
    return r.std_time_ms ? *r.tokens_per_second * *r.std_time_ms / *r.avg_time_ms : 0.0;
  };
  return std::hypot(of(a), of(b));
}

bool Reader::same_rate(const Record& a, const Record& b) {
  return std::abs(*a.tokens_per_second - *b.tokens_per_second) <= rate_spread(a, b);
}

// "zero2 with batch 8 x 2 (12 k tokens/s in 3.00 GiB per rank)"
const Record* Reader::place(const std::string& words) {
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

void Reader::range_claim(const std::string& shares,
                         const std::function<double(const Record&)>& share) {
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
double Reader::collective_share(const Record& r) {
  if (!r.communication.count("gather") && !r.communication.count("reduce")) return -1;
  double exposed = 0;
  for (const auto& [kind, t] : r.communication) exposed += kind == "copy" ? 0 : exposed_of(r, t);
  return exposed / ms_of(r);
}

double Reader::data_share(const Record& r) {
  return r.data.load_ms.value_or(0) / ms_of(r);
}

void Reader::most_claim(const std::string& label, const std::string& share,
                        const std::function<double(const Record&)>& of) {
  const Record* r = ended(label);
  if (!r) return;
  claim(number_is(share, of(*r)), "its share");
  for (const Record& other : records_)
    claim(!good(other) || of(other) <= of(*r) * (1 + 1e-12), other.label + " has more");
}

void Reader::ratio_claim(const std::string& words, double ratio, const char* what) {
  Pieces p;
  if (read_pattern(words, "{} more", p)) {
    claim(ratio > 1 && number_is(p[0], ratio - 1), what);
  } else if (read_pattern(words, "{} less", p)) {
    claim(ratio < 1 && number_is(p[0], 1 - ratio), what);
  } else {
    claim(words == "the same within 0.5%" && std::abs(ratio - 1) <= 0.005, what);
  }
}

void Reader::against_claim(const std::string& second, const std::string& first,
                           const std::string& pairs, const std::string& memory, std::string rate) {
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

const Patterns& Reader::zero_patterns() {
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
             known = known ||
                     (good(a) && good(b) && number_is(p[0], rank_peak(a)) && strategy(b) == p[1] &&
                      number_is(p[2], rank_peak(b)) && a.batch_size == b.batch_size &&
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
           if (!read_pattern(item, "{} from {} tokens/s at batch {} to {} tokens/s at batch {}", q))
             return wrong("throughput: " + item);
           for (const auto& [batch, rate] : {std::pair(q[2], q[1]), std::pair(q[4], q[3])}) {
             bool known = false;
             for (const Record& r : records_)
               known = known ||
                       (good(r) && strategy(r) == q[0] && std::to_string(*r.batch_size) == batch &&
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

}  // namespace veil::verdict_claims
