// A language model on text.
#include <filesystem>

#include "base/files.h"
#include "base/quantity.h"
#include "base/units.h"
#include "cli/terminal.h"
#include "cli/train_task.h"
#include "train/text_batches.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

class TextTask final : public TrainTask {
 public:
  TextTask(const TrainCommand& command, Device device, bool speaks)
      : c_(command), device_(device), source_(model_source(command.experiment)) {
    std::string name = c_.tokenizer;
    if (name.empty() && !source_.folder.empty() && fs::exists(fs::path(source_.folder) / "tokenizer.json"))
      name = source_.folder;
    const bool store = fs::is_regular_file(c_.data) && data::is_token_store(c_.data);
    if (name.empty() && !store) name = "byte";
    if (!name.empty()) tokenizer_ = data::load_tokenizer(name);
    data::EncodeOptions encode;
    const auto tokens = data::load_data(c_.data, tokenizer_.get(), c_.corpus, encode, [&](const data::Corpus& corpus) {
      if (!speaks) return;
      for (const data::BadLine& line : corpus.bad_lines())
        fmt::print(stderr, "{} left out: {}\n", colored(stderr, Color::yellow, "veil:"), line.message());
    });
    tokens->require_vocabulary(source_.config->vocabulary);
    if (c_.samples == data::SampleKind::labelled) {
      if (tokens->label_count() > source_.config->labels)
        user_error("{}: labels go up to {}, the model has {}; pass --labels {}", c_.data, tokens->label_count() - 1,
                   source_.config->labels, tokens->label_count());
      // Padding must be told from text: the data's own padding token, where the config names none.
      if (source_.config->padding_id < 0) {
        const auto& identity = tokens->header().tokenizer;
        source_.config->padding_id = identity.padding.value_or(identity.end_of_text.value_or(0));
      }
    }
    auto split = [&](data::Split part) {
      return std::make_shared<const data::Samples>(
          tokens, data::SampleOptions{c_.samples, c_.experiment.seq_length, part, c_.held_out});
    };
    samples_ = split(c_.held_out > 0 ? data::Split::train : data::Split::all);
    if (c_.held_out > 0) held_out_ = split(data::Split::held_out);
  }

  std::shared_ptr<const Feed> samples() const override { return make_text_feed(samples_); }
  std::shared_ptr<const Feed> held_out() const override { return make_text_feed(held_out_); }
  Model model(int world) const override { return make_model(c_.experiment, source_, world); }
  std::string model_folder() const override { return source_.folder; }
  bool one_sample_a_document() const override { return c_.samples != data::SampleKind::packed; }

  InitialWeights initial_weights(const Model& model) const override {
    return source_.has_weights() ? load_weights(source_.folder, *source_.config, model.params) : InitialWeights{};
  }

  // Documents as they stand, by their texts' hashes.
  void add_data(privacy::SecretTag& tag) const override {
    const data::TokenStore& store = samples_->store();
    const data::StoreHeader& header = store.header();
    tag.add(header.tokenizer.hash);
    tag.add(static_cast<uint64_t>(header.documents));
    tag.add(static_cast<uint64_t>(header.tokens));
    for (int64_t document = 0; document < header.documents; ++document) {
      tag.add(store.hash(document));
      tag.add(static_cast<uint64_t>(store.size(document)));
      if (header.labelled) tag.add(static_cast<uint64_t>(store.label(document)));
    }
  }

  void announce(int64_t parameters) const override {
    const auto& header = samples_->store().header();
    fmt::print("model     {}: {} parameters, {}, attention {}\n", source_.name,
               format_count(static_cast<double>(parameters)), name_of(source_.config->task),
               attention_backend(c_.experiment.attention, dtype_of(c_.experiment.compute), device_));
    fmt::print("data      {}, {} tokens ({}); {} of {}, {} held out\n", quantity(header.documents, "document"),
               format_count(static_cast<double>(header.tokens)), header.tokenizer.name,
               quantity(samples_->count(), "sample"), quantity(samples_->length(), "token"),
               held_out_ ? held_out_->count() : 0);
  }

  std::vector<std::pair<std::string, std::string>> export_files() const override {
    std::vector<std::pair<std::string, std::string>> files = {
        {"config.json", config_json(*source_.config).dump(2) + "\n"}};
    for (const char* name :
         {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"}) {
      const std::string path = source_.folder.empty() ? "" : join_path(source_.folder, name);
      if (!path.empty() && fs::exists(path)) files.emplace_back(name, read_file(path));
    }
    return files;
  }

 private:
  const TrainCommand& c_;
  Device device_;
  ModelSource source_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::shared_ptr<const data::Samples> samples_, held_out_;
};

}  // namespace

std::unique_ptr<TrainTask> make_text_task(const TrainCommand& command, Device device, bool speaks) {
  return std::make_unique<TextTask>(command, device, speaks);
}

}  // namespace veil
