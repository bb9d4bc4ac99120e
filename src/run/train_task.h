// What a run trains, and on what: a language model on text, or a diffusion transformer on images.
// The rest of a run is the same for both.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "models/load.h"
#include "models/shape.h"
#include "models/stored_type.h"
#include "run/config.h"
#include "train/feed.h"

namespace veil {

// What is known of a model and its data before the first step.
struct TaskFacts {
  std::string model, attention;  // attention: what computes it
  int64_t samples = 0, held_out = 0;
  int64_t users = 0;  // who own the samples, if they are the unit of privacy
  struct Text {
    std::string task, tokenizer;
    int64_t documents = 0, tokens = 0;
    int64_t sample_tokens = 0;
    std::string begin = "", end = "", padding = "";  // special tokens; "": none
    std::string records = "";  // of data that is not plain text: what it is, and what is trained on
  };
  struct Images {
    int64_t image_size = 0, channels = 0, patches = 0;
    int64_t model_classes = 0, data_classes = 0;
  };
  std::optional<Text> text;
  std::optional<Images> images;
};

class TrainTask {
 public:
  virtual ~TrainTask() = default;
  virtual std::shared_ptr<const Feed> samples() const = 0;
  virtual std::shared_ptr<const Feed> held_out() const = 0;  // null: none
  virtual Model model(int world) const = 0;
  // Who own the samples, if users are the unit of privacy; null otherwise.
  virtual std::shared_ptr<const data::Users> users() const { return nullptr; }
  virtual const ModelSource& source() const = 0;  // as the data has completed it
  // Whether a person's document is at most one sample: then clipping a sample protects a document.
  virtual bool one_sample_a_document() const = 0;
  // What a sample is, in words: "document, one sequence of up to 64 tokens".
  virtual std::string unit_text() const = 0;
  // What a person should know before the first step: lines that name fields in backquotes.
  virtual std::vector<std::string> warnings() const { return {}; }
  // Of all that samples are made from, in its order: equal for equal data only.
  virtual Sha256Digest data_digest() const = 0;
  virtual TaskFacts facts() const = 0;
  // In addition to the weights, which are of type `weights`, by name.
  virtual std::vector<std::pair<std::string, std::string>> export_files(
      StoredType weights) const = 0;
};

// `notice` is told what is left out of the data. UserError in one line if the data cannot be
// read or does not fit the model.
using OnNotice = std::function<void(const std::string&)>;
std::unique_ptr<TrainTask> make_text_task(const RunConfig& config, Device device,
                                          const OnNotice& notice);
std::unique_ptr<TrainTask> make_image_task(const RunConfig& config, Device device,
                                           const OnNotice& notice);

}  // namespace veil
