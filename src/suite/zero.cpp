#include "suite/zero.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/units.h"
#include "report/tables.h"

namespace veil {
namespace {

// Beyond these the verdict gives advice.
constexpr double kLowUtilisationPercent = 70;
constexpr double kHighDataShare = 0.10;
constexpr double kHighCommunicationShare = 0.20;

using All = std::vector<ZeroFigures>;

std::string rate_text(double tokens_per_second) {
  return format_count(tokens_per_second) + " tokens/s";
}

std::string batch_text(const ZeroFigures& f) {
  return f.accumulation > 1 ? fmt::format("batch {} x {}", f.batch, f.accumulation)
                            : fmt::format("batch {}", f.batch);
}

// Each strategy's fastest configuration, in the order in which the strategies came.
std::vector<const ZeroFigures*> best_of_each(const All& all) {
  std::vector<const ZeroFigures*> best;
  for (const ZeroFigures& f : all) {
    if (!f.ok || !f.tokens_per_second) continue;
    auto found = std::find_if(best.begin(), best.end(),
                              [&](const ZeroFigures* b) { return b->strategy == f.strategy; });
    if (found == best.end()) {
      best.push_back(&f);
    } else if (*f.tokens_per_second > *(*found)->tokens_per_second) {
      *found = &f;
    }
  }
  return best;
}

bool within_spread(const ZeroFigures& a, const ZeroFigures& b) {
  return std::abs(*a.tokens_per_second - *b.tokens_per_second) <=
         std::hypot(a.tokens_deviation.value_or(0), b.tokens_deviation.value_or(0));
}

std::string place_text(const ZeroFigures& f) {
  return fmt::format("{} with {} ({} in {} per rank)", f.strategy, batch_text(f),
                     rate_text(*f.tokens_per_second), shown_bytes(f.peak_bytes));
}

// The fastest of the best, and of those that are as fast as it the one that needs least.
struct Picked {
  const ZeroFigures *fastest, *take;
};
Picked pick_of(const std::vector<const ZeroFigures*>& best) {
  Picked picked{best.front(), best.front()};
  for (const ZeroFigures* f : best) {
    if (*f->tokens_per_second > *picked.fastest->tokens_per_second) picked.fastest = f;
  }
  picked.take = picked.fastest;
  for (const ZeroFigures* f : best) {
    if (within_spread(*f, *picked.fastest) &&
        f->peak_bytes.value_or(HUGE_VAL) < picked.take->peak_bytes.value_or(HUGE_VAL))
      picked.take = f;
  }
  return picked;
}

std::string zero_headline(const std::vector<const ZeroFigures*>& best) {
  if (best.empty()) return "No experiment ended well, so there is nothing to compare.";
  if (best.size() == 1)
    return fmt::format("Only one strategy ended well: {}.", place_text(*best.front()));
  return fmt::format("Take {}.", place_text(*pick_of(best).take));
}

// The other strategies against the one to take, and what needs less memory for the same work.
void compare_with_taken(const All& all, const std::vector<const ZeroFigures*>& best,
                        std::vector<std::string>& findings) {
  if (best.size() < 2) return;
  const auto [fastest, take] = pick_of(best);
  std::vector<std::string> others;
  for (const ZeroFigures* f : best) {
    if (f == take) continue;
    const double change = *f->tokens_per_second / *take->tokens_per_second - 1;
    std::string words = fmt::format("{} reaches {} {}", place_text(*f),
                                    percent_text(std::abs(change)), change > 0 ? "more" : "less");
    if (within_spread(*f, *take)) words += ", within the steps' spread";
    others.push_back(words);
  }
  findings.push_back(fmt::format("Against {}: {}.", place_text(*take), join(others, "; ")));
  const ZeroFigures* smallest = take;
  for (const ZeroFigures& f : all) {
    const bool same = f.batch == take->batch && f.accumulation == take->accumulation;
    if (same && f.ok && f.peak_bytes &&
        *f.peak_bytes < 0.99 * smallest->peak_bytes.value_or(HUGE_VAL))
      smallest = &f;
  }
  if (smallest != take)
    findings.push_back(fmt::format("Where {} per rank does not fit, {}: the same batch in {}.",
                                   shown_bytes(take->peak_bytes), smallest->strategy,
                                   shown_bytes(smallest->peak_bytes)));
}

// Equal work under two strategies.
struct Pairs {
  int count = 0;
  double memory = 0, rate = 0, bytes = 0;  // means of the ratios, second to first
  int with_bytes = 0;
};
Pairs pairs_of(const All& all, const std::string& first, const std::string& second) {
  const auto moved = [](const ZeroFigures& f) {
    double sum = 0;
    for (const auto& [lane, transfer] : f.record->communication)
      sum += lane == "copy" ? 0 : transfer.bytes.value_or(0);
    return sum;
  };
  Pairs pairs;
  for (const ZeroFigures& a : all) {
    for (const ZeroFigures& b : all) {
      const bool same = a.batch == b.batch && a.accumulation == b.accumulation;
      if (!same || a.strategy != first || b.strategy != second || !a.ok || !b.ok) continue;
      if (!a.tokens_per_second || !b.tokens_per_second || !a.peak_bytes || !b.peak_bytes) continue;
      ++pairs.count;
      pairs.memory += *b.peak_bytes / *a.peak_bytes;
      pairs.rate += *b.tokens_per_second / *a.tokens_per_second;
      if (moved(a) > 0 && moved(b) > 0) {
        ++pairs.with_bytes;
        pairs.bytes += moved(b) / moved(a);
      }
    }
  }
  if (pairs.count) pairs.memory /= pairs.count, pairs.rate /= pairs.count;
  if (pairs.with_bytes) pairs.bytes /= pairs.with_bytes;
  return pairs;
}

std::string more_or_less(double ratio) {
  const double change = ratio - 1;
  if (std::abs(change) < 0.005) return "the same within 0.5%";
  return fmt::format("{} {}", percent_text(std::abs(change)), change > 0 ? "more" : "less");
}

std::vector<std::string> strategies_of(const All& all) {
  std::vector<std::string> names;
  for (const ZeroFigures& f : all) {
    if (std::find(names.begin(), names.end(), f.strategy) == names.end())
      names.push_back(f.strategy);
  }
  return names;
}

void compare_strategies(const All& all, std::vector<std::string>& findings) {
  const std::vector<std::string> names = strategies_of(all);
  for (size_t i = 0; i < names.size(); ++i) {
    for (size_t k = i + 1; k < names.size(); ++k) {
      const Pairs pairs = pairs_of(all, names[i], names[k]);
      if (pairs.count == 0) continue;
      std::string words = fmt::format(
          "{} against {}, at equal work ({}): peak memory {}, tokens/s {}", names[k], names[i],
          quantity(pairs.count, "pair"), more_or_less(pairs.memory), more_or_less(pairs.rate));
      if (pairs.with_bytes > 0)
        words += fmt::format(", {:.2f} times the bytes between ranks", pairs.bytes);
      findings.push_back(words + ".");
    }
  }
}

// "zero2 3.1% to 12%" for a share, by strategy.
std::string ranges(const All& all, std::optional<double> ZeroFigures::*share) {
  std::vector<std::string> parts;
  for (const std::string& strategy : strategies_of(all)) {
    std::optional<double> low, high;
    for (const ZeroFigures& f : all) {
      if (f.strategy != strategy || !(f.*share)) continue;
      low = std::min(low.value_or(HUGE_VAL), *(f.*share));
      high = std::max(high.value_or(0), *(f.*share));
    }
    if (low)
      parts.push_back(fmt::format("{} {}", strategy,
                                  percent_text(*low) == percent_text(*high)
                                      ? percent_text(*low)
                                      : percent_text(*low) + " to " + percent_text(*high)));
  }
  return join(parts, ", ");
}

std::string growth_words(const All& all) {
  std::vector<std::string> parts;
  for (const std::string& strategy : strategies_of(all)) {
    const ZeroFigures *small = nullptr, *large = nullptr;
    for (const ZeroFigures& f : all) {
      if (f.strategy != strategy || !f.ok || !f.tokens_per_second ||
          f.accumulation != all.front().accumulation)
        continue;
      if (!small || f.batch < small->batch) small = &f;
      if (!large || f.batch > large->batch) large = &f;
    }
    if (!small || small == large) continue;
    parts.push_back(fmt::format("{} from {} at batch {} to {} at batch {}", strategy,
                                rate_text(*small->tokens_per_second), small->batch,
                                rate_text(*large->tokens_per_second), large->batch));
  }
  return parts.empty() ? ""
                       : fmt::format("Throughput: {} (accumulation {}).", join(parts, "; "),
                                     all.front().accumulation);
}

std::string utilisation_words(const All& all) {
  std::optional<double> low, high;
  const ZeroFigures* lowest = nullptr;
  for (const ZeroFigures& f : all) {
    if (!f.utilisation) continue;
    if (!low || *f.utilisation < *low) {
      low = f.utilisation;
      lowest = &f;
    }
    high = std::max(high.value_or(0), *f.utilisation);
  }
  if (!low)
    return "Utilisation: there is no GPU to ask here; the share of a step in which ranks compute "
           "is shown instead.";
  std::string words =
      fmt::format("Utilisation: {:.0f}% to {:.0f}% of the time a kernel runs (NVML)", *low, *high);
  if (*low >= kLowUtilisationPercent) return words + ".";
  return words + fmt::format(
                     "; {} is under {:.0f}%: take a larger batch, see that data stays under "
                     "{:.0f}% and that the CUDA "
                     "graph is on.",
                     lowest->record->label, kLowUtilisationPercent, 100 * kHighDataShare);
}

std::string communication_words(const All& all) {
  const std::string shares = ranges(all, &ZeroFigures::communication_share);
  if (shares.empty()) return "";
  double highest = 0;
  const ZeroFigures* most = nullptr;
  for (const ZeroFigures& f : all) {
    if (f.communication_share.value_or(0) <= highest) continue;
    highest = *f.communication_share;
    most = &f;
  }
  std::string words = fmt::format("Communication that no computing hid, of a step: {}", shares);
  if (highest < kHighCommunicationShare) return words + ".";
  std::string advice =
      "take a larger batch (--batch-sizes), so that more computing stands against it, or put ranks "
      "on a fast link (NVLink, InfiniBand)";
  if (most->strategy == "zero3")
    advice = "zero2 gathers parameters once per step instead of at each use; else " + advice;
  return words + fmt::format("; {} loses {} to it: {}.", most->record->label, percent_text(highest),
                             advice);
}

std::string data_words(const All& all) {
  const std::string shares = ranges(all, &ZeroFigures::data_share);
  if (shares.empty()) return "";
  double highest = 0;
  const ZeroFigures* most = nullptr;
  for (const ZeroFigures& f : all) {
    if (f.data_share.value_or(0) <= highest) continue;
    highest = *f.data_share;
    most = &f;
  }
  const std::string words = fmt::format("Data, of a step: {}", shares);
  if (highest <= kHighDataShare) return words + "; the loader keeps ahead.";
  return words + fmt::format(
                     "; {} waits {} for its batches, more than {:.0f}%. Text is encoded before the "
                     "first step, so this is the loading of batches, and a token store would not "
                     "change it.",
                     most->record->label, percent_text(highest), 100 * kHighDataShare);
}

std::string memory_words(const All& all) {
  std::vector<std::string> did_not_fit;
  for (const ZeroFigures& f : all) {
    if (f.record->outcome == "oom") did_not_fit.push_back(f.record->label);
  }
  if (did_not_fit.empty()) return "";
  return fmt::format("Out of memory: {}.", join(did_not_fit, ", "));
}

std::string fast_path_words(const All& all) {
  std::map<std::string, int> graphs, attentions, kernels;
  int ok = 0;
  for (const ZeroFigures& f : all) {
    if (!f.ok) continue;
    ++ok;
    ++graphs[f.record->graph];
    ++attentions[f.record->attention];
    ++kernels[f.record->fused_kernels];
  }
  const auto counted = [&](const std::map<std::string, int>& values) {
    std::vector<std::string> parts;
    for (const auto& [value, count] : values) {
      const std::string name = value.empty() ? "not recorded" : value;
      parts.push_back(values.size() == 1 ? name : fmt::format("{} ({} of {})", name, count, ok));
    }
    return join(parts, "; ");
  };
  if (ok == 0) return "";
  const bool cudnn = attentions.count("cudnn") > 0, gpu = all.front().record->device == "cuda";
  return fmt::format("Fast paths: CUDA graph {}; fused kernels {}; attention by {}{}.",
                     counted(graphs), counted(kernels), counted(attentions),
                     cudnn ? ""
                     : gpu ? " (cuDNN takes bf16 and fp16 only, and not with --attention math)"
                           : " (cuDNN: no GPU)");
}

std::vector<KeyFigure> key_figures(const All& all, const std::vector<const ZeroFigures*>& best) {
  std::vector<KeyFigure> figures;
  for (const ZeroFigures* f : best)
    figures.push_back({"best of " + f->strategy, rate_text(*f->tokens_per_second),
                       batch_text(*f) + ", " + shown_bytes(f->peak_bytes) + " a rank"});
  const auto ended =
      std::count_if(all.begin(), all.end(), [](const ZeroFigures& f) { return f.ok; });
  const Record& first = *all.front().record;
  figures.push_back({"experiments", fmt::format("{} of {} ended well", ended, all.size()),
                     fmt::format("{}{}, {}", first.simulated ? "simulated world of " : "",
                                 quantity(first.world.value_or(1), "rank"), first.device)});
  return figures;
}

Verdict zero_verdict(const RecordFolder& folder) {
  const All all = zero_figures(folder.records);
  const std::vector<const ZeroFigures*> best = best_of_each(all);
  Verdict verdict;
  verdict.headline = zero_headline(best);
  verdict.figures = key_figures(all, best);
  compare_with_taken(all, best, verdict.findings);
  compare_strategies(all, verdict.findings);
  for (const std::string& words :
       {growth_words(all), communication_words(all), data_words(all), utilisation_words(all),
        memory_words(all), fast_path_words(all)}) {
    if (!words.empty()) verdict.findings.push_back(words);
  }
  const bool synthetic = std::any_of(all.begin(), all.end(), [](const ZeroFigures& f) {
    return f.ok && f.record->data.source.empty();
  });
  if (synthetic)
    verdict.caveats.push_back(
        "Steps read synthetic tokens, so no time of a loader is in these figures; --data names "
        "your text.");
  if (const std::string words = modelled_words(folder.records); !words.empty())
    verdict.caveats.push_back(fmt::format("Every figure of time holds {}.", words));
  return verdict;
}

// The records' files as they are, in one array.
std::string raw_metrics(const RecordFolder& folder) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Record& record : folder.records)
    all.push_back(parse_object(read_file(join_path(folder.folder, record.file))));
  return all.dump(1) + "\n";
}

