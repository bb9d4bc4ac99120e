// Random but consistent records of every suite: no sentence of a verdict may be false, and every
// option that it names must be one that the suite accepts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "cli/command.h"
#include "report/changes.h"
#include "report/suite_page.h"
#include "suite/suite.h"
#include "suite/test_claims.h"

namespace veil::verdict_claims_test {
namespace {

using ::testing::HasSubstr;

class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}
  double between(double low, double high) {
    return low + (high - low) * std::uniform_real_distribution<double>()(engine_);
  }
  // Over orders of magnitude.
  double spread(double low, double high) { return low * std::pow(high / low, between(0, 1)); }
  bool one_in(int n) { return std::uniform_int_distribution<int>(1, n)(engine_) == 1; }
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(engine_); }
  template <typename T>
  T one_of(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int>(values.size())))];
  }
  // In their order, at least `least` of them.
  template <typename T>
  std::vector<T> some_of(std::vector<T> values, size_t least = 1) {
    while (values.size() > least && !one_in(3))
      values.erase(values.begin() + below(static_cast<int>(values.size())));
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

// What all records of a set have in common.
struct Machine {
  std::string device;
  int64_t world = 1;
  bool simulated = false, with_spread = true, one_step = false;
};
Machine machine_of(Chance& chance) {
  Machine m;
  m.device = chance.one_in(2) ? "cpu" : "cuda";
  m.world = chance.one_of<int64_t>({1, 1, 2, 8});
  m.simulated = m.world > 1 && chance.one_in(3);
  m.with_spread = !chance.one_in(8);
  m.one_step = chance.one_in(8);
  return m;
}

void fill_common(Chance& chance, const Machine& machine, Record& r) {
  r.label = r.title;
  r.device = machine.device;
  r.world = machine.world;
  r.simulated = machine.simulated;
  const int fate = chance.below(16);
  r.outcome = fate == 0 ? "oom" : fate == 1 ? "error" : "ok";
  if (!r.ok()) {
    if (r.outcome == "oom")
      r.remedies = chance.some_of<std::string>(
          {"--batch-size 2 --accumulation 2 (1.00 GiB, fits, 1.02 times the time per sample, the "
           "same logical batch)",
           "--checkpointing full (1.50 GiB, does not fit, 1.33 times the time per sample)",
           "--pass-plan two-pass (1.20 GiB, fits, 1.20 times the time per sample)",
           "--strategy zero3 (1.10 GiB, fits, 1.10 times the time per sample)",
           "--cpu-offload (1.60 GiB, does not fit, 1.50 times the time per sample)",
           "--seq-length 256 (1.00 GiB, fits, 0.50 times the time per sample, shorter sequences)",
           "--image-size 16 (1.00 GiB, fits, 0.25 times the time per sample, smaller images)",
           "--input-size 128 (1.00 GiB, fits, 0.25 times the time per sample, a smaller model)"});
    r.avg_time_ms.reset();
    r.peak_memory_bytes.reset();
    r.tokens_per_second.reset();
    r.phases.clear();
    r.breakdown.clear();
    r.communication.clear();
    r.gpu_state = {};
    return;
  }
  if (machine.with_spread) r.std_time_ms = *r.avg_time_ms * chance.spread(0.001, 0.1);
  r.times_ms.assign(machine.one_step ? 1 : 3, *r.avg_time_ms);
  if (machine.simulated) {
    r.modelled_step_ms = *r.avg_time_ms * chance.between(1, 1.5);
    r.link_gb_per_s = 50;
  }
}

// Communication whose exposed time is in the step.
void add_communication(Chance& chance, Record& r, double most_ms) {
  for (const char* kind : {"gather", "reduce", "copy"}) {
    if (chance.one_in(2)) continue;
    RecordTransfer t;
    t.total_ms = chance.between(0, most_ms);
    t.exposed_ms = chance.one_in(4) ? 0 : *t.total_ms * chance.between(0, 1);
    if (r.simulated) {
      t.modelled_ms = *t.total_ms;
      t.modelled_exposed_ms = *t.exposed_ms;
    }
    if (!chance.one_in(4)) t.bytes = std::round(chance.spread(1e3, 1e9));
    r.communication[kind] = t;
  }
}

// a + bT + cT^2 with some of the terms, and noise.
struct GrowthLaw {
  double a = 0, b = 0, c = 0, noise = 0;
  double at(Chance& chance, double t) const {
    return (a + b * t + c * t * t) * (1 + noise * chance.between(-1, 1));
  }
};
GrowthLaw law_of(Chance& chance, double scale) {
  GrowthLaw law;
  const int kind = chance.below(6);
  if (kind != 0) law.a = scale * chance.between(0.1, 1);
  if (kind != 1) law.b = scale * chance.between(0.1, 1) / 1024;
  if (kind > 3) law.c = scale * chance.spread(0.01, 1) / 1024 / 1024;
  if (kind == 1 && chance.one_in(2)) law.b = law.a * 0.00001;
  law.noise = chance.one_of<double>({0, 0, 0.005, 0.02, 0.1});
  return law;
}

std::vector<int64_t> some_lengths(Chance& chance) {
  return chance.some_of<int64_t>({512, 1024, 2048, 4096, 8192});
}

std::vector<Record> mode_records(Chance& chance, const std::string& suite) {
  const Machine machine = machine_of(chance);
  const std::vector<std::string> modes = chance.some_of<std::string>(
      suite == "llama3-dp"
          ? std::vector<std::string>{"no_dp", "ghost_fsdp", "flash_fsdp", "auto", "bookkeeping"}
          : std::vector<std::string>{"flash", "bookkeeping", "ghost", "auto", "materialize",
                                     "flash_fsdp", "no_dp"});
  const std::vector<int64_t> lengths = some_lengths(chance);
  const nlohmann::json config = {
      {"strategy", chance.one_of<std::string>({"ddp", "zero2", "zero3"})},
      {"checkpointing", chance.one_of<std::string>({"none", "selective", "full"})},
      {"cpu-offload", chance.one_in(4)},
      {"accumulation", chance.one_of<int>({1, 1, 4})},
      {"reduce", chance.one_of<std::string>({"fp32", "bf16"})},
      {"forward-prefetch", chance.below(2)},
      {"backward-prefetch", chance.one_of<std::string>({"pre", "post", "none"})}};
  const int64_t batch = chance.one_of<int64_t>({1, 4});
  std::vector<Record> records;
  for (const std::string& mode : modes) {
    GrowthLaw memory = law_of(chance, chance.spread(1e7, 1e10));
    // Modes that need nearly the same memory, and the same to the byte.
    if (!records.empty() && chance.one_in(3)) memory = {1e9, 1e6, 0, chance.one_in(2) ? 0 : 0.002};
    const GrowthLaw time = law_of(chance, chance.spread(1, 1000));
    std::map<std::string, GrowthLaw> phases;
    for (const char* phase : {"forward", "norms", "second_backward", "noise_update", "gap",
                              "recompute", "data", "backward_and_norms", "weight_grad"}) {
      if (phase == std::string("forward") || !chance.one_in(3))
        phases[phase] = law_of(chance, chance.spread(1, 100));
    }
    for (const int64_t length : lengths) {
      const auto t = static_cast<double>(length);
      Record r;
      r.suite = suite;
      r.experiment = mode + "_seq" + std::to_string(length);
      r.title = mode + ", T=" + std::to_string(length);
      r.mode = mode;
      r.seq_length = length;
      r.batch_size = batch;
      r.config = config;
      if (mode.ends_with("_fsdp")) r.config["strategy"] = "zero3";
      r.graph = chance.one_of<std::string>({"on", "off: no GPU"});
      r.peak_memory_bytes = std::round(memory.at(chance, t));
      r.avg_time_ms = time.at(chance, t);
      if (suite == "bottlenecks") {
        r.simulated = machine.simulated;
        add_communication(chance, r, 50);
        double sum = 0;
        for (const auto& [phase, law] : phases) sum += r.phases[phase] = law.at(chance, t);
        for (const auto& [kind, transfer] : r.communication) sum += *transfer.exposed_ms;
        r.avg_time_ms = sum * (chance.one_in(2) ? 1.0 : chance.between(1.01, 1.5));
        double left = *r.peak_memory_bytes;
        for (const char* category :
             {"parameters", "activations", "clip_records", "temporary", "optimizer"}) {
          r.breakdown[category] = std::round(left * chance.between(0.1, 0.8));
          left -= r.breakdown[category];
        }
        r.breakdown["gradients"] = left;
      }
      fill_common(chance, machine, r);
      // The parts sum to the step that is compared.
      if (r.ok() && suite == "bottlenecks" && r.modelled_step_ms)
        r.modelled_step_ms = r.avg_time_ms;
      records.push_back(r);
    }
  }
  return records;
}

std::vector<Record> zero_records(Chance& chance) {
  Machine machine = machine_of(chance);
  std::vector<Record> records;
  const auto strategies = chance.some_of<std::string>({"ddp", "zero2", "zero3"});
  const auto batches = chance.some_of<int64_t>({2, 4, 8, 16});
  const auto accumulations = chance.some_of<int>({1, 2, 4});
  const bool text = chance.one_in(2);
  const double base_rate = chance.spread(100, 1e6), near = chance.one_in(2) ? 0.02 : 0.5;
  for (const std::string& strategy : strategies) {
    for (const int64_t batch : batches) {
      for (const int accumulation : accumulations) {
        Record r;
        r.suite = "zero";
        r.experiment = r.title =
            strategy + " bs" + std::to_string(batch) + " ga" + std::to_string(accumulation);
        r.batch_size = batch;
        r.seq_length = 2048;
        r.config = {{"strategy", strategy}, {"accumulation", accumulation}};
        r.avg_time_ms = chance.spread(10, 1000);
        r.tokens_per_second = base_rate * (1 + near * chance.between(-1, 1));
        r.peak_memory_bytes = std::round(chance.spread(1e8, 1e11));
        r.simulated = machine.simulated;
        add_communication(chance, r, *r.avg_time_ms * 0.4);
        if (machine.device == "cuda") r.gpu_state.utilisation_percent = chance.between(50, 100);
        if (text) {
          r.data.source = "text";
          r.data.load_ms = *r.avg_time_ms * chance.between(0, 0.2);
        }
        fill_common(chance, machine, r);
        if (r.ok() && chance.one_in(2))
          r.ranks = {{.rank = 0,
                      .avg_time_ms = {},
                      .peak_memory_bytes = *r.peak_memory_bytes + 1e6,
                      .memory_mean_bytes = {},
                      .utilisation_percent = {}}};
        records.push_back(r);
      }
    }
  }
  return records;
}

// Set-ups of the suites that have no verdict of their own: close to each other, or far apart.
std::vector<Record> general_records(Chance& chance, const std::string& suite) {
  struct SetUp {
    std::string title, strategy, mode;
    bool offload = false;
  };
  std::vector<SetUp> set_ups = {{"basic DDP", "ddp", "no_dp"},
                                {"basic FSDP", "zero3", "no_dp"},
                                {"memory-optimised FSDP", "zero3", "no_dp", true},
                                {"performance-optimised FSDP", "zero3", "no_dp"}};
  if (suite == "checkpointing")
    set_ups = {{"every activation held", "zero3", "no_dp"},
               {"selective checkpointing", "zero3", "no_dp"},
               {"full checkpointing", "zero3", "no_dp"}};
  if (suite == "dit-dp")
    set_ups = {{"vanilla", "zero3", "no_dp"},
               {"ghost", "zero3", "ghost"},
               {"flash_clip", "zero3", "flash"},
               {"bookkeeping", "zero3", "bookkeeping"},
               {"auto", "zero3", "auto"}};
  set_ups = chance.some_of(set_ups);
  const Machine machine = machine_of(chance);
  const std::vector<int> images =
      suite == "dit-dp" ? chance.some_of<int>({32, 64}) : std::vector{0};
  const bool near = chance.one_in(2);
  std::vector<Record> records;
  for (const SetUp& set_up : set_ups) {
    for (const int image : images) {
      Record r;
      r.suite = suite;
      r.title = set_up.title;
      r.config = {{"strategy", set_up.strategy}, {"cpu-offload", set_up.offload}};
      if (suite == "dit-dp") r.config["image-size"] = image;
      if (images.size() > 1) r.title += " img" + std::to_string(image);
      r.experiment = r.title;
      r.mode = set_up.mode;
      r.batch_size = 8;
      r.simulated = machine.simulated;
      r.avg_time_ms = near ? 100 + chance.between(0, 12) : chance.spread(1, 3000);
      r.peak_memory_bytes = std::round(near ? chance.one_of<double>({1e9, 1.005e9, 1.5e9})
                                            : chance.spread(1e6, 1e11));
      add_communication(chance, r, *r.avg_time_ms * 0.3);
      double left = *r.peak_memory_bytes;
      for (const char* category : {"parameters", "activations", "optimizer"}) {
        r.breakdown[category] = std::round(left * chance.between(0.1, 0.8));
        left -= r.breakdown[category];
      }
      fill_common(chance, machine, r);
      if (near && machine.with_spread && r.ok()) r.std_time_ms = 5;
      records.push_back(r);
    }
  }
  return records;
}

std::vector<Record> records_of(Chance& chance, const std::string& suite) {
  if (suite == "zero") return zero_records(chance);
  if (suite == "llama3-dp" || suite == "bottlenecks") return mode_records(chance, suite);
  return general_records(chance, suite);
}

std::set<std::string> options_of(const std::string& suite) {
  static const std::vector<OptionTable> tables = option_tables();
  std::set<std::string> names;
  for (const OptionTable& table : tables) {
    if (table.command != "suite " + suite) continue;
    for (const OptionRow& row : table.rows) {
      names.insert(row.name);
      names.insert(row.aliases.begin(), row.aliases.end());
    }
  }
  return names;
}

const SuitePage& suite_page(const std::string& suite) {
  static const std::vector<SuitePage> pages = suite_pages();
  return *std::find_if(pages.begin(), pages.end(),
                       [&](const SuitePage& page) { return page.suite == suite; });
}

// False claims over so many random sets; the first few of them.
std::string false_claims_over(const std::string& suite, int sets) {
  const std::set<std::string> options = options_of(suite);
  EXPECT_GT(options.size(), 20u) << suite;
  std::string found;
  int wrong = 0;
  for (int seed = 0; seed < sets; ++seed) {
    Chance chance(static_cast<uint64_t>(seed));
    RecordFolder folder{"", records_of(chance, suite), {}};
    const std::string claims =
        verdict_claims::false_claims(suite, folder, judge(folder, suite_page(suite)), options);
    if (claims.empty()) continue;
    if (++wrong <= 3) found += suite + ", set " + std::to_string(seed) + ":\n" + claims;
  }
  return wrong == 0 ? "" : found + std::to_string(wrong) + " sets with false claims\n";
}

TEST(VerdictClaims, NothingFalseIsSaidOfThePriceOfPrivacy) {
  EXPECT_EQ(false_claims_over("llama3-dp", 2500), "");
}
TEST(VerdictClaims, NothingFalseIsSaidOfBottlenecksNorAdvisedAgainstThem) {
  EXPECT_EQ(false_claims_over("bottlenecks", 2500), "");
}
TEST(VerdictClaims, NothingFalseIsSaidOfStrategiesByBatches) {
  EXPECT_EQ(false_claims_over("zero", 2500), "");
}
TEST(VerdictClaims, NothingFalseIsSaidOfSetUpsByTheGeneralVerdict) {
  for (const char* suite : {"linear", "dit-dp", "checkpointing"})
    EXPECT_EQ(false_claims_over(suite, 1000), "");
}

TEST(VerdictClaims, NothingFalseIsSaidOfTwoRuns) {
  std::string found;
  for (int seed = 0; seed < 1000 && found.empty(); ++seed) {
    Chance chance(static_cast<uint64_t>(seed));
    RecordFolder before{"a", general_records(chance, "linear"), {}}, after = before;
    after.folder = "b";
    for (Record& r : after.records) {
      if (!r.ok()) continue;
      r.avg_time_ms = *r.avg_time_ms * chance.between(0.9, 1.1);
      if (r.modelled_step_ms) r.modelled_step_ms = *r.modelled_step_ms * chance.between(0.9, 1.1);
      if (chance.one_in(2)) r.peak_memory_bytes = std::round(chance.spread(1e6, 1e11));
      if (chance.one_in(8)) r.outcome = "error";
    }
    found = verdict_claims::false_change_claims(change_headline(changes_between(before, after)),
                                                before.records, after.records);
  }
  EXPECT_EQ(found, "");
}

// The checker itself: sentences that were once printed, or might be, and are not true.
TEST(VerdictClaims, TheCheckerFindsPlantedFalsehoods) {
  Chance chance(7);
  std::vector<Record> records;
  for (const auto& [mode, ms] : {std::pair("no_dp", 100.0), std::pair("auto", 102.4)}) {
    for (const int64_t length : {1024, 2048, 4096}) {
      Record r;
      r.mode = mode;
      r.outcome = "ok";
      r.label = std::string(mode) + ", T=" + std::to_string(length);
      r.seq_length = length;
      r.world = 1;
      r.device = "cuda";
      r.avg_time_ms = ms * static_cast<double>(length) * static_cast<double>(length) / 4096 / 4096;
      r.std_time_ms = 0.1;
      r.times_ms = {1, 2, 3};
      r.phases["norms"] = *r.avg_time_ms;
      r.peak_memory_bytes =
          (mode == std::string("auto") ? 4.0 : 3.6) * static_cast<double>(1 << 30);
      records.push_back(r);
    }
  }
  const RecordFolder folder{"", records, {}};
  const auto claims = [&](const std::string& suite, const std::string& headline,
                          const std::vector<std::string>& findings) {
    Verdict verdict;
    verdict.headline = headline;
    verdict.findings = findings;
    return verdict_claims::false_claims(suite, folder, verdict, options_of(suite));
  };
  const std::string good =
      "At T = 4096, private training takes 2.4% more time and 409.60 MiB more memory than plain "
      "training (auto).";
  EXPECT_EQ(claims("llama3-dp", good, {}), "");
  const std::vector<std::pair<std::string, std::string>> headlines = {
      {"At T = 4096, private training takes 2.5% more time and 409.60 MiB more memory than plain "
       "training (auto).",
       "the time"},
      {"At T = 2048, private training takes 2.4% more time and 409.60 MiB more memory than plain "
       "training (auto).",
       "a longer one was measured"},
      {"At T = 4096, private training takes 2.4% more time and 409.60 MiB less memory than plain "
       "training (auto).",
       "the memory"},
      {"Privacy is cheap.", "does not know"},
      {good + " It is well worth it.", "not one sentence"}};
  for (const auto& [headline, found] : headlines)
    EXPECT_THAT(claims("llama3-dp", headline, {}), HasSubstr(found)) << headline;
  const std::vector<std::pair<std::string, std::string>> findings = {
      {"Growth of auto: time grows linearly with T from 1024 to 4096: 1.00 ms plus 24.0 ms per "
       "1000 "
       "tokens, within 1.0%.",
       "farther from a point"},
      {"Growth of auto: time stays at 102 ms from T = 1024 to 4096, within 1.0%.", "it grows"},
      {"Growth of auto: time is 4.00 times as large at T = 4096 as at T = 1024 (3 lengths cannot "
       "tell the law).",
       "how many times"},
      {"auto: T = 4096 -2.4% less time and about the same memory compared with no_dp.",
       "the time"}};
  for (const auto& [finding, found] : findings)
    EXPECT_THAT(claims("llama3-dp", good, {finding}), HasSubstr(found)) << finding;
  const std::string bottleneck =
      "At T = 4096, the largest part of a step is norms in no_dp (100%), norms in auto (100%).";
  EXPECT_EQ(claims("bottlenecks", bottleneck, {}), "");
  const std::vector<std::pair<std::string, std::string>> advice = {
      {"`--mode auto` takes the cheaper rule", "auto is what runs"},
      {"`--rule flash` is cheaper", "no_dp refuses --rule"},
      {"`--strategy zero3` shares them among ranks", "zero3 does not help"},
      {"tokenize once", "text is encoded before"},
      {"`--tokenise` helps", "no option --tokenise"}};
  for (const auto& [words, found] : advice)
    EXPECT_THAT(claims("bottlenecks", bottleneck, {"Advice on time, auto: " + words + "."}),
                HasSubstr(found))
        << words;
  EXPECT_THAT(claims("zero", "Take ddp with batch 8 (12 k tokens/s in 3.00 GiB per rank).", {}),
              HasSubstr("no record of"));
}

}  // namespace
}  // namespace veil::verdict_claims_test
