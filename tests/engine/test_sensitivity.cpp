#include "engine/test_sensitivity.h"

#include <algorithm>
#include <cmath>

namespace veil {

using privacy::NormRule;
using privacy::PassKind;

std::vector<TestCase> sensitivity_cases(int world) {
  std::vector<TestCase> cases;
  const std::vector<std::string> models = {
      "", "llama-tiny", "qwen2-tiny-tied", "gpt2-tiny", "dit-tiny", "gemma3-tiny", "olmo2-tiny"};
  for (const DType dtype : {at::kFloat, at::kBFloat16}) {
    for (const PassKind pass : {PassKind::keep, PassKind::book, PassKind::two_pass}) {
      for (const NormRule rule : {NormRule::materialize, NormRule::ghost, NormRule::flash}) {
        const size_t turn = cases.size();
        TestCase test;
        test.model = models[turn % models.size()];
        test.step = TestCase::all_of(at::kFloat);
        test.step.compute = dtype;
        test.step.strategy = static_cast<Strategy>(turn % 3);
        test.step.world = world;
        test.step.varying = true;
        test.step.min_params = 3000;
        test.batch = world == 4 ? 2 : 6 / world / (turn % 2 ? 1 : world == 1 ? 3 : 1);
        test.seed = 100 + turn;
        test.clipped.emplace();
        test.clipped->pass = pass;
        test.clipped->rule = rule;
        test.clipped->tile = turn % 2 ? 5 : 256;
        test.clipped->clip_norm = 0.3;
        if (pass == PassKind::keep) test.clipped->combine_every = turn % 2 ? 1 : 2;
        cases.push_back(test);
      }
    }
  }
  return cases;
}

double stated_slack(DType compute) {
  return compute == at::kBFloat16 ? 0x1p-7 : 1e-5;
}

double distance(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double squares = 0;
  for (size_t p = 0; p < a.size(); ++p) {
    const Tensor difference = a[p].to(at::kDouble).sub(b[p].to(at::kDouble)).view({-1});
    squares += difference.dot(difference).item<double>();
  }
  return std::sqrt(squares);
}

SensitivityFound one_sample_less(const TestCase& test, Ranks ranks) {
  const int rank = ranks.rank(), world = test.step.world;
  const int64_t share = (6 + world - 1) / world,
                rows = (share + test.batch - 1) / test.batch * test.batch;
  TestRun run(test, std::move(ranks));
  // Of `left_out`, counted over all ranks; -1: none.
  auto samples = [&](int64_t left_out) {
    Batch batch = run.samples(rows, rank * share);
    batch.counted = empty_tensor({rows}, at::kByte, cpu_device()).fill_(0);
    for (int64_t i = 0; i < rows; ++i)
      batch.counted.data_ptr<uint8_t>()[i] =
          i < share && rank * share + i < 6 && rank * share + i != left_out;
    return batch;
  };
  run.executor->load(samples(-1));
  const std::vector<Tensor> whole = run.executor->gradients();
  SensitivityFound found;
  found.exchanged = run.executor->schedule().exchanges();
  for (const int64_t left_out : {0, 2, 5}) {
    run.executor->load(samples(left_out));
    found.moved = std::max(found.moved, distance(whole, run.executor->gradients()));
  }
  return found;
}

}  // namespace veil
