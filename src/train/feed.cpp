#include "train/feed.h"

namespace veil {

Tensor counted_rows(const std::vector<int64_t>& samples) {
  Tensor counted = empty_tensor({static_cast<int64_t>(samples.size())}, at::kByte, cpu_device());
  for (size_t i = 0; i < samples.size(); ++i) counted.data_ptr<uint8_t>()[i] = samples[i] != data::kNoSample;
  return counted;
}

}  // namespace veil
