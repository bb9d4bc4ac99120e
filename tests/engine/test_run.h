// One small training run, described by a value; shared by the single-process and the rank tests.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "models/family.h"

namespace veil {

struct TestCase {
  std::string model = "";  // a language or diffusion model's preset; "": the linear stack
  Task task = Task::causal_lm;
  int64_t tokens = 12;  // in its sequences
  int64_t logit_piece_bytes = 0;
  AttentionKind attention = AttentionKind::automatic;
  int64_t heads = 3, kv_heads = 1;  // of families whose heads can be grouped
  double max_grad_norm = 0;         // taken if it is set
  struct Private {
    privacy::PassKind pass = privacy::PassKind::two_pass;
    privacy::NormRule rule = privacy::NormRule::ghost;
    int64_t tile = 5;
    int combine_every = 1;  // micro-batches, of keep
    privacy::ClipFunction clip = privacy::ClipFunction::abadi;
    double clip_norm = 0.05;  // below most norms that occur
    double noise_multiplier = 0;
    double expected_batch = 6;
    NoiseGenerator generator = NoiseGenerator::secure;
  };
  std::optional<Private> clipped = {};
  std::vector<std::string> frozen = {};   // patterns
  std::optional<LoraSettings> lora = {};  // of a language model
  std::vector<std::string> train_also = {};
  int64_t width = 13, layers = 4;  // 13: no world divides it
  int64_t batch = 6;
  StepOptions step = all_of(at::kDouble);
  OptimizerOptions optimizer;
  uint64_t seed = 7;
  GraphMode graph = GraphMode::automatic;
  bool time_rows = false;
  Device device = cpu_device();
  // ExecutorOptions::initial
  std::function<bool(ParamId, int64_t first, const Tensor& out)> initial = {};

  static StepOptions all_of(DType dtype);
  std::string name() const;
};

struct TestRun {
  // `first_sample`: the place of its first sample among all that can be made.
  TestRun(const TestCase& test, Ranks ranks, int64_t first_sample = 0);
  void steps(int count);
  std::vector<Tensor> parameters();  // every rank must call it
  Batch samples(int64_t count, int64_t first = 0) const;
  Model model;
  std::unique_ptr<Executor> executor;

 private:
  TestCase test_;
};

// What steps leave behind, and their losses.
struct Trained {
  std::vector<Tensor> parameters;
  std::vector<double> losses;
};
void expect_equal_bits(const Trained& a, const Trained& b);

double largest_difference(const Tensor& a, const Tensor& b);
Ranks simulated_ranks(const TestCase& test, int rank = 1);

// Every strategy x prefetch x wrap x offload x checkpointing x accumulation x optimizer, on a world
// of `world`; types are `dtype`.
std::vector<TestCase> full_grid(int world, DType dtype);
// Language models, each in a few settings that matter to them: strategies, checkpointing,
// accumulation, wrapping, prefetch.
std::vector<TestCase> language_grid(int world, DType dtype);
// the same settings for a diffusion transformer
std::vector<TestCase> diffusion_grid(int world, DType dtype);
// Every model, pass, rule, function, strategy, checkpointing, accumulation and wrapping of a
// private step on kPrivateGridSamples samples; not all products of them.
std::vector<TestCase> private_grid(DType dtype);
inline constexpr int64_t kPrivateGridSamples = 6;
// The same for simulated worlds of 1 and 3 and several types, for bytes alone.
std::vector<TestCase> memory_grid();

}  // namespace veil
