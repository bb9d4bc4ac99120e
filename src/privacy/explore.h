// The question before training: which batch, and how many epochs, a budget is best spent on.
//
// What noise does to a step is told by the noise-batch ratio sigma / B, the deviation of the noise
// on the mean of clipped gradients in units of C (McKenna et al. 2025, "Scaling Laws for
// Differentially Private Language Models"). At a fixed number of steps a larger batch lowers it in
// two regimes. While q is small, sigma hardly depends on it and the ratio falls as 1 / B: compute
// buys accuracy. Once sigma grows in proportion to q the ratio stays where it is, and more compute
// buys nothing; only more data or budget does. The sensible region lies between. How much the ratio
// falls when the batch is doubled and the steps stay (twice the compute) tells which one it is.
#pragma once

#include <vector>

#include "base/names.h"
#include "privacy/accountant.h"

namespace veil::privacy {

// With d = -d ln(ratio) / d ln(B) at fixed steps, from 0 to 1: larger_pays if d is above 3/4,
// saturated if it is below 1/4. Doubling the batch then divides the ratio by 2^d.
enum class BatchAdvice { larger_pays, sensible, saturated };
const NameTable<BatchAdvice>& names(BatchAdvice);
inline constexpr double kNearlyAll = 1.682, kHardlyAny = 1.189;  // 2^(3/4), 2^(1/4)

struct ExploredRun {
  double batch = 0, epochs = 0;  // expected batch B
  int64_t steps = 0;
  double sigma = 0;
  double noise_batch_ratio = 0;
  double gain = 0;  // the ratio over that of twice the batch (or of all data), at equal steps
  BatchAdvice advice = BatchAdvice::sensible;
};

struct ExploreRequest {
  int64_t data_size = 0;
  double epsilon = 0, delta = 0;
  std::vector<double> batches, epochs;  // empty: usual_batches, kUsualExploredEpochs
};
inline const std::vector<double> kUsualExploredEpochs = {1, 3, 10, 30};
// 64, 256, 1024, ... up to half of the data, at most six, the largest ones.
std::vector<double> usual_batches(int64_t data_size);

// Batch after batch, each with every number of epochs. Sigmas are upper bounds to a few hundredths:
// quick, and never too small. UserError if something is out of range.
std::vector<ExploredRun> explore(const ExploreRequest& request);

}  // namespace veil::privacy
