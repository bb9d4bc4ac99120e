// Adapters on every family: their gradients are those of the merged weights, and a private step
// clips them as one sample at a time would, whatever the plan, the rule and the strategy.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "engine/test_run.h"
#include "kernels/random.h"

namespace veil {
namespace {

using privacy::ClipFunction;
using privacy::NormRule;
using privacy::PassKind;

constexpr int64_t kAdapterSamples = kPrivateGridSamples;

struct AdaptedModel {
  const char* model;
  std::vector<std::string> targets = {"all"};
  Task task = Task::causal_lm;
  std::vector<std::string> also = {};
};

const std::vector<AdaptedModel>& adapted_models() {
  static const std::vector<AdaptedModel> all = {
      {"llama-tiny"},
      {"mistral-tiny"},
      {"qwen3-tiny", {"attention"}},
      {"gemma3-tiny"},
      {"phi3-tiny", {"qkv_proj", "gate_up_proj", "down_proj"}},
      {"phi3-tiny", {"all"}, Task::sequence_classification, {"score.*"}},
      {"olmo2-tiny", {"q_proj", "v_proj", "up_proj"}},
      {"smollm3-tiny"},
      {"roberta-tiny", {"all"}, Task::sequence_classification, {"classifier.*"}}};
  return all;
}

using ParamValues = std::map<std::string, Tensor>;  // by name, fp64

// Values of a parameter that depend on nothing but its name, so that a model with adapters and one
// without start alike. B is not 0, as it is in training, or A would have no gradient.
Tensor adapter_test_values(const std::string& name, const std::vector<int64_t>& dims) {
  uint64_t seed = 1469598103934665603ull;
  for (const char letter : name) seed = (seed ^ static_cast<uint8_t>(letter)) * 1099511628211ull;
  const Tensor values = at::empty(dims, at::kDouble);
  fill_normal(values, 0.2, seed, RandomDomain::inputs, 0);
  return dims.size() == 1 ? values.add(1) : values;
}

ParamValues values_of(const Model& model) {
  ParamValues all;
  for (const ParamShape& param : model.params)
    all[param.name] = adapter_test_values(param.name, param.dims);
  return all;
}

// The case with these values in place of the model's rules.
TestCase starting_from(TestCase test, const Model& model, const ParamValues& values) {
  std::vector<Tensor> flat;
  for (const ParamShape& param : model.params) flat.push_back(values.at(param.name).flatten());
  test.initial = [flat](ParamId id, int64_t first, const Tensor& out) {
    out.copy_(flat[static_cast<size_t>(id)].narrow(0, first, out.numel()));
    return true;
  };
  return test;
}

TestCase adapted_case(const AdaptedModel& of) {
  TestCase test;
  test.model = of.model;
  test.task = of.task;
  test.step = TestCase::all_of(at::kDouble);
  test.step.min_params = 3000;
  test.lora = LoraSettings{3, 6, false, of.targets};
  test.train_also = of.also;
  TestCase alone = test;
  alone.batch = 1;
  const Model model = TestRun(alone, {}).model;
  return starting_from(test, model, values_of(model));
}

struct SingleSamples {
  std::vector<std::vector<double>> squared;  // [params][samples]
  std::vector<std::vector<Tensor>> grads;    // [samples][params]
};

SingleSamples one_at_a_time(TestCase test) {
  test.batch = 1;
  SingleSamples found;
  for (int64_t i = 0; i < kAdapterSamples; ++i)
    found.grads.push_back(TestRun(test, {}, i).executor->gradients());
  for (size_t p = 0; p < found.grads[0].size(); ++p) {
    found.squared.emplace_back();
    for (const std::vector<Tensor>& grads : found.grads)
      found.squared.back().push_back(grads[p].square().sum().item<double>());
  }
  return found;
}

// W + s B A in one weight: dA = s B^T dW and dB = s dW A^T, whatever the family joins or fuses.
TEST(AdapterStep, GradientsAreThoseOfTheMergedWeights) {
  for (const AdaptedModel& of : adapted_models()) {
    TestCase adapted = adapted_case(of);
    adapted.batch = 2;
    SCOPED_TRACE(adapted.name());
    TestRun run(adapted, {});
    const double scale = adapted.lora->scale();
    ParamValues values = values_of(run.model);
    std::map<std::string, Tensor> grads;
    const std::vector<Tensor> mine = run.executor->gradients();
    for (size_t p = 0; p < mine.size(); ++p) grads[run.model.params[p].name] = mine[p];

    TestCase plain = adapted;
    plain.lora.reset();
    plain.train_also.clear();
    plain.initial = {};
    const Model whole = TestRun(plain, {}).model;
    ParamValues merged;
    int64_t pairs = 0;
    for (const ParamShape& param : whole.params) {
      merged[param.name] = values.at(param.name);
      const std::string module = param.name.substr(0, param.name.rfind(".weight"));
      if (!values.contains(module + kLoraA)) continue;
      merged[param.name] = merged[param.name].add(
          at::matmul(values[module + kLoraB], values[module + kLoraA]), scale);
      ++pairs;
    }
    EXPECT_EQ(2 * pairs, std::ssize(values) - std::ssize(merged)) << "a pair without its weight";
    TestRun reference(starting_from(plain, whole, merged), {});
    const std::vector<Tensor> expected = reference.executor->gradients();
    for (size_t p = 0; p < expected.size(); ++p) {
      const std::string& name = whole.params[p].name;
      const std::string module = name.substr(0, name.rfind(".weight"));
      if (values.contains(module + kLoraA)) {
        const Tensor a = at::matmul(values[module + kLoraB].t(), expected[p]).mul(scale),
                     b = at::matmul(expected[p], values[module + kLoraA].t()).mul(scale);
        EXPECT_GT(a.abs().max().item<double>(), 0) << name;
        EXPECT_LE(largest_difference(grads[module + kLoraA], a),
                  1e-10 * std::max(1.0, a.abs().max().item<double>()))
            << name;
        EXPECT_LE(largest_difference(grads[module + kLoraB], b),
                  1e-10 * std::max(1.0, b.abs().max().item<double>()))
            << name;
        EXPECT_EQ(grads[name].abs().max().item<double>(), 0) << name << " is frozen";
      } else if (grads[name].abs().max().item<double>() > 0) {  // trained in addition
        EXPECT_LE(largest_difference(grads[name], expected[p]),
                  1e-10 * std::max(1.0, expected[p].abs().max().item<double>()))
            << name;
      }
    }
  }
}

TEST(AdapterStep, EveryFamilyIsClippedAsOneSampleAtATimeInEveryPlanAndStrategy) {
  size_t turn = 0;
  for (const AdaptedModel& of : adapted_models()) {
    const TestCase adapted = adapted_case(of);
    const SingleSamples known = one_at_a_time(adapted);
    for (const PassKind pass :
         {PassKind::keep, PassKind::book, PassKind::two_pass, PassKind::per_layer}) {
      for (const NormRule rule : {NormRule::materialize, NormRule::ghost, NormRule::flash}) {
        TestCase test = adapted;
        test.step.strategy = static_cast<Strategy>(turn % 3);
        test.step.checkpointing = static_cast<Checkpointing>(turn / 3 % 3);
        test.step.micro_batches = turn % 4 == 1 ? 3 : 1;
        test.batch = kAdapterSamples / test.step.micro_batches;
        test.clipped.emplace();
        test.clipped->pass = pass;
        test.clipped->rule = rule;
        test.clipped->tile = turn % 2 ? 5 : 256;
        if (pass == PassKind::per_layer) test.clipped->clip = ClipFunction::per_layer;
        ++turn;
        SCOPED_TRACE(test.name());
        TestRun run(test, {});
        const std::vector<Tensor> mine = run.executor->gradients();
        const ModelShape& shape = run.executor->shape();
        const privacy::ClipLayers layers =
            privacy::clip_layers(shape, test.clipped->clip == ClipFunction::per_layer);
        const double clip_norm = test.clipped->clip_norm / std::sqrt(layers.count);
        double largest = 1e-30;
        std::vector<Tensor> expected;
        for (size_t p = 0; p < shape.params.size(); ++p) {
          Tensor sum;
          for (size_t i = 0; i < static_cast<size_t>(kAdapterSamples); ++i) {
            double squared = 0;
            for (size_t q = 0; q < shape.params.size(); ++q)
              squared += layers.of_param[q] == layers.of_param[p] ? known.squared[q][i] : 0;
            const Tensor part =
                known.grads[i][p] * std::min(1.0, clip_norm / (std::sqrt(squared) + 1e-6));
            sum = sum.defined() ? sum + part : part;
          }
          largest = std::max(largest, sum.abs().max().item<double>());
          expected.push_back(sum);
        }
        for (size_t p = 0; p < mine.size(); ++p)
          EXPECT_LE(largest_difference(mine[p], expected[p]), 1e-10 * largest)
              << shape.params[p].name;
        if (test.step.micro_batches > 1) continue;
        const Tensor squared = run.executor->squared_norms();
        for (int64_t p = 0; p < squared.size(0); ++p) {
          for (int64_t i = 0; i < kAdapterSamples; ++i) {
            const double one = known.squared[static_cast<size_t>(p)][static_cast<size_t>(i)];
            EXPECT_NEAR(squared[p][i].item<double>(), one, 1e-10 * std::max(1e-3, one))
                << shape.params[static_cast<size_t>(p)].name << " " << i;
          }
        }
      }
    }
  }
}

TEST(AdapterStep, NoisyStepsAreTheSameInEveryPlanAndStrategyAndTheBaseKeepsItsBits) {
  for (const AdaptedModel& of : adapted_models()) {
    std::vector<Tensor> first;
    for (const PassKind pass : {PassKind::keep, PassKind::book, PassKind::two_pass}) {
      for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
        TestCase test = adapted_case(of);
        test.step.strategy = strategy;
        test.clipped.emplace();
        test.clipped->pass = pass;
        test.clipped->noise_multiplier = 1;
        SCOPED_TRACE(test.name());
        TestRun run(test, {});
        const std::vector<Tensor> before = run.parameters();
        run.steps(2);
        const std::vector<Tensor> after = run.parameters();
        if (first.empty()) first = after;
        for (size_t p = 0; p < after.size(); ++p) {
          const ParamShape& param = run.model.params[p];
          EXPECT_LE(largest_difference(after[p], first[p]), 1e-10) << param.name;
          EXPECT_EQ(largest_difference(after[p], before[p]) == 0, param.frozen) << param.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace veil
