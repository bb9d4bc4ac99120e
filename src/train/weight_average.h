// The moving average of a run's parameters: what a diffusion model is sampled with.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "engine/executor.h"

namespace veil {

// Every rank keeps the average of its own part of the parameters, in fp32 (fp64 if they are).
class WeightAverage {
 public:
  // Starts at the parameters as they are.
  WeightAverage(Executor& executor, double decay);
  // average = decay average + (1 - decay) parameters. In the first steps the decay is less, (1 + n)
  // / (10 + n) after n updates, so that the start is forgotten.
  void update();
  // A parameter's average, whole, on CPU. Every rank must call it.
  Tensor parameter(ParamId id);
  // Its part from the model-wide index `first` on, into `out`. Where parameters are whole on every
  // rank, every rank must call it, with the same parts.
  void read(int64_t first, const Tensor& out);
  // What a checkpoint holds of it: this rank's parts by model-wide index, and how many updates were
  // made. Views of its own memory.
  struct Piece {
    int64_t first;
    Tensor average;
  };
  const std::vector<Piece>& pieces() const { return pieces_; }
  int64_t updates() const { return updates_; }
  void restore(int64_t updates, const std::function<void(int64_t first, const Tensor& out)>& read);

 private:
  int64_t place_of(ParamId id) const;  // model-wide index of its first element
  // Elements [begin, end) of the model-wide index; zeros if they are other ranks'.
  Tensor own_part(int64_t begin, int64_t end) const;
  Executor& executor_;
  double decay_;
  int64_t updates_ = 0;
  std::vector<Piece> pieces_;
};

// While it lives the executor's parameters are the average; then they are what they were, to the
// bit. Every rank makes one. They are kept on CPU meanwhile.
class AverageInPlace {
 public:
  AverageInPlace(Executor& executor, WeightAverage& average);
  ~AverageInPlace();
  AverageInPlace(const AverageInPlace&) = delete;
  AverageInPlace& operator=(const AverageInPlace&) = delete;

 private:
  Executor& executor_;
  std::map<int64_t, Tensor> params_;  // by model-wide index of the first element
};

}  // namespace veil
