#include "models/whole_params.h"

#include "base/error.h"
#include "models/initial_values.h"

namespace veil {

WholeParams::WholeParams(const std::vector<ParamShape>& params, DType dtype, Device device,
                         const std::function<bool(ParamId, int64_t first, const Tensor& out)>& fill,
                         std::optional<uint64_t> seed) {
  constexpr int64_t kAlign = 8;  // elements: 16 bytes even in bf16
  int64_t end = 0;
  for (const ParamShape& param : params) {
    if (!param.joined) end = (end + kAlign - 1) / kAlign * kAlign;
    offsets_.push_back(end);
    end += param.numel();
  }
  flat_ = empty_tensor({end}, dtype, device);
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor place = flat_.narrow(0, offsets_[i], params[i].numel());
    if (!fill || !fill(static_cast<ParamId>(i), 0, place)) {
      VEIL_CHECK(seed, "{} has no value", params[i].name);
      fill_by_rule(params[i].init, place, *seed, offsets_[i]);
    }
    views_.push_back(place.view(params[i].dims));
  }
}

Tensor WholeParams::joined(ParamId first, int count) const {
  const Tensor& one = views_[static_cast<size_t>(first)];
  int64_t numel = 0;
  for (int i = 0; i < count; ++i) numel += views_[static_cast<size_t>(first + i)].numel();
  const Tensor rows = flat_.narrow(0, offsets_[static_cast<size_t>(first)], numel);
  return one.dim() == 1 ? rows : rows.view({-1, one.numel() / one.size(0)});
}

}  // namespace veil