std::vector<std::string> prepare(RunConfig& e, const SuiteCall& call) {
  std::vector<std::string> notices = prefer_real_ranks(e, call);
  if (e.placement.simulate_world && !call.given("ranks")) e.placement.ranks.reset();
  if (!call.given("data") && !std::filesystem::exists(e.data.path)) {
    notices.push_back(fmt::format(
        "data: there is no folder '{}' here, so steps read synthetic tokens; set data to the "
        "path of your text",
        e.data.path));
    e.data.path.clear();
  }
  if (!model_source(e).is_language_model())
    field_error(
        "model",
        "{}: this suite compares on a language model; `veil suite linear` takes the linear stack",
        e.model.name);
  const int gpus = gpu_count(), ranks = e.placement.ranks.value_or(1);
  if (e.placement.device != DeviceKind::cpu && gpus > 0 && ranks > gpus && !e.placement.share_gpu)
    field_error("ranks",
                "{}: this machine has {}; set simulate_world {} (one rank of {} is measured and "
                "communication modelled from link), share_gpu, ranks {} or device cpu",
                ranks, quantity(gpus, "GPU"), ranks, ranks, gpus);
  return notices;
}

}  // namespace

std::vector<Experiment> zero_experiments(const ZeroGrid& grid,
                                         const std::vector<std::string>& common) {
  std::vector<Experiment> experiments;
  for (const Strategy strategy : grid.strategies) {
    for (const int64_t batch : grid.batch_sizes) {
      for (const int64_t accumulation : grid.accumulations)
        experiments.push_back(
            {fmt::format("{}_bs{}_ga{}", name_of(strategy), batch, accumulation),
             fmt::format("{} bs{} ga{}", name_of(strategy), batch, accumulation),
             {"--strategy", name_of(strategy), "--batch-size", std::to_string(batch),
              "--accumulation", std::to_string(accumulation)},
             fmt::format("bs{}_ga{}", batch, accumulation)});
    }
  }
  return with_common(std::move(experiments), common, "a strategy, batch size or accumulation");
}

