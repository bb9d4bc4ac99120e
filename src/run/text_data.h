// Text for the steps of a language model: how it is loaded, and a feed of it for measured steps.
#pragma once

#include <functional>
#include <memory>

#include "data/batches.h"
#include "record/record.h"
#include "run/config.h"
#include "run/special_tokens.h"

namespace veil {

struct TextData {
  std::shared_ptr<const data::Samples> samples;
  std::shared_ptr<const data::Samples> held_out;  // null: none is kept
  // of all documents, and those of `samples`; null without data.corpus.user_key
  std::shared_ptr<const data::Owners> owners = nullptr;
  std::shared_ptr<const data::Users> users = nullptr;
  SpecialTokens special = {};
  std::string dropped = {};  // Tokenizer::dropped_notice
};
// The tokenizer that reads text for a model: `given`, else the model's own, else "byte" for a
// vocabulary that was made for bytes; "" if none of them is there.
std::string tokenizer_name(const std::string& given, const ModelSource& source);
// What a sample is: as the configuration says, labelled for classification, packed otherwise.
data::SampleKind sample_kind(const RunConfig& config, const ModelSource& source);
// What a classifier's labels are called: as given, else as its config.json names them; empty if
// neither does.
std::vector<std::string> label_names(const RunConfig& config, const ModelSource& source);
// The samples that data.path holds for this model, which may learn its padding token from them.
// `left_out` is called for each bad line. UserError in one line if there are no samples, or if the
// model's vocabulary has no row for a token.
TextData load_text(const RunConfig& config, ModelSource& source,
                   const std::function<void(const std::string&)>& left_out = {});

// Logical batches in a shuffled order, epoch after epoch, into an executor.
class TextFeed {
 public:
  // UserError if one logical batch of all ranks is more than there is.
  TextFeed(std::shared_ptr<const data::Samples> samples, int64_t rank_samples, int64_t seed,
           int rank, int world);

  void load_next(Executor& executor);
  // What went before is not counted: warm-up fills the loader's queue.
  void begin_counting();
  // per step: the wait for a batch and its way to the device; mean of those counted
  double load_ms() const;
  // Means a step of those counted, and what the source holds.
  RecordData record(const std::string& source) const;

 private:
  std::shared_ptr<const data::Samples> samples_;
  int64_t global_batch_;
  data::Batches batches_;
  data::LoaderStatistics before_;
  double load_ms_ = 0;
};

}  // namespace veil
