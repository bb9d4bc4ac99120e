#include "train/feed.h"

#include <algorithm>

#include "data/image_batches.h"

namespace veil {

Tensor counted_rows(const std::vector<int64_t>& samples) {
  Tensor counted = empty_tensor({static_cast<int64_t>(samples.size())}, at::kByte, cpu_device());
  for (size_t i = 0; i < samples.size(); ++i)
    counted.data_ptr<uint8_t>()[i] = samples[i] != data::kNoSample;
  return counted;
}

namespace {

Tensor whole_numbers(const std::vector<int64_t>& values, c10::IntArrayRef dims) {
  Tensor tensor = empty_tensor(dims, at::kLong, cpu_device());
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}

class TextStream final : public FeedStream {
 public:
  TextStream(std::shared_ptr<const data::Samples> samples, std::unique_ptr<data::Order> order,
             data::Position start)
      : batches_(std::move(samples), std::move(order), start) {}

  std::optional<FedBatch> next(int64_t) override {
    std::optional<data::Batch> made = batches_.next();
    if (!made) return {};
    FedBatch fed{made->position, batch_tensors(*made), std::move(made->samples), {}};
    const int64_t targets =
        made->rows ? static_cast<int64_t>(made->targets.size()) / made->rows : 0;
    for (int64_t row = 0; row < made->rows; ++row) {
      const auto first = made->targets.begin() + row * targets;
      fed.weights.push_back(targets - std::count(first, first + targets, data::kIgnoredTarget));
    }
    return fed;
  }
  std::optional<data::Position> position() const override { return batches_.position(); }
  data::LoaderStatistics statistics() const override { return batches_.statistics(); }

 private:
  data::Batches batches_;
};

class TokenFeed final : public Feed {
 public:
  explicit TokenFeed(std::shared_ptr<const data::Samples> samples) : samples_(std::move(samples)) {}
  int64_t count() const override { return samples_->count(); }
  int64_t tokens() const override { return samples_->length(); }
  std::unique_ptr<FeedStream> open(std::unique_ptr<data::Order> order, data::Position start,
                                   uint64_t) const override {
    return std::make_unique<TextStream>(samples_, std::move(order), start);
  }

 private:
  std::shared_ptr<const data::Samples> samples_;
};

}  // namespace

Batch batch_tensors(const data::Batch& batch) {
  const std::vector<int64_t> dims =
      batch.labelled ? std::vector{batch.rows} : std::vector{batch.rows, batch.length};
  return {whole_numbers(batch.inputs, {batch.rows, batch.length}),
          whole_numbers(batch.targets, dims)};
}

std::shared_ptr<const Feed> make_text_feed(std::shared_ptr<const data::Samples> samples) {
  return samples ? std::make_shared<TokenFeed>(std::move(samples)) : nullptr;
}

namespace {

class ImageStream final : public FeedStream {
 public:
  ImageStream(std::shared_ptr<const data::ImageSource> images, const DitConfig& config,
              const NoiseSchedule& schedule, const ImageFeedOptions& options,
              std::unique_ptr<data::Order> order, data::Position start, uint64_t seed)
      : config_(config),
        schedule_(schedule),
        options_(options),
        seed_(seed),
        sample_count_(images->count()),
        batches_(images, std::move(order), config.image_size, config.channels, start,
                 options.threads) {}

  std::optional<FedBatch> next(int64_t step) override {
    std::optional<data::ImageBatch> made = batches_.next();
    if (!made) return {};
    return FedBatch{
        made->position,
        noised_batch(config_, schedule_, made->pixels, made->samples, made->labels, sample_count_,
                     step, {seed_, options_.label_drop}, options_.compute, options_.device),
        std::move(made->samples),
        {}};
  }
  std::optional<data::Position> position() const override { return batches_.position(); }
  data::LoaderStatistics statistics() const override { return batches_.statistics(); }

 private:
  const DitConfig& config_;
  const NoiseSchedule& schedule_;
  ImageFeedOptions options_;
  uint64_t seed_;
  int64_t sample_count_;
  data::ImageBatches batches_;
};

class ImageFeed final : public Feed {
 public:
  ImageFeed(std::shared_ptr<const data::ImageSource> images, const DitConfig& config,
            const ImageFeedOptions& options)
      : images_(std::move(images)),
        config_(config),
        schedule_(noise_schedule(config)),
        options_(options) {}
  int64_t count() const override { return images_->count(); }
  int64_t tokens() const override { return config_.tokens(); }
  std::unique_ptr<FeedStream> open(std::unique_ptr<data::Order> order, data::Position start,
                                   uint64_t seed) const override {
    return std::make_unique<ImageStream>(images_, config_, schedule_, options_, std::move(order),
                                         start, seed);
  }

 private:
  std::shared_ptr<const data::ImageSource> images_;
  DitConfig config_;
  NoiseSchedule schedule_;
  ImageFeedOptions options_;
};

}  // namespace

std::shared_ptr<const Feed> make_image_feed(std::shared_ptr<const data::ImageSource> images,
                                            const DitConfig& config,
                                            const ImageFeedOptions& options) {
  return std::make_shared<ImageFeed>(std::move(images), config, options);
}

}  // namespace veil
