#include "train/image_feed.h"

#include "data/image_batches.h"

namespace veil {
namespace {

class ImageStream final : public FeedStream {
 public:
  ImageStream(std::shared_ptr<const data::ImageSource> images, const DitConfig& config, const NoiseSchedule& schedule,
              const ImageFeedOptions& options, std::unique_ptr<data::Order> order, data::Position start, uint64_t seed)
      : config_(config),
        schedule_(schedule),
        options_(options),
        seed_(seed),
        sample_count_(images->count()),
        batches_(images, std::move(order), config.image_size, config.channels, start, options.threads) {}

  std::optional<FedBatch> next(int64_t step) override {
    std::optional<data::ImageBatch> made = batches_.next();
    if (!made) return {};
    return FedBatch{made->position,
                    noised_batch(config_, schedule_, made->pixels, made->samples, made->labels, sample_count_, step,
                                 {seed_, options_.label_drop}, options_.compute, options_.device),
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
  ImageFeed(std::shared_ptr<const data::ImageSource> images, const DitConfig& config, const ImageFeedOptions& options)
      : images_(std::move(images)), config_(config), schedule_(noise_schedule(config)), options_(options) {}
  int64_t count() const override { return images_->count(); }
  int64_t tokens() const override { return config_.tokens(); }
  std::unique_ptr<FeedStream> open(std::unique_ptr<data::Order> order, data::Position start,
                                   uint64_t seed) const override {
    return std::make_unique<ImageStream>(images_, config_, schedule_, options_, std::move(order), start, seed);
  }

 private:
  std::shared_ptr<const data::ImageSource> images_;
  DitConfig config_;
  NoiseSchedule schedule_;
  ImageFeedOptions options_;
};

}  // namespace

std::shared_ptr<const Feed> make_image_feed(std::shared_ptr<const data::ImageSource> images, const DitConfig& config,
                                            const ImageFeedOptions& options) {
  return std::make_shared<ImageFeed>(std::move(images), config, options);
}

}  // namespace veil
