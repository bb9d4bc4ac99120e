// Parameters that are not trained: read, and neither clipped, noised nor updated.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "engine/test_run.h"

namespace veil {
namespace {

using privacy::ClipFunction;
using privacy::PassKind;
using testing::HasSubstr;

TestCase half_frozen(const std::string& model, OptimizerKind optimizer = OptimizerKind::adamw) {
  TestCase test;
  test.model = model;
  test.optimizer.kind = optimizer;
  test.optimizer.weight_decay = 0.1;  // would move a parameter without a gradient
  test.step.optimizer = optimizer;
  test.frozen = {"*layers.0.*", "*h.0.*", "*embed*", "*wte*", "*blocks.0.*"};
  std::erase_if(test.frozen, [&](const std::string& pattern) {
    TestCase plain;
    plain.model = model;
    Model built = TestRun(plain, {}).model;
    try {
      freeze(built, {pattern}, false);
      return false;
    } catch (const UserError&) {
      return true;  // another family's name
    }
  });
  return test;
}

const std::vector<std::string> kModels = {"llama-tiny", "llama-tiny-tied", "qwen2-tiny",
                                          "gpt2-tiny", "dit-tiny"};

void expect_only_the_trained_move(const TestCase& test) {
  SCOPED_TRACE(test.name());
  TestRun run(test, {});
  const std::vector<Tensor> before = run.parameters();
  run.steps(3);
  const std::vector<Tensor> after = run.parameters();
  int frozen = 0;
  for (size_t p = 0; p < after.size(); ++p) {
    const ParamShape& param = run.model.params[p];
    frozen += param.frozen;
    EXPECT_EQ(at::equal(before[p], after[p]), param.frozen) << param.name;
    EXPECT_TRUE(after[p].isfinite().all().item<bool>()) << param.name;
  }
  EXPECT_GT(frozen, 0);
  EXPECT_LT(frozen, static_cast<int>(after.size()));
}

TEST(Freeze, FrozenParametersKeepTheirBitsAndTheOthersMove) {
  for (const std::string& model : kModels) {
    for (const OptimizerKind optimizer :
         {OptimizerKind::adamw, OptimizerKind::sgd_momentum, OptimizerKind::sgd}) {
      for (const Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
        TestCase test = half_frozen(model, optimizer);
        test.step.strategy = strategy;
        test.max_grad_norm = strategy == Strategy::zero2 ? 0.5 : 0;
        expect_only_the_trained_move(test);
      }
    }
  }
}

TEST(Freeze, NoNoiseReachesFrozenParametersInAnyPlan) {
  for (const std::string& model : kModels) {
    for (const PassKind pass :
         {PassKind::keep, PassKind::book, PassKind::two_pass, PassKind::per_layer}) {
      for (const int micro_batches : {1, 2}) {
        TestCase test = half_frozen(model);
        test.step.micro_batches = micro_batches;
        test.step.checkpointing = micro_batches == 2 ? Checkpointing::full : Checkpointing::none;
        test.clipped.emplace();
        test.clipped->pass = pass;
        test.clipped->clip =
            pass == PassKind::per_layer ? ClipFunction::per_layer : ClipFunction::abadi;
        test.clipped->noise_multiplier = 1;
        expect_only_the_trained_move(test);
      }
    }
  }
}

// A frozen parameter costs what its numbers take in the compute type, and no row works on it but
// forward, backward and, under zero3, its gathers.
TEST(Freeze, FrozenUnitsHaveNoRowsAndNoBuffersOfTheirOwn) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    for (const bool clipped : {false, true}) {
      TestCase test = half_frozen("llama-tiny");
      test.step.strategy = strategy;
      test.step.world = 3;
      test.step.storage = test.step.reduce = at::kFloat;
      test.step.compute = at::kBFloat16;
      if (clipped) test.clipped.emplace();
      SCOPED_TRACE(test.name());
      TestRun run(test, simulated_ranks(test));
      const Schedule& schedule = run.executor->schedule();
      int64_t frozen_units = 0;
      for (size_t u = 0; u < schedule.layout.units.size(); ++u) {
        const UnitLayout& unit = schedule.layout.units[u];
        if (!unit.frozen) continue;
        ++frozen_units;
        auto is_of_unit = [&](const Buffer& buffer) {
          return buffer.index == static_cast<int>(u) && !made_by_blocks(buffer.role) &&
                 buffer.role != BufferRole::data && buffer.role != BufferRole::input &&
                 buffer.role != BufferRole::knobs && buffer.role != BufferRole::norms;
        };
        for (const Buffer& buffer : schedule.resident) {
          if (!is_of_unit(buffer)) continue;
          EXPECT_EQ(buffer.role, BufferRole::params);
          const int64_t numel = strategy == Strategy::zero3 ? unit.shard_numel : unit.padded_numel;
          EXPECT_EQ(buffer.bytes, numel * dtype_bytes(at::kBFloat16));
        }
        for (const auto& part : schedule.parts) {
          for (const Op& op : part) {
            if (op.unit == static_cast<int>(u)) {
              EXPECT_EQ(strategy, Strategy::zero3);
              EXPECT_TRUE(op.kind == OpKind::gather || op.kind == OpKind::release);
            }
            for (const Buffer& buffer : op.creates) {
              if (is_of_unit(buffer)) {
                EXPECT_EQ(buffer.role, BufferRole::whole);
              }
            }
          }
        }
      }
      EXPECT_GT(frozen_units, 0);
      // embedding and first layer are frozen: nothing flows back into them
      EXPECT_EQ(schedule.lowest_trained, 2);
      for (const Op& op : schedule.part(Part::body)) {
        if (op.kind == OpKind::backward) {
          EXPECT_GE(op.block, 2);
        }
      }
    }
  }
}

