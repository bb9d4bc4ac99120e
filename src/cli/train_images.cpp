// A diffusion transformer on images.
#include <algorithm>
#include <optional>

#include "base/quantity.h"
#include "base/units.h"
#include "cli/terminal.h"
#include "cli/train_task.h"
#include "train/image_feed.h"

namespace veil {
namespace {

class ImageTask final : public TrainTask {
 public:
  ImageTask(const TrainCommand& command, Device device, bool speaks)
      : c_(command), device_(device), source_(model_source(command.experiment)) {
    open_data(speaks);
    settle_classes();
    split_data();
  }

  std::shared_ptr<const Feed> samples() const override { return feed(split_.train); }
  std::shared_ptr<const Feed> held_out() const override {
    return split_.held_out->count() > 0 ? feed(split_.held_out) : nullptr;
  }
  Model model(int world) const override { return make_model(c_.experiment, source_, world); }
  std::string model_folder() const override { return source_.folder; }
  bool one_sample_a_document() const override { return true; }  // an image

  InitialWeights initial_weights(const Model& model) const override {
    return source_.has_weights() ? load_weights(source_.folder, model.params) : InitialWeights{};
  }

  void add_data(privacy::SecretTag& tag) const override {
    tag.add(static_cast<uint64_t>(images_->count()));
    for (const std::string& name : images_->class_names()) tag.add(name);
    for (int64_t sample = 0; sample < images_->count(); ++sample) {
      tag.add(images_->hash(sample));
      tag.add(static_cast<uint64_t>(images_->label(sample)));
    }
  }

  void announce(int64_t parameters) const override {
    fmt::print("model     {}: {} parameters, {} x {} x {} images in {}, {}, attention {}\n", source_.name,
               format_count(static_cast<double>(parameters)), config().image_size, config().image_size,
               config().channels, quantity(config().tokens(), "patch", "patches"),
               quantity(config().classes, "class", "classes"),
               attention_backend(c_.experiment.attention, dtype_of(c_.experiment.compute), device_));
    fmt::print("data      {}: {}, {} held out, in {}{}\n", c_.data, quantity(split_.train->count(), "image"),
               split_.held_out->count(), quantity(std::ssize(images_->class_names()), "class", "classes"),
               c_.privacy.is_private() ? ", whose number and names are declared public" : "");
  }

  std::vector<std::pair<std::string, std::string>> export_files() const override {
    nlohmann::ordered_json json = config_json(config());
    json["class_names"] = images_->class_names();
    return {{"config.json", json.dump(2) + "\n"}};
  }

 private:
  const DitConfig& config() const { return *source_.diffusion; }

  std::shared_ptr<const Feed> feed(const std::shared_ptr<const data::ImageSource>& images) const {
    ImageFeedOptions options;
    options.label_drop = c_.label_drop;
    options.threads = c_.loader_threads;
    options.compute = dtype_of(c_.experiment.compute);
    options.device = device_;
    return make_image_feed(images, config(), options);
  }

  void open_data(bool speaks) {
    if (c_.data == kShapes) {
      images_ = std::make_shared<data::Shapes>(c_.shapes, static_cast<uint64_t>(c_.experiment.seed));
      return;
    }
    // A private run must not end at the draw of a bad image, for that would tell of the draw.
    bad_images_ = c_.corpus.skip_bad        ? data::BadImages::left_out
                  : c_.privacy.is_private() ? data::BadImages::refused
                                            : data::BadImages::seen_when_read;
    const auto folder = std::make_shared<data::ImageFolder>(c_.data, *bad_images_, c_.loader_threads);
    if (speaks && !folder->left_out().empty()) {
      for (const std::string& message : folder->left_out())
        fmt::print(stderr, "{} left out: {}\n", colored(stderr, Color::yellow, "veil:"), message);
      fmt::print(stderr, "{} left out: {}; used: {}\n", colored(stderr, Color::yellow, "veil:"),
                 quantity(std::ssize(folder->left_out()), "image"), folder->count());
    }
    images_ = folder;
  }

  void settle_classes() {
    DitConfig& config = *source_.diffusion;
    const auto found = static_cast<int64_t>(images_->class_names().size());
    if (source_.folder.empty() && !c_.experiment.diffusion.classes) config.classes = found;
    if (config.channels != 1 && config.channels != 3)
      user_error("--channels {}: images have 3, or 1 for grey", config.channels);
    if (found > config.classes)
      user_error("{}: class '{}' has label {}, the model has classes 0 to {}; pass --classes {}", c_.data,
                 images_->class_names().back(), found - 1, config.classes - 1, found);
  }

  void split_data() {
    split_ = data::split_images(images_, c_.held_out, c_.loader_threads);
    const int64_t train = split_.train->count(), held_out = split_.held_out->count();
    if (train == 0 || (held_out == 0 && c_.held_out > 0 && c_.held_out_asked))
      user_error(
          "{} has no image in the {} part (of {}, with a held-out fraction of {}): give more images, or another "
          "--held-out",
          c_.data, train == 0 ? "training" : "held-out", images_->count(), c_.held_out);
    // A break that shows in an evaluation would end the run after its last step. Whatever was decoded when the folder was opened is sound.
    if (bad_images_ == data::BadImages::seen_when_read)
      data::check_images(*split_.held_out,
                         c_.evaluation_samples > 0 ? std::min(c_.evaluation_samples, held_out) : held_out,
                         c_.loader_threads);
  }

  const TrainCommand& c_;
  Device device_;
  ModelSource source_;
  std::shared_ptr<const data::ImageSource> images_;
  data::ImageSplit split_;
  std::optional<data::BadImages> bad_images_;  // none: drawn by rule
};

}  // namespace

std::unique_ptr<TrainTask> make_image_task(const TrainCommand& command, Device device, bool speaks) {
  return std::make_unique<ImageTask>(command, device, speaks);
}

}  // namespace veil