Suite zero_suite() {
  const auto grid = std::make_shared<ZeroGrid>();
  Suite suite{
      .name = "zero",
      .help = "ZeRO 2 or 3 on a language model: strategies by batch sizes by gradient accumulation",
      .output_dir = "comparison_results",
      .told = {"model", "seq-length", "iterations", "ranks", "data"},
      .prepare = prepare,
      .experiments = [grid](const std::vector<std::string>& common) {
        return zero_experiments(*grid, common);
      }};
  suite.page = {.question = "ZeRO 2 or ZeRO 3, at which batch, for this model on these ranks?",
                .table = zero_table,
                .plots = {zero_plots},
                .verdict = zero_verdict,
                .more_files = [](const RecordFolder& folder) -> std::vector<ReportFile> {
                  return {{"comparison.csv", zero_csv(folder.records)},
                          {"raw_metrics.json", raw_metrics(folder)}};
                }};
  suite.config.model.name = "qwen1.5-1.8b";
  suite.config.model.seq_length = 2048;
  suite.config.measure.iterations = 50;
  suite.config.placement.ranks = 2;
  suite.config.data.path = "data";
  suite.options = {{.name = "strategies", .field = &grid->strategies, .help = "which are compared"},
                   {.name = "batch-sizes",
                    .field = &grid->batch_sizes,
                    .help = "samples per rank and micro-batch, one after another",
                    .minimum = 1,
                    .maximum = 1 << 24},
                   {.name = "accumulations",
                    .field = &grid->accumulations,
                    .aliases = {"grad_accum_steps"},
                    .help = "micro-batches in a logical batch, one after another",
                    .minimum = 1,
                    .maximum = 1000000}};
  suite.refused = {
      {{"strategy"}, "the suite compares several; name them with --strategies"},
      {{"batch-size", "total-batch-size"},
       "the suite compares several; name them with --batch-sizes"},
      {{"accumulation"}, "the suite compares several; name them with --accumulations"},
      {{"input-size"}, "it is the linear stack's; this suite compares on a language model"}};
  return suite;
}

}  // namespace veil
