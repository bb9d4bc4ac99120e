#include "data/image_batches.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace veil::data {

ImageBatch make_image_batch(const ImageSource& source, const std::vector<int64_t>& chosen,
                            int64_t size, int64_t channels) {
  VEIL_CHECK(channels == 1 || channels == 3, "images of {} channels", channels);
  const auto plane = static_cast<size_t>(size * size),
             sample = plane * static_cast<size_t>(channels);
  ImageBatch batch;
  batch.samples = chosen;
  batch.pixels.resize(chosen.size() * sample);
  std::vector<float> colors(channels == 1 ? 3 * plane : 0);
  for (size_t i = 0; i < chosen.size(); ++i) {
    batch.labels.push_back(chosen[i] == kNoSample ? 0 : source.label(chosen[i]));
    if (chosen[i] == kNoSample) continue;
    float* const out = batch.pixels.data() + i * sample;
    source.read(chosen[i], size, channels == 1 ? colors.data() : out);
    for (size_t p = 0; p < (channels == 1 ? plane : 0); ++p)
      out[p] = (colors[p] + colors[plane + p] + colors[2 * plane + p]) / 3;
  }
  return batch;
}

ImageBatches::ImageBatches(std::shared_ptr<const ImageSource> source, std::unique_ptr<Order> order,
                           int64_t size, int64_t channels, Position start, int ahead)
    : source_(std::move(source)),
      order_(std::move(order)),
      size_(size),
      channels_(channels),
      position_(start),
      begun_(start) {
  for (int i = 0; i < std::max(1, ahead); ++i) begin_one();
}

void ImageBatches::begin_one() {
  if (!begun_) return;
  ready_.push_back(
      std::async(std::launch::async, [source = source_, chosen = order_->samples(*begun_),
                                      at = *begun_, size = size_, channels = channels_] {
        const double begin_ms = steady_ms();
        ImageBatch batch = make_image_batch(*source, chosen, size, channels);
        batch.position = at;
        batch.busy_ms = steady_ms() - begin_ms;
        return batch;
      }));
  begun_ = order_->after(*begun_);
}

std::optional<ImageBatch> ImageBatches::next() {
  if (ready_.empty()) return {};
  const double begin_ms = steady_ms();
  ImageBatch batch = ready_.front().get();
  statistics_.waited_ms += steady_ms() - begin_ms;
  statistics_.busy_ms += batch.busy_ms;
  ++statistics_.batches;
  ready_.pop_front();
  position_ = order_->after(batch.position);
  begin_one();
  return batch;
}

}  // namespace veil::data
