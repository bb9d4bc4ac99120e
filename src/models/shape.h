// A model as numbers: what the planner needs and no tensor. And the model itself: its blocks in
// order, then the loss.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/lora.h"
#include "nn/block.h"

namespace veil {

// How a parameter starts. Values come from a counter-based generator indexed by element, so that
// every rank fills its own shard alike.
struct Init {
  enum class Kind { uniform, normal, constant } kind = Kind::uniform;
  double scale = 0;  // half-width, standard deviation, or the value
};

struct ParamShape {
  std::string name;  // as in the checkpoint
  std::vector<int64_t> dims;
  Init init;
  // lies directly behind the parameter before it, so that their rows make one matrix (q, k and v;
  // gate and up)
  bool joined = false;
  bool frozen = false;  // read, but it has no gradient, no norms, no noise and no update
  bool in_out = false;  // a projection's weight stored [in, out]
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
};

// One sample's inputs or targets.
struct DataShape {
  std::vector<int64_t> dims;
  std::optional<DType> dtype;  // none: the compute type
  int64_t classes = 0;         // whole numbers are in [0, classes)
  int64_t elements() const;
  int64_t bytes(DType compute) const;
};

struct ModelShape {
  std::string name;
  std::vector<ParamShape> params;  // by ParamId
  std::vector<BlockShape> blocks;
  BlockShape loss;
  int64_t batch = 0;  // samples in a micro-batch
  DataShape input, target;
  std::optional<DataShape> condition;
  int64_t param_count() const;
  int64_t trained_count() const;
  int64_t forward_flops() const;  // as run
  int64_t model_flops() const;    // without what is made twice: the convention of MFU
};

class Model {
 public:
  std::string name;
  std::vector<ParamShape> params;
  std::vector<std::unique_ptr<Block>> blocks;
  std::unique_ptr<Loss> loss;
  DataShape input, target;
  std::optional<DataShape> condition;    // Batch::conditions
  std::optional<LoraSettings> lora;      // of the adapters that its projections have
  std::vector<std::string> projections;  // by name: those that can have adapters
  // Frozen parameters are reported by nobody.
  ModelShape shape(int64_t batch, DType compute, bool on_gpu) const;
};

// Freezes the parameters whose names match one of `patterns` (as in a shell: *, ?, [...]), or with
// `others` all that match none. UserError for a pattern that matches nothing, if nothing is left
// to train, and if parameters of one product (q, k and v; gate and up) would part.
// `field` is what errors call the patterns; "": `freeze` or `train_only`.
void freeze(Model& model, const std::vector<std::string>& patterns, bool others,
            const std::string& field = "");
// Tells the model's blocks which parameters are frozen; freeze() does so itself.
void settle_trained(Model& model);
std::vector<std::string> frozen_names(const Model& model);

}  // namespace veil
