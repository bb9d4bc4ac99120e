#include "suite/test_random_records.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace veil::verdict_claims {
namespace {

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

// `most_fail` of 16 run out of memory, and as many fail.
void fill_common(Chance& chance, const Machine& machine, Record& r, int most_fail = 1) {
  r.label = r.title;
  r.device = machine.device;
  r.world = machine.world;
  r.simulated = machine.simulated;
  const int fate = chance.below(16);
  r.outcome = fate < most_fail ? "oom" : fate < 2 * most_fail ? "error" : "ok";
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
    r.layer_ms.clear();
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
        for (const auto& [phase, ms] : r.phases) {
          for (const char* layer : {"embed", "layers.0", "layers.1", "layers.10", "head"})
            r.layer_ms[phase + " " + layer] = ms * chance.between(0.05, 0.2);
        }
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
  set_ups = chance.some_of(set_ups);
  const Machine machine = machine_of(chance);
  const bool near = chance.one_in(2);
  std::vector<Record> records;
  for (const SetUp& set_up : set_ups) {
    Record r;
    r.suite = suite;
    r.predicted_step_ms = chance.spread(1, 1000);
    r.estimated_peak_bytes = std::round(chance.spread(1e6, 1e9));
    r.title = set_up.title;
    r.config = {{"strategy", set_up.strategy}, {"cpu-offload", set_up.offload}};
    r.experiment = r.title;
    r.mode = set_up.mode;
    r.batch_size = 8;
    r.simulated = machine.simulated;
    r.avg_time_ms = near ? 100 + chance.between(0, 12) : chance.spread(1, 3000);
    r.peak_memory_bytes =
        std::round(near ? chance.one_of<double>({1e9, 1.005e9, 1.5e9}) : chance.spread(1e6, 1e11));
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
  return records;
}

// Modes by images, attentions and batches, with laws of growth, or close to each other.
std::vector<Record> dit_records(Chance& chance) {
  const Machine machine = machine_of(chance);
  const auto modes =
      chance.some_of<std::string>({"no_dp", "ghost", "flash", "bookkeeping", "auto"});
  const auto images = chance.one_in(3) ? std::vector<int64_t>{256}
                                       : chance.some_of<int64_t>({128, 192, 256, 384, 512});
  const auto attentions = chance.one_in(2)
                              ? std::vector<std::string>{chance.one_in(4) ? "math" : "auto"}
                              : std::vector<std::string>{"auto", "math"};
  const auto batches = chance.one_in(4) ? std::vector<int64_t>{4, 8} : std::vector<int64_t>{8};
  const std::string fused = machine.device == "cuda" ? "cudnn" : "flash";
  const bool near = chance.one_in(3), math_is_larger = chance.one_in(2);
  const int most_fail = chance.one_of<int>({0, 1, 1, 16});  // sometimes none, sometimes all
  std::vector<Record> records;
  for (const std::string& mode : modes) {
    for (const std::string& attention : attentions) {
      for (const int64_t batch : batches) {
        const GrowthLaw time = law_of(chance, chance.spread(1, 1000)),
                        memory = law_of(chance, chance.spread(1e6, 1e10));
        for (const int64_t image : images) {
          const int64_t tokens = (image / 8) * (image / 8);
          Record r;
          r.suite = "dit-dp";
          r.mode = mode;
          r.title = mode == "no_dp" ? "vanilla" : mode == "flash" ? "flash_clip" : mode;
          if (images.size() > 1) r.title += " img" + std::to_string(image);
          if (batches.size() > 1) r.title += " bs" + std::to_string(batch);
          if (attentions.size() > 1) r.title += " " + attention + "-attention";
          r.experiment = r.title;
          r.config = {{"strategy", "zero3"},
                      {"model", "dit-l/8"},
                      {"patch-size", 8},
                      {"image-size", image},
                      {"attention", attention}};
          r.batch_size = batch;
          r.seq_length = tokens;
          r.attention = attention == "math" ? "math" : fused;
          r.simulated = machine.simulated;
          r.avg_time_ms =
              near ? 100 + chance.between(0, 12) : time.at(chance, static_cast<double>(tokens));
          r.peak_memory_bytes = std::round(near ? chance.one_of<double>({1e9, 1.005e9, 1.5e9})
                                                : memory.at(chance, static_cast<double>(tokens)));
          if (attention == "math" && math_is_larger)
            r.avg_time_ms = *r.avg_time_ms * 4, r.peak_memory_bytes = *r.peak_memory_bytes * 2;
          add_communication(chance, r, *r.avg_time_ms * 0.3);
          r.breakdown = {{"activations", std::round(*r.peak_memory_bytes / 3)}};
          r.breakdown["parameters"] = *r.peak_memory_bytes - r.breakdown["activations"];
          fill_common(chance, machine, r, most_fail);
          if (!r.ok() && chance.one_in(2)) r.attention.clear();
          if (near && machine.with_spread && r.ok()) r.std_time_ms = 5;
          records.push_back(r);
        }
      }
    }
  }
  return records;
}

}  // namespace

std::vector<Record> random_records(Chance& chance, const std::string& suite) {
  if (suite == "zero") return zero_records(chance);
  if (suite == "dit-dp") return dit_records(chance);
  if (suite == "llama3-dp" || suite == "bottlenecks") return mode_records(chance, suite);
  return general_records(chance, suite);
}

}  // namespace veil::verdict_claims
