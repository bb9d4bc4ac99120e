#include "train/clip_state.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/coefficients.h"
#include "kernels/sample_norm.h"

namespace veil {
namespace {

std::vector<privacy::NormParam> norm_params(const Schedule& schedule, const ModelShape& shape) {
  const privacy::ClipPlan& plan = *schedule.options.clip;
  VEIL_CHECK(plan.pass == privacy::PassPlan::keep || plan.rules.size() == shape.params.size(),
             "{} clipping rules for {} parameters", plan.rules.size(), shape.params.size());
  std::vector<privacy::NormParam> params;
  for (size_t i = 0; i < shape.params.size(); ++i) {
    const ParamShape& param = shape.params[i];
    params.push_back({param.dims[0], param.numel() / param.dims[0],
                      i < plan.rules.size() ? plan.rules[i] : privacy::NormRule::ghost});
  }
  return params;
}

std::vector<int64_t> sizes(const ModelShape& shape) {
  std::vector<int64_t> numel;
  for (const ParamShape& param : shape.params) numel.push_back(param.numel());
  return numel;
}

constexpr int64_t kScalars = kClipFacts + 1 + 2;

Tensor allocate(const Schedule& schedule, const ModelShape& shape, Device device) {
  CategoryScope scope(Category::norms);
  const int64_t params = static_cast<int64_t>(shape.params.size()), layers = schedule.layers.count;
  return empty_tensor({params * shape.batch + layers * shape.batch + layers + kScalars}, at::kDouble, device).zero_();
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

// Views of one block of doubles, in order.
Tensor view_of(const Tensor& doubles, const Schedule& schedule, const ModelShape& shape, int which) {
  const int64_t params = static_cast<int64_t>(shape.params.size()), layers = schedule.layers.count;
  const int64_t counts[] = {params * shape.batch, layers * shape.batch, layers, kClipFacts, 1, 2};
  int64_t first = 0;
  for (int i = 0; i < which; ++i) first += counts[i];
  const Tensor flat = doubles.narrow(0, first, counts[which]);
  return which == 0 ? flat.view({params, shape.batch}) : which == 1 ? flat.view({layers, shape.batch}) : flat;
}

}  // namespace

Executor::ClipState::ClipState(const Schedule& schedule, const ModelShape& shape, const privacy::PrivateStep& step,
                               Device device, Targets targets)
    : schedule_(schedule),
      shape_(shape),
      step_(step),
      doubles_(allocate(schedule, shape, device)),
      layers_(layer_numbers(schedule, device)),
      counted_(all_count(shape.batch, device)),
      squared_(view_of(doubles_, schedule, shape, 0)),
      coefficients_(view_of(doubles_, schedule, shape, 1)),
      clip_norms_(view_of(doubles_, schedule, shape, 2)),
      facts_(view_of(doubles_, schedule, shape, 3)),
      discarded_loss_(view_of(doubles_, schedule, shape, 4)),
      noise_knobs_(view_of(doubles_, schedule, shape, 5)),
      normed_after_(shape.blocks.size() + 1),
      norms_(norm_params(schedule, shape), {schedule.options.clip->tile, schedule.tied_table}, squared_),
      book_(norms_, shape.blocks.size() + 1),
      keep_(sizes(shape), schedule.booked_param, std::move(targets.kept), book_),
      clipped_(sizes(shape), schedule.accumulates_whole, std::move(targets.sums), coefficients_of()) {
  const bool by_layer = schedule.options.clip->layers;
  VEIL_CHECK(by_layer == (step.clip == privacy::ClipFunction::per_layer),
             "clip layers without a function that has them");
  if (static_cast<int>(step_.clip_norms.size()) != schedule.layers.count)
    user_error("{} clip norms: this model is clipped in {} layers", step_.clip_norms.size(), schedule.layers.count);
  set_clip_norms(step_.clip_norms);
  // A parameter's kept gradient is whole when the block that reports it last has run.
  std::vector<int> last(shape.params.size(), -1);
  for (size_t b = shape.blocks.size() + 1; b-- > 0;) {
    for (ParamId id : b == shape.blocks.size() ? shape.loss.params : shape.blocks[b].params)
      last[static_cast<size_t>(id)] = static_cast<int>(b);
  }
  for (size_t id = 0; id < last.size(); ++id) {
    const bool kept = id < schedule.kept_offset.size() && schedule.kept_offset[id] >= 0;
    if (last[id] >= 0 && kept) normed_after_[static_cast<size_t>(last[id])].push_back(static_cast<ParamId>(id));
  }
}

void Executor::ClipState::begin_body(const Tensor& ids) {
  squared_.zero_();
  norms_.begin_body(ids);
  keep_.begin_body();
  clipped_.begin_body();
}

GradSink& Executor::ClipState::sink(GradUse use, int block, const Tape* tape) {
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

void Executor::ClipState::norm_kept(int block, const std::function<Tensor(int unit)>& kept) {
  const Layout& layout = schedule_.layout;
  std::vector<std::vector<SampleSegment>> segments(layout.units.size());
  for (ParamId id : normed_after_[static_cast<size_t>(block)]) {
    segments[static_cast<size_t>(layout.unit_of_param[id])].push_back(
        {schedule_.kept_offset[static_cast<size_t>(id)], shape_.params[id].numel(), id});
  }
  for (size_t u = 0; u < segments.size(); ++u) {
    if (!segments[u].empty()) add_segment_norms(kept(static_cast<int>(u)), segments[u], squared_);
  }
}

void Executor::ClipState::coefficients(int layer) {
  CoefficientsOf of{squared_, layers_, clip_norms_, counted_};
  of.first_layer = layer < 0 ? 0 : layer;
  of.end_layer = layer < 0 ? schedule_.layers.count : layer + 1;
  of.automatic = step_.clip == privacy::ClipFunction::automatic;
  of.last = layer <= 0;  // backward ends with the first layer
  clip_coefficients(of, coefficients_, facts_);
}

void Executor::ClipState::set_clip_norms(const std::vector<double>& clip_norms) {
  VEIL_CHECK(static_cast<int>(clip_norms.size()) == schedule_.layers.count, "{} clip norms for {} layers",
             clip_norms.size(), schedule_.layers.count);
  step_.clip_norms = clip_norms;
  Tensor host = empty_tensor({static_cast<int64_t>(clip_norms.size())}, at::kDouble, cpu_device());
  std::memcpy(host.data_ptr<double>(), clip_norms.data(), clip_norms.size() * sizeof(double));
  clip_norms_.copy_(host);
}

void Executor::ClipState::set_noise(int64_t step) {
  double squares = 0;
  for (double norm : step_.clip_norms) squares += norm * norm;
  const double deviation = step_.noise_multiplier == 0 ? 0 : step_.noise_multiplier * std::sqrt(squares);
  VEIL_CHECK(std::isfinite(deviation), "noise of deviation {}", deviation);
  Tensor host = empty_tensor({2}, at::kDouble, cpu_device());
  host.data_ptr<double>()[0] = static_cast<double>(step);
  host.data_ptr<double>()[1] = deviation;
  noise_knobs_.copy_(host, /*non_blocking=*/true);
}

Executor::ClipFacts Executor::ClipState::facts() const {
  const Tensor host = facts_.cpu();
  const double* values = host.data_ptr<double>();
  return {static_cast<int64_t>(values[kFactSamples]), static_cast<int64_t>(values[kFactBadSamples]),
          values[kFactClipCount]};
}

}  // namespace veil
