// The units' tensors: made and freed as the schedule's rows say, and seen as parameters and
// gradients.
#pragma once

#include <vector>

#include "engine/context.h"
#include "nn/block.h"

namespace veil {

// A unit's buffers; undefined tensors if the schedule has not created them.
struct UnitTensors {
  Tensor params, optimizer;  // resident
  Tensor whole, grad, wire, grad_shard, reduced, sample_grads, received, staged_params,
      staged_optimizer;
};

// Parameters as views of whatever holds them at the moment.
class UnitParams final : public Params {
 public:
  UnitParams(const ModelShape& shape, const Layout& layout);
  // The flat buffer of a unit has come (or, undefined, gone).
  void bind(int unit, const Tensor& flat);
  const Tensor& operator[](ParamId id) const override;
  Tensor joined(ParamId first, int count) const override;

 private:
  const ModelShape& shape_;
  const Layout& layout_;
  std::vector<Tensor> views_;
  std::vector<Tensor> flat_;  // by unit
};

class UnitBuffers {
 public:
  explicit UnitBuffers(const ExecutorContext& context);
  // Parameters, optimizer state, and kept gradients if several micro-batches' lie together; zeros.
  void allocate_resident();

  int count() const { return static_cast<int>(units_.size()); }
  UnitTensors& operator[](int unit) { return units_[static_cast<size_t>(unit)]; }
  const UnitTensors& operator[](int unit) const { return units_[static_cast<size_t>(unit)]; }
  const Params& params() const { return params_; }

  // Of units only: blocks make the others (made_by_blocks).
  Tensor& slot(const Buffer& buffer);
  void create(const Buffer& buffer);
  void free(const Buffer& buffer);
  // Whatever a step's rows have created.
  void drop_created();

  // The stored parameters into this rank's place of the gathered buffer, in the compute type.
  void cast_own_shard(int unit);
  // Where `count` elements of a parameter's gradient from `first` on are summed.
  Tensor gradient_target(ParamId id, int64_t first, int64_t count);
  // The running micro-batch's place among those whose kept gradients are summed at once.
  void set_place(int place) { place_ = place; }
  int place() const { return place_; }
  // Every sample's gradient of a unit in this micro-batch: [batch, kept_numel].
  Tensor kept(int unit) const;
  // Of a parameter likewise: [batch, count].
  Tensor kept_target(ParamId id, int64_t first, int64_t count);
  // Of all samples that are summed at once: [combine_every batch, count].
  Tensor kept_together(ParamId id) const;
  // Every rank's samples' gradients of this rank's shard: [world batch, shard_numel].
  Tensor received(int unit) const;
  // What the update of a unit reads: the sum over samples and ranks.
  const Tensor& update_gradient(int unit) const;

 private:
  DType dtype_of(BufferRole role, int unit) const;
  Tensor all_kept(int unit) const;  // [combine_every batch, kept_numel]

  const ExecutorContext& context_;
  std::vector<UnitTensors> units_;
  UnitParams params_;
  int place_ = 0;
};

}  // namespace veil
