// What the suite of diffusion transformers concludes. T are the tokens of an image.
#include <fmt/core.h>

#include <algorithm>

#include "base/names.h"
#include "base/quantity.h"
#include "base/text.h"
#include "report/tables.h"
#include "suite/dit.h"
#include "suite/growth_plots.h"
#include "suite/mode_costs.h"

namespace veil {
namespace {

constexpr const char* kMathAttention = "math";

// A mode as this suite's experiments are called.
std::string shown_mode(const std::string& mode) {
  Mode known = Mode::no_dp;
  return find_name(mode, known) ? dit_mode_title(known) : mode;
}

std::string setting_text(const Record& record, const char* name) {
  const nlohmann::json value =
      record.config.is_object() ? record.config.value(name, nlohmann::json()) : nullptr;
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}

// T of every record that knows its image's tokens.
std::vector<Record> with_tokens(std::vector<Record> records) {
  for (Record& record : records) {
    if (!record.seq_length && record.diffusion) record.seq_length = record.diffusion->tokens;
  }
  return records;
}

// What a series of records has in common, as words; those that all records share are left out of
// the series' name.
std::vector<std::string> series_parts(const Record& record, bool by_attention) {
  const auto part = [](const std::string& name, const std::string& value) {
    return value.empty() ? "" : name + value;
  };
  const auto& batch = record.total_batch_size ? record.total_batch_size : record.batch_size;
  std::vector<std::string> parts = {
      setting_text(record, "model"),
      part("patch ", setting_text(record, "patch-size")),
      batch ? fmt::format("batch {}", *batch) : "",
      part("accumulation ", setting_text(record, "accumulation")),
      record.world ? (record.simulated ? fmt::format("simulated world of {}", *record.world)
                                       : quantity(*record.world, "rank"))
                   : "",
      record.device};
  // A run that failed has its setting, and may not know what that became.
  const std::string kind = setting_text(record, "attention");
  if (by_attention) parts.push_back(kind.empty() ? record.attention : kind);
  return parts;
}

// What the setting became in a run that knows it.
std::string attention_of(const std::vector<Record>& records, const std::string& setting) {
  const auto known = std::find_if(records.begin(), records.end(),
                                  [](const Record& record) { return !record.attention.empty(); });
  return known == records.end() ? setting : known->attention;
}

// Records that differ in mode and image size, and unless `by_attention` in attention.
std::vector<GrowthSeries> series_of_images(const std::vector<Record>& records, bool by_attention) {
  std::vector<std::vector<std::string>> keys;
  std::vector<GrowthSeries> all;
  for (const Record& record : records) {
    const std::vector<std::string> key = series_parts(record, by_attention);
    const auto known = std::find(keys.begin(), keys.end(), key);
    const auto place = static_cast<size_t>(known - keys.begin());
    if (known == keys.end()) keys.push_back(key), all.push_back({});
    all[place].records.push_back(record);
  }
  for (size_t s = 0; s < all.size(); ++s) {
    std::vector<std::string> words;
    for (size_t p = 0; p < keys[s].size(); ++p) {
      const bool differs = std::any_of(keys.begin(), keys.end(),
                                       [&](const auto& key) { return key[p] != keys[s][p]; });
      if (!differs || keys[s][p].empty()) continue;
      const bool attention = by_attention && p + 1 == keys[s].size();
      words.push_back(attention ? attention_of(all[s].records, keys[s][p]) + " attention"
                                : keys[s][p]);
    }
    all[s].name = join(words, ", ");
  }
  return all;
}

std::string behind(const GrowthSeries& series) {
  return series.name.empty() ? "" : ", " + series.name;
}

// The largest T at which a private experiment ended well, or else any; 0 for none.
int64_t judged_length(const std::vector<Record>& records) {
  for (const bool plain_too : {false, true}) {
    int64_t length = 0;
    for (const Record& record : records) {
      if (compared_ms(record) && (plain_too || !is_plain(&record)))
        length = std::max(length, record.seq_length.value_or(0));
    }
    if (length > 0) return length;
  }
  return 0;
}

int64_t image_sizes_of(const std::vector<Record>& records) {
  const std::vector<int64_t> lengths = lengths_of(mode_figures(records));
  return std::count_if(lengths.begin(), lengths.end(), [](int64_t length) { return length > 0; });
}

// The general verdict, of the largest images if several sizes were measured.
Verdict verdict_of_largest(const RecordFolder& folder, const std::vector<GrowthSeries>& all) {
  if (image_sizes_of(folder.records) < 2) return general_verdict(folder, true);
  RecordFolder largest{folder.folder, {}, {}};
  std::vector<std::string> where;
  for (const GrowthSeries& series : all) {
    const int64_t length = judged_length(series.records);
    for (const Record& record : series.records) {
      if (length == 0 || record.seq_length == length) largest.records.push_back(record);
    }
    if (length > 0 && image_sizes_of(series.records) > 1)
      where.push_back(fmt::format(
          "Set-ups are compared at T = {}, the largest images that {} experiment finished{}.",
          length,
          std::any_of(series.records.begin(), series.records.end(),
                      [](const Record& r) { return compared_ms(r) && !is_plain(&r); })
              ? "a private"
              : "an",
          series.name.empty() ? "" : fmt::format(" ({})", series.name)));
  }
  Verdict verdict = general_verdict(largest, true);
  if (comparable_groups(largest.records).size() > 1)
    verdict.headline =
        fmt::format("{} in {}, each judged below at its largest images.",
                    quantity(std::ssize(folder.records), "experiment"),
                    quantity(std::ssize(comparable_groups(largest.records)), "group"));
  verdict.findings.insert(verdict.findings.begin(), where.begin(), where.end());
  return verdict;
}

// Two steps that differ in attention only.
struct AttentionPair {
  const Record *flash, *math;
};
std::vector<AttentionPair> attention_pairs(const std::vector<Record>& records) {
  std::vector<AttentionPair> pairs;
  const auto measured = [](const Record& r) {
    return compared_ms(r) && r.peak_memory_bytes && !r.attention.empty();
  };
  for (const Record& flash : records) {
    if (!measured(flash) || flash.attention == kMathAttention) continue;
    const auto math = std::find_if(records.begin(), records.end(), [&](const Record& r) {
      return measured(r) && r.attention == kMathAttention && r.mode == flash.mode &&
             r.seq_length == flash.seq_length;
    });
    if (math != records.end()) pairs.push_back({&flash, &*math});
  }
  return pairs;
}

std::string compared_with_math(const StepDifference& d) {
  return fmt::format("{} and {} {} math", d.time, d.memory, d.word());
}

// Which attention to take, over all pairs, and then by mode.
std::vector<std::string> attention_words(const std::vector<GrowthSeries>& all) {
  int count = 0, faster = 0, slower = 0, smaller = 0, larger = 0;
  std::vector<std::string> by_mode;
  for (const GrowthSeries& series : all) {
    const std::vector<AttentionPair> pairs = attention_pairs(series.records);
    const std::vector<ModeFigures> figures = mode_figures(series.records);
    for (const std::string& mode : modes_of(figures)) {
      std::vector<std::string> parts;
      for (const int64_t length : lengths_of(figures)) {
        for (const AttentionPair& pair : pairs) {
          if (pair.flash->mode != mode || pair.flash->seq_length != length) continue;
          const StepDifference d = step_difference(*pair.flash, *pair.math);
          ++count;
          faster += d.time_sign < 0;
          slower += d.time_sign > 0;
          smaller += d.memory_sign < 0;
          larger += d.memory_sign > 0;
          parts.push_back(fmt::format("T = {} {}", length, compared_with_math(d)));
        }
      }
      if (!parts.empty())
        by_mode.push_back(fmt::format("Flash attention in {}{}: {}.", shown_mode(mode),
                                      behind(series), join(parts, "; ")));
    }
  }
  if (count == 0) return {};
  const bool flash = slower + larger == 0 && faster + smaller > 0,
             math = faster + smaller == 0 && slower + larger > 0,
             level = faster + smaller + slower + larger == 0;
  std::vector<std::string> words = {fmt::format(
      "Flash against math attention, {}: flash is faster in {} and slower in {}, and needs less "
      "memory in {} and more in {}. {}",
      quantity(count, "pair"), faster, slower, smaller, larger,
      flash   ? "Take flash (--attention auto)."
      : math  ? "Take math (--attention math)."
      : level ? "They are level."
              : "Neither is better throughout.")};
  words.insert(words.end(), by_mode.begin(), by_mode.end());
  return words;
}

// Records whose mode says which series they are of, so that one table holds all of them.
std::vector<Record> modes_by_series(const std::vector<GrowthSeries>& all) {
  std::vector<Record> records;
  for (const GrowthSeries& series : all) {
    for (Record record : series.records) {
      record.mode = shown_mode(record.mode) + behind(series);
      records.push_back(std::move(record));
    }
  }
  return records;
}

std::vector<std::string> caveats_of_sizes(const RecordFolder& folder, bool paired) {
  std::vector<std::string> caveats;
  const int64_t sizes = image_sizes_of(folder.records);
  if (sizes == 1 || sizes == 2)
    caveats.push_back(fmt::format(
        "{} cannot tell how time and memory grow with the tokens: give --image-sizes four of them.",
        sizes == 1 ? "One image size" : "Two image sizes"));
  std::string attention;
  for (const Record& record : folder.records) {
    if (!record.ok() || record.attention.empty()) continue;
    if (!attention.empty() && attention != record.attention) return caveats;
    attention = record.attention;
  }
  if (!attention.empty() && !paired)
    caveats.push_back(fmt::format(
        "All experiments use {} attention: --attentions auto,math compares flash with math.",
        attention));
  return caveats;
}

}  // namespace

Verdict dit_verdict(const RecordFolder& given) {
  const RecordFolder folder{given.folder, with_tokens(given.records), given.damaged};
  const std::vector<GrowthSeries> works = series_of_images(folder.records, false),
                                  all = series_of_images(folder.records, true);
  Verdict verdict = verdict_of_largest(folder, works);
  const std::vector<Record> named = modes_by_series(all);
  for (const GrowthSeries& series : all) {
    const std::vector<ModeFigures> figures = mode_figures(series.records);
    if (image_sizes_of(series.records) < 2) continue;
    for (const std::string& mode : modes_of(figures)) {
      if (mode != "no_dp")
        verdict.findings.push_back(
            fmt::format("{}{}: {}.", shown_mode(mode), behind(series),
                        mode_costs_text(figures, mode, dit_mode_title(Mode::no_dp))));
    }
  }
  for (const std::string& mode : modes_of(mode_figures(named))) {
    if (const std::string words = growth_sentence(named, mode); !words.empty())
      verdict.findings.push_back(words);
  }
  const std::vector<std::string> attention = attention_words(works);
  verdict.findings.insert(verdict.findings.end(), attention.begin(), attention.end());
  for (std::string& caveat : caveats_of_sizes(folder, !attention.empty()))
    verdict.caveats.push_back(std::move(caveat));
  return verdict;
}

std::vector<Plot> dit_growth_plots(const std::vector<Record>& given) {
  const std::vector<Record> records = with_tokens(given);
  if (image_sizes_of(records) < 2) return {};
  std::vector<GrowthSeries> all = series_of_images(records, true);
  for (GrowthSeries& series : all) {
    for (Record& record : series.records) record.mode = shown_mode(record.mode);
  }
  return growth_plots(all, "tokens in an image (T)", growth_table(modes_by_series(all)));
}

std::vector<PageTable> dit_tables(const std::vector<Record>& given) {
  const std::vector<Record> records = with_tokens(given);
  std::vector<PageTable> tables;
  if (image_sizes_of(records) > 1)
    tables.push_back({"Growth with the tokens", kGrowthCaption,
                      growth_table(modes_by_series(series_of_images(records, true)))});
  Table attention({"mode", "T", "flash", "math", "flash, peak", "math, peak", "flash takes"});
  for (const GrowthSeries& series : series_of_images(records, false)) {
    for (const AttentionPair& pair : attention_pairs(series.records))
      attention.row({shown_mode(pair.flash->mode) + behind(series),
                     std::to_string(pair.flash->seq_length.value_or(0)),
                     shown_ms(compared_ms(*pair.flash)), shown_ms(compared_ms(*pair.math)),
                     shown_bytes(pair.flash->peak_memory_bytes),
                     shown_bytes(pair.math->peak_memory_bytes),
                     compared_with_math(step_difference(*pair.flash, *pair.math))});
  }
  if (attention.rows() > 0)
    tables.push_back({"Flash against math attention",
                      "Steps that differ in attention only: time, and memory at the peak",
                      std::move(attention)});
  return tables;
}

}  // namespace veil
