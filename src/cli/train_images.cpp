// A diffusion transformer on images.
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
  }

  std::shared_ptr<const Feed> samples() const override {
    ImageFeedOptions options;
    options.label_drop = c_.label_drop;
    options.threads = c_.loader_threads;
    options.compute = dtype_of(c_.experiment.compute);
    options.device = device_;
    return make_image_feed(images_, config(), options);
  }
  std::shared_ptr<const Feed> held_out() const override { return nullptr; }
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
    fmt::print("data      {}: {} in {}{}\n", c_.data, quantity(images_->count(), "image"),
               quantity(std::ssize(images_->class_names()), "class", "classes"),
               c_.privacy.is_private() ? ", whose number and names are declared public" : "");
  }

  std::vector<std::pair<std::string, std::string>> export_files() const override {
    nlohmann::ordered_json json = config_json(config());
    json["class_names"] = images_->class_names();
    return {{"config.json", json.dump(2) + "\n"}};
  }

 private:
  const DitConfig& config() const { return *source_.diffusion; }

  void open_data(bool speaks) {
    if (c_.data == kShapes) {
      images_ = std::make_shared<data::Shapes>(c_.shapes, static_cast<uint64_t>(c_.experiment.seed));
      return;
    }
    // A private run must not end at the draw of a bad image, for that would tell of the draw.
    const data::BadImages bad_images = c_.corpus.skip_bad        ? data::BadImages::left_out
                                       : c_.privacy.is_private() ? data::BadImages::refused
                                                                 : data::BadImages::seen_when_read;
    const auto folder = std::make_shared<data::ImageFolder>(c_.data, bad_images, c_.loader_threads);
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

  const TrainCommand& c_;
  Device device_;
  ModelSource source_;
  std::shared_ptr<const data::ImageSource> images_;
};

}  // namespace

std::unique_ptr<TrainTask> make_image_task(const TrainCommand& command, Device device, bool speaks) {
  return std::make_unique<ImageTask>(command, device, speaks);
}

}  // namespace veil
