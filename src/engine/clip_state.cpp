#include "engine/clip_state.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/error.h"
#include "kernels/coefficients.h"
#include "kernels/sample_norm.h"
#include "privacy/invariants.h"

namespace veil {
namespace {

std::vector<privacy::NormParam> norm_params(const Schedule& schedule, const ModelShape& shape) {
  const privacy::ClipMethod& method = *schedule.options.clip;
  VEIL_CHECK(method.pass == privacy::PassKind::keep || method.rules.size() == shape.params.size(),
             "{} clipping rules for {} parameters", method.rules.size(), shape.params.size());
  std::vector<privacy::NormParam> params;
  for (size_t i = 0; i < shape.params.size(); ++i) {
    const ParamShape& param = shape.params[i];
    params.push_back({param.dims[0], param.numel() / param.dims[0],
                      i < method.rules.size() ? method.rules[i] : privacy::NormRule::ghost});
  }
  return params;
}

std::vector<int64_t> sizes(const ModelShape& shape) {
  std::vector<int64_t> numel;
  for (const ParamShape& param : shape.params) numel.push_back(param.numel());
  return numel;
}

Tensor allocate(const Schedule& schedule, const ModelShape& shape, Device device) {
  CategoryScope scope(Category::norms);
  return empty_tensor({clip_state_layout(schedule, shape).doubles()}, at::kDouble, device).zero_();
}

Tensor layer_numbers(const Schedule& schedule, Device device) {
  CategoryScope scope(Category::norms);
  const auto& of_param = schedule.layers.of_param;
  Tensor numbers = empty_tensor({static_cast<int64_t>(of_param.size())}, at::kInt, device);
  Tensor host = empty_tensor({static_cast<int64_t>(of_param.size())}, at::kInt, cpu_device());
  std::copy(of_param.begin(), of_param.end(), host.data_ptr<int32_t>());
  numbers.copy_(host);
  return numbers;
}

Tensor all_count(int64_t batch, Device device) {
  CategoryScope scope(Category::norms);
  return empty_tensor({batch}, at::kByte, device).fill_(1);
}

// `numel` of the doubles from a place in a ClipScalars on.
Tensor scalars(const Tensor& doubles, const ClipStateLayout& layout, size_t offset, int64_t numel) {
  return doubles.narrow(0, layout.scalars() + static_cast<int64_t>(offset / sizeof(double)), numel);
}

}  // namespace

ClipState::ClipState(const Schedule& schedule, const ModelShape& shape,
                     const privacy::PrivateStep& step, Device device, Targets targets)
    : schedule_(schedule),
      shape_(shape),
      step_(step),
      layout_(clip_state_layout(schedule, shape)),
      doubles_(allocate(schedule, shape, device)),
      layers_(layer_numbers(schedule, device)),
      counted_(all_count(shape.batch, device)),
      squared_(doubles_.narrow(0, layout_.squared_norms(), layout_.params * layout_.samples)
                   .view({layout_.params, layout_.samples})),
      coefficients_(doubles_.narrow(0, layout_.coefficients(), layout_.layers * layout_.samples)
                        .view({layout_.layers, layout_.samples})),
      kept_coefficients_(layout_.together == 0
                             ? coefficients_
                             : doubles_.narrow(0, layout_.kept(), layout_.layers * layout_.together)
                                   .view({layout_.layers, layout_.together})),
      clip_norms_(doubles_.narrow(0, layout_.clip_norms(), layout_.layers)),
      tally_(scalars(doubles_, layout_, offsetof(ClipScalars, tally), kClipTally)),
      discarded_loss_(scalars(doubles_, layout_, offsetof(ClipScalars, discarded_loss), 1)),
      noise_knobs_(scalars(doubles_, layout_, offsetof(ClipScalars, noise), kNoiseKnobs)),
      normed_after_(shape.blocks.size() + 1),
      norms_(norm_params(schedule, shape), {schedule.options.clip->tile, schedule.tied_table},
             squared_),
      book_(norms_, shape.blocks.size() + 1),
      keep_(sizes(shape), schedule.booked_param, std::move(targets.kept), book_, squared_),
      clipped_(sizes(shape), schedule.accumulates_whole, std::move(targets.sums),
               coefficients_of()) {
  const bool by_layer = schedule.options.clip->layers;
  VEIL_CHECK(by_layer == (step.clip == privacy::ClipFunction::per_layer),
             "clip layers without a function that has them");
  if (static_cast<int>(step_.clip_norms.size()) != schedule.layers.count)
    user_error("{} clip norms: this model is clipped in {} layers", step_.clip_norms.size(),
               schedule.layers.count);
  set_clip_norms(step_.clip_norms);
  // A parameter's kept gradient is whole when the block that reports it last has run.
  std::vector<int> last(shape.params.size(), -1);
  for (size_t b = shape.blocks.size() + 1; b-- > 0;) {
    for (ParamId id : b == shape.blocks.size() ? shape.loss.params : shape.blocks[b].params)
      last[static_cast<size_t>(id)] = static_cast<int>(b);
  }
  for (size_t id = 0; id < last.size(); ++id) {
    const bool kept = id < schedule.kept_offset.size() && schedule.kept_offset[id] >= 0;
    if (last[id] >= 0 && kept)
      normed_after_[static_cast<size_t>(last[id])].push_back(static_cast<ParamId>(id));
  }
}

void ClipState::begin_body(const Tensor& ids, int place) {
  // Places that this step does not fill hold gradients of earlier samples.
  if (layout_.together > 0 && (place == 0 || schedule_.exchanges())) kept_coefficients_.zero_();
  squared_.zero_();
  norms_.begin_body(ids);
  keep_.begin_body();
  clipped_.begin_body();
}

GradSink& ClipState::sink(GradUse use, int block, const Tape* tape) {
  norms_.set_waits(use == GradUse::book);  // what is booked lives on
  switch (use) {
    case GradUse::keep:
      book_.set_block(block);
      return keep_;
    case GradUse::book:
      book_.set_block(block, schedule_.remakes_tape[static_cast<size_t>(block)] ? tape : nullptr);
      return book_;
    case GradUse::clip:
      return clipped_;
    default:
      return norms_;  // a block without parameters reports nothing
  }
}

void ClipState::norm_kept(int block, const std::function<Tensor(int unit)>& kept) {
  const Layout& layout = schedule_.layout;
  std::vector<std::vector<SampleSegment>> segments(layout.units.size());
  for (ParamId id : normed_after_[static_cast<size_t>(block)]) {
    if (keep_.normed(id)) continue;
    segments[static_cast<size_t>(layout.unit_of_param[id])].push_back(
        {schedule_.kept_offset[static_cast<size_t>(id)], shape_.params[id].numel(), id});
  }
  for (size_t u = 0; u < segments.size(); ++u) {
    if (!segments[u].empty()) add_segment_norms(kept(static_cast<int>(u)), segments[u], squared_);
  }
}

void ClipState::coefficients(int layer, int place) {
  CoefficientsOf of{squared_, layers_, clip_norms_, counted_};
  of.first_layer = layer < 0 ? 0 : layer;
  of.end_layer = layer < 0 ? schedule_.layers.count : layer + 1;
  of.function = step_.clip;
  of.last = layer <= 0;  // backward ends with the first layer
  clip_coefficients(of, coefficients_, tally_);
  if (layout_.together > 0)
    kept_coefficients_.narrow(1, place * layout_.samples, layout_.samples).copy_(coefficients_);
}

void ClipState::set_clip_norms(const std::vector<double>& clip_norms) {
  VEIL_CHECK(static_cast<int>(clip_norms.size()) == schedule_.layers.count,
             "{} clip norms for {} layers", clip_norms.size(), schedule_.layers.count);
  step_.clip_norms = clip_norms;
  Tensor host = empty_tensor({static_cast<int64_t>(clip_norms.size())}, at::kDouble, cpu_device());
  std::memcpy(host.data_ptr<double>(), clip_norms.data(), clip_norms.size() * sizeof(double));
  clip_norms_.copy_(host);
}

void ClipState::set_noise(int64_t step) {
  double squares = 0;
  for (double norm : step_.clip_norms) squares += norm * norm;
  const double multiplier = silent_ ? 0 : step_.noise_multiplier,
               deviation = multiplier == 0 ? 0 : multiplier * std::sqrt(squares);
  VEIL_CHECK(std::isfinite(deviation), "noise of deviation {}", deviation);
  const NoiseKnobs knobs{.step = static_cast<double>(step), .deviation = deviation};
  Tensor host = empty_tensor({kNoiseKnobs}, at::kDouble, cpu_device());
  std::memcpy(host.data_ptr<double>(), &knobs, sizeof knobs);
  noise_knobs_.copy_(host, /*non_blocking=*/true);
}

void ClipState::expect_clipped(int place) const {
  const Tensor kept = kept_coefficients_.cpu(), squared = squared_.cpu();
  std::vector<Tensor> all = {kept.narrow(1, place * layout_.samples, layout_.samples).contiguous()};
  // Sums of what was booked read others than those of kept gradients.
  if (layout_.together > 0) all.push_back(coefficients_.cpu());
  for (const Tensor& read : all) {
    privacy::expect_clipped({squared.data_ptr<double>(), read.data_ptr<double>(), layout_.params,
                             layout_.samples, schedule_.layers.of_param, step_.clip_norms});
  }
  if (schedule_.exchanges()) {
    // Each rank holds its own samples' against their norms.
    privacy::expect_weights({kept.data_ptr<double>(), kept.data_ptr<double>() + kept.numel()});
    return;
  }
  const Tensor rest = kept.slice(1, (place + 1) * layout_.samples).contiguous();
  privacy::expect_left_out({rest.data_ptr<double>(), rest.data_ptr<double>() + rest.numel()});
}

ClipTally ClipState::tally() const {
  ClipTally found;
  std::memcpy(&found, tally_.cpu().data_ptr<double>(), sizeof found);
  return found;
}

}  // namespace veil
