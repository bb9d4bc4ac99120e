// What a run trains, and on what: a language model on text, or a diffusion transformer on images. The rest of a run is the same for both.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/train_options.h"
#include "models/load.h"
#include "models/shape.h"
#include "privacy/secret.h"
#include "train/feed.h"

namespace veil {

class TrainTask {
 public:
  virtual ~TrainTask() = default;
  virtual std::shared_ptr<const Feed> samples() const = 0;
  virtual std::shared_ptr<const Feed> held_out() const = 0;  // null: none
  virtual Model model(int world) const = 0;
  virtual InitialWeights initial_weights(const Model& model) const = 0;  // no fill: the model's own rules
  virtual std::string model_folder() const = 0;                          // "" for a preset
  // Whether a person's document is at most one sample: then clipping a sample protects a document.
  virtual bool one_sample_a_document() const = 0;
  // What makes two data sets the same.
  virtual void add_data(privacy::SecretTag& tag) const = 0;
  // "model" and "data" lines for a person.
  virtual void announce(int64_t parameters) const = 0;
  // Beside the weights, by name.
  virtual std::vector<std::pair<std::string, std::string>> export_files() const = 0;
};

// UserError in one line where the data cannot be read or does not fit the model. `speaks`: say what is left out.
std::unique_ptr<TrainTask> make_text_task(const TrainCommand& command, Device device, bool speaks);
std::unique_ptr<TrainTask> make_image_task(const TrainCommand& command, Device device, bool speaks);

}  // namespace veil
