#include "train/executor.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "models/linear_stack.h"
#include "plan/estimator.h"
#include "train/test_run.h"

namespace veil {
namespace {

class ExecutorTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { ledger::install(); }
};

TEST_F(ExecutorTest, TheLossFalls) {
  TestCase test;
  test.optimizer.kind = OptimizerKind::adamw;
  TestRun run(test, {});
  run.executor->step(1e-2);
  const double first = run.executor->loss_sum();
  for (int i = 0; i < 100; ++i) run.executor->step(1e-2);
  EXPECT_LT(run.executor->loss_sum(), 0.85 * first);
}

TEST_F(ExecutorTest, ReductionIsExactlyTheMeanOverTheLogicalBatch) {
  // One batch of 8 equals 4 micro-batches of 2.
  TestCase whole, parts;
  whole.batch = 8;
  parts.batch = 2;
  parts.step.micro_batches = 4;
  TestRun a(whole, {}), b(parts, {});
  a.steps(5);
  b.steps(5);
  for (size_t p = 0; p < a.executor->shape().params.size(); ++p) {
    const auto id = static_cast<ParamId>(p);
    EXPECT_LT(largest_difference(a.executor->parameter(id), b.executor->parameter(id)), 1e-10);
  }
}

// Estimator against ledger over the settings of one process; simulated worlds bring the collectives' buffers in.
TEST_F(ExecutorTest, TheEstimatorsBytesAreTheLedgersAtEveryRowForTheWholeGrid) {
  int cases = 0;
  for (const TestCase& test : memory_grid()) {
    const CategoryBytes before = ledger::current(Space::host);
    {
      TestRun run(test, simulated_ranks(test));
      run.executor->step(0.01);
      run.executor->step(0.01);
      const MemoryEstimate estimate = estimate_memory(run.executor->schedule());
      const std::vector<ObservedRow>& rows = run.executor->memory_rows();
      std::vector<MemoryRow> expected;
      for (const MemoryRow& row : estimate.rows) {
        if (row.part != Part::body) expected.push_back(row);
      }
      const auto tail =
          std::find_if(expected.begin(), expected.end(), [](const MemoryRow& row) { return row.part == Part::tail; });
      std::vector<MemoryRow> body;
      for (int m = 0; m < test.step.micro_batches; ++m) {
        for (const MemoryRow& row : estimate.rows) {
          if (row.part == Part::body) body.push_back(row);
        }
      }
      expected.insert(tail, body.begin(), body.end());
      ASSERT_EQ(rows.size(), expected.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        for (int c = 0; c < kCategories; ++c) {
          const auto category = static_cast<Category>(c);
          const ledger::RowBytes& seen = rows[i].bytes[static_cast<int>(Space::host)];
          ASSERT_EQ(seen.after[category] - before[category], expected[i].after[0][category])
              << test.name() << "\n"
              << name_of(rows[i].part) << " row " << rows[i].op << " " << category_name(category) << " after\n"
              << print_schedule(run.executor->schedule(), run.executor->shape(), true);
        }
        ASSERT_EQ(rows[i].bytes[static_cast<int>(Space::host)].peak.total() - before.total(),
                  expected[i].peak[0].total())
            << test.name() << "\n"
            << name_of(rows[i].part) << " row " << rows[i].op << " peak\n"
            << print_schedule(run.executor->schedule(), run.executor->shape(), true);
      }
      ++cases;
    }
    ASSERT_EQ(ledger::current(Space::host), before) << test.name();  // every buffer returns
  }
  EXPECT_GT(cases, 500);
}

}  // namespace
}  // namespace veil
