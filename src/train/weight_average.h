// The moving average of a run's parameters: what a diffusion model is sampled with.
#pragma once

#include <string>
#include <vector>

#include "train/executor.h"

namespace veil {

// Every rank keeps the average of its own part of the parameters, in fp32 (fp64 where they are).
class WeightAverage {
 public:
  // Starts at the parameters as they are.
  WeightAverage(Executor& executor, double decay);
  // average = decay average + (1 - decay) parameters. In the first steps the decay is less, (1 + n) / (10 + n) after n updates, so that the start is forgotten.
  void update();
  // A parameter's average, whole, on CPU. Every rank must call it.
  Tensor parameter(ParamId id);
  // The averages under the parameters' names, with the number of updates; rank 0 writes, every rank must call it.
  void save(const std::string& path);
  // Takes up what was saved, by any world. UserError where the file is of another model.
  void load(const std::string& path);

 private:
  struct Piece {
    int64_t first;  // model-wide index
    Tensor average;
  };
  int64_t place_of(ParamId id) const;  // model-wide index of its first element
  Executor& executor_;
  double decay_;
  int64_t updates_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace veil
