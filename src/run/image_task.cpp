// A diffusion transformer on images.
#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/quantity.h"
#include "base/text.h"
#include "data/image_users.h"
#include "data/samples.h"
#include "run/train_task.h"
#include "train/feed.h"

namespace veil {
namespace {

class ImageTask final : public TrainTask {
 public:
  ImageTask(const RunConfig& config, Device device, const OnNotice& notice)
      : config_(config), device_(device), source_(model_source(config)) {
    open_data(notice);
    settle_classes();
    split_data();
  }

  std::shared_ptr<const Feed> samples() const override { return feed(split_.train); }
  std::shared_ptr<const Feed> held_out() const override {
    return split_.held_out->count() > 0 ? feed(split_.held_out) : nullptr;
  }
  std::shared_ptr<const data::Users> users() const override { return users_; }
  Model model(int world) const override { return make_model(config_, source_, world); }
  const ModelSource& source() const override { return source_; }
  bool one_sample_a_document() const override { return true; }  // an image

  std::string unit_text() const override {
    return users_ ? "user with all their images, of which a step takes one" : "image";
  }

  // Classes' names, files and labels in their order.
  Sha256Digest data_digest() const override {
    if (digest_) return *digest_;
    const std::vector<std::string> classes = images_->class_names();
    Sha256 all;
    all.add(digest_of_parts(std::ssize(classes),
                            [&](int64_t i) { return sha256(classes[static_cast<size_t>(i)]); }));
    all.add(digest_of_parts(
        images_->count(), [&](int64_t i) { return images_->digest(i); },
        config_.data.loader_threads));
    for (int64_t sample = 0; sample < images_->count(); ++sample)
      all.add(static_cast<uint64_t>(images_->label(sample)));
    if (owners_) all.add(owners_->digest());
    digest_ = all.digest();
    return *digest_;
  }

  TaskFacts facts() const override {
    TaskFacts facts;
    facts.model = source_.name;
    facts.attention =
        attention_backend(config_.model.attention, dtype_of(config_.step.compute), device_);
    facts.samples = split_.train->count();
    facts.held_out = split_.held_out->count();
    facts.users = users_ ? users_->count() : 0;
    facts.images = TaskFacts::Images{dit().image_size, dit().channels, dit().tokens(),
                                     dit().classes, std::ssize(images_->class_names())};
    return facts;
  }

  std::vector<std::pair<std::string, std::string>> export_files(StoredType) const override {
    nlohmann::ordered_json json = config_json(dit());
    json["class_names"] = images_->class_names();
    return {{"config.json", json.dump(2) + "\n"}};
  }

 private:
  const DitConfig& dit() const { return *source_.diffusion; }

  std::shared_ptr<const Feed> feed(const std::shared_ptr<const data::ImageSource>& images) const {
    ImageFeedOptions options;
    options.label_drop = config_.data.label_drop;
    options.threads = config_.data.loader_threads;
    options.compute = dtype_of(config_.step.compute);
    options.device = device_;
    return make_image_feed(images, dit(), options);
  }

  void open_data(const OnNotice& notice) {
    const std::string& key = config_.data.corpus.user_key;
    if (config_.data.path == kShapes) {
      if (!key.empty())
        field_error("unit_key", "{}: shapes are drawn by rule and have no users", key);
      images_ =
          std::make_shared<data::Shapes>(config_.data.shapes, static_cast<uint64_t>(config_.seed));
      return;
    }
    // A private run must not end at the draw of a bad image, for that would tell of the draw.
    bad_images_ = config_.data.corpus.skip_bad   ? data::BadImages::left_out
                  : config_.privacy.is_private() ? data::BadImages::refused
                                                 : data::BadImages::seen_when_read;
    const auto folder = std::make_shared<data::ImageFolder>(config_.data.path, *bad_images_,
                                                            config_.data.loader_threads);
    for (const std::string& message : folder->left_out()) notice("left out: " + message);
    if (!folder->left_out().empty())
      notice(fmt::format("left out: {}; used: {}",
                         quantity(std::ssize(folder->left_out()), "image"), folder->count()));
    images_ = folder;
    if (!key.empty())
      owners_ = canonical(key) == kUsersByFolder
                    ? data::image_owners_by_folder(config_.data.path, *folder)
                    : data::image_owners_by_listing(config_.data.path, *folder, key);
  }

  void settle_classes() {
    DitConfig& own = *source_.diffusion;
    const auto found = static_cast<int64_t>(images_->class_names().size());
    if (source_.folder.empty() && !config_.model.diffusion.classes) own.classes = found;
    if (own.channels != 1 && own.channels != 3)
      field_error("channels", "{}: images have 3, or 1 for grey", own.channels);
    if (found > own.classes)
      user_error("{}: class '{}' has label {}, the model has classes 0 to {}; pass `classes` {}",
                 config_.data.path, images_->class_names().back(), found - 1, own.classes - 1,
                 found);
  }

  // Users are held out as a whole.
  void split_users() {
    std::vector<int64_t> train, held_out;
    for (int64_t image = 0; image < images_->count(); ++image)
      (data::is_held_out(owners_->hash(image), config_.data.held_out) ? held_out : train)
          .push_back(image);
    users_ = std::make_shared<const data::Users>(*owners_, train);
    split_ = {std::make_shared<data::ImagePart>(images_, std::move(train)),
              std::make_shared<data::ImagePart>(images_, std::move(held_out))};
  }

  void split_data() {
    if (owners_) {
      split_users();
    } else {
      split_ = data::split_images(images_, config_.data.held_out, config_.data.loader_threads);
    }
    const int64_t train = split_.train->count(), held_out = split_.held_out->count();
    if (train == 0 ||
        (held_out == 0 && config_.data.held_out > 0 && config_.data.held_out_required))
      user_error(
          "{} has no image in the {} part (of {}, with a held-out fraction of {}): give more "
          "images, or another `held_out`",
          config_.data.path, train == 0 ? "training" : "held-out", images_->count(),
          config_.data.held_out);
    // A break that shows in an evaluation would end the run after its last step. Whatever was
    // decoded when the folder was opened is sound.
    if (bad_images_ == data::BadImages::seen_when_read)
      data::check_images(*split_.held_out,
                         config_.training.evaluation_samples > 0
                             ? std::min(config_.training.evaluation_samples, held_out)
                             : held_out,
                         config_.data.loader_threads);
  }

  const RunConfig& config_;
  Device device_;
  ModelSource source_;
  std::shared_ptr<const data::ImageSource> images_;
  std::optional<data::Owners> owners_;  // of all images
  std::shared_ptr<const data::Users> users_;
  data::ImageSplit split_;
  std::optional<data::BadImages> bad_images_;   // none: drawn by rule
  mutable std::optional<Sha256Digest> digest_;  // once it is known
};

}  // namespace

std::unique_ptr<TrainTask> make_image_task(const RunConfig& config, Device device,
                                           const OnNotice& notice) {
  return std::make_unique<ImageTask>(config, device, notice);
}

}  // namespace veil