// Trained parameters have the gradients that they have when nothing is frozen.
TEST(Freeze, GradientsOfTheOthersAreAsBefore) {
  for (const std::string& model : kModels) {
    SCOPED_TRACE(model);
    TestCase test = half_frozen(model), free = test;
    free.frozen.clear();
    TestRun some(test, {}), all(free, {});
    const std::vector<Tensor> mine = some.executor->gradients(), whole = all.executor->gradients();
    for (size_t p = 0; p < mine.size(); ++p) {
      if (some.model.params[p].frozen) {
        EXPECT_EQ(mine[p].abs().max().item<double>(), 0);
      } else {
        EXPECT_LE(largest_difference(mine[p], whole[p]), 1e-12) << some.model.params[p].name;
      }
    }
  }
}

// A sample is measured by what is trained alone, so its clipped gradient uses all of C.
TEST(Freeze, NormsAreOfTheTrainedParametersAlone) {
  for (const std::string& model : kModels) {
    std::vector<Tensor> squared;
    for (const PassKind pass : {PassKind::keep, PassKind::book, PassKind::two_pass}) {
      TestCase test = half_frozen(model), free = test;
      test.clipped.emplace();
      test.clipped->pass = pass;
      free.clipped = test.clipped;
      free.frozen.clear();
      SCOPED_TRACE(test.name());
      TestRun some(test, {}), all(free, {});
      some.executor->gradients();
      all.executor->gradients();
      const Tensor mine = some.executor->squared_norms(), whole = all.executor->squared_norms();
      for (size_t p = 0; p < some.model.params.size(); ++p) {
        const auto row = static_cast<int64_t>(p);
        const Tensor expected = some.model.params[p].frozen ? whole[row] * 0 : whole[row];
        EXPECT_LE(largest_difference(mine[row], expected), 1e-12) << some.model.params[p].name;
      }
    }
  }
}

std::string refusal(const std::vector<std::string>& patterns, bool others) {
  TestCase test;
  test.model = "llama-tiny";
  Model model = TestRun(test, {}).model;
  try {
    freeze(model, patterns, others);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Freeze, WrongPatternsAreNamed) {
  EXPECT_EQ(refusal({"model.norm.weight"}, false), "");
  EXPECT_EQ(refusal({"lm_head.*"}, true), "");
  EXPECT_THAT(refusal({"model.norm.weigth"}, false), HasSubstr("did you mean model.norm.weight?"));
  EXPECT_THAT(refusal({"nothing*"}, true), HasSubstr("no parameter"));
  EXPECT_THAT(refusal({"*"}, false), HasSubstr("nothing is left to train"));
  EXPECT_THAT(refusal({"*q_proj.weight"}, false), HasSubstr("one product"));
}

}  // namespace
}  // namespace veil
