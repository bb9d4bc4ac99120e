// What reads the sentences of a verdict (test_claims.h): numbers as they are printed, figures of
// records, and the patterns of each suite's sentences with their checks.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "record/folder.h"

namespace veil::verdict_claims {

using Pieces = std::vector<std::string>;
using Group = std::vector<const Record*>;
using Patterns = std::vector<std::pair<const char*, std::function<void(const Pieces&)>>>;
using Value = std::function<std::optional<double>(const Record&)>;

// A printed number with its unit, and half of its last digit.
struct Amount {
  double value = NAN, slack = 0;
  bool is(double truth) const {
    return std::abs(value - truth) <= slack * (1 + 1e-9) + 1e-9 * std::abs(truth);
  }
};

Amount amount_of(const std::string& text);
// A count to three digits: "12.3 k".
bool is_count(const std::string& text, double truth);
bool number_is(const std::string& text, double truth);
std::vector<std::string> cut(const std::string& text, const std::string& at);
bool good(const Record& r);
// As documented: the modelled step in a simulated world, otherwise the mean.
double ms_of(const Record& r);
double bytes_of(const Record& r);
double spread_of(const Record& a, const Record& b);
bool within_spread(const Record& a, const Record& b);
std::string option(const Record& r, const std::string& name, const std::string& usual);
std::string strategy(const Record& r);
double exposed_of(const Record& r, const RecordTransfer& t);
// A step's parts by its phases and waits; what is left of it is "other".
std::map<std::string, double> parts_of(const Record& r);
std::string underscored(std::string text);

class Reader {
 public:
  Reader(const std::string& suite, const RecordFolder& folder, const std::set<std::string>& options)
      : suite_(suite), records_(folder.records), options_(options) {}

  void headline(const std::string& text);
  // One sentence or item.
  void read(const std::string& text);

  std::string found;  // false claims

 private:
  void wrong(const std::string& what);
  void claim(bool holds, const std::string& what);
  const Record* find(const std::string& label);
  // A record that ended well.
  const Record* ended(const std::string& label);
  // Of the same work; private ones alone where the plain step is the baseline.
  Group peers(const Record& of, bool with_plain = false) const;
  static const Record* fastest(const Group& group);
  static double least_bytes(const Group& group);
  // Every option in the text is one of the suite's.
  void check_options(const std::string& text);

  // The general verdict.
  void costs(const Record* r, const std::string& ms, const std::string& bytes);
  void takes(const Record* take, const Record* small);
  void level(const std::string& with, const std::string& labels);
  void time_claim(const Pieces& p);
  void sharding_claim(const Pieces& p);
  void choices_claim(const Pieces& p);
  void fills_claim(const Pieces& p);
  void hidden_claim(const Pieces& p);
  void prices_claim(const Pieces& p);
  const Patterns& general_patterns();
  // Of a group whose name was before it.
  void group_sentence(const std::string& text);
  bool in_group(const Record& r) const;
  void none_ended(bool plain_too);
  void slower_claim(const Pieces& p);

  // Caveats of any folder.
  void labels_claim(const std::string& labels, const std::function<bool(const Record&)>& of);
  const Patterns& caveat_patterns();

  // Modes by lengths.
  const Record* plain_of(const Record& of) const;
  const Record* of_mode(const std::string& mode, const std::string& length);
  void cost_claim(const Record* r, const std::string& time, const std::string& memory);
  // "2.4% more time", "about the same memory".
  void difference_claim(const Record& r, const Record& base, const std::string& time,
                        const std::string& memory);
  // The headline is auto's if auto has a cost, at the longest length where it has one.
  void leads(const Record* r);
  // "grows linearly ...", of a mode's figure.
  void growth_claim(const std::string& words, const Group& of, const Value& value);
  void growth_sentence(const std::string& words, const Group& of);
  void lengths_claim(const std::string& words, const Group& of, const std::string& plain);
  Group of_mode(const std::string& mode) const;
  const Patterns& mode_patterns();

  // Bottlenecks.
  const Record* longest_of(const std::string& mode) const;
  // The part's name as the record has it.
  static std::string part_named(const std::map<std::string, double>& parts,
                                const std::string& words);
  void largest_claim(const std::string& mode, const std::string& length, const std::string& part,
                     const std::string& share);
  void advice_claim(const std::string& mode, const std::string& words);
  void memory_sentence(const Pieces& p);
  void bottleneck_sentence(const Pieces& p);
  void layer_norms_claim(const Pieces& p, bool backward);
  const Patterns& bottleneck_patterns();

  // Zero.
  static int64_t accumulation(const Record& r);
  static double rank_peak(const Record& r);
  static double rate_spread(const Record& a, const Record& b);
  static bool same_rate(const Record& a, const Record& b);
  // "zero2 with batch 8 x 2 (12 k tokens/s in 3.00 GiB per rank)"
  const Record* place(const std::string& words);
  void range_claim(const std::string& shares, const std::function<double(const Record&)>& share);
  // Below 0 if nothing of it is recorded.
  static double collective_share(const Record& r);
  static double data_share(const Record& r);
  void most_claim(const std::string& label, const std::string& share,
                  const std::function<double(const Record&)>& of);
  void ratio_claim(const std::string& words, double ratio, const char* what);
  void against_claim(const std::string& second, const std::string& first, const std::string& pairs,
                     const std::string& memory, std::string rate);
  const Patterns& zero_patterns();

  // Diffusion transformers.
  // "flash_clip, batch 8, math attention": all records of it, which differ in the image alone.
  Group series(const std::string& words);
  // Whether the record is of the images at which its work is compared.
  bool is_judged(const Record& r) const;
  void judged_claim(const std::string& length, const std::string& who, const std::string& batch);
  Group math_pair(const Record& flash) const;
  void attentions_claim(const Pieces& p);
  const Patterns& dit_patterns();

  const std::string& suite_;
  const std::vector<Record>& records_;
  const std::set<std::string>& options_;
  std::string sentence_, image_, batch_;  // what is read, and the group that it is of
  Patterns general_, caveats_, modes_, bottlenecks_, zero_, dit_;
};

}  // namespace veil::verdict_claims
