// A language model on text.
#include <filesystem>

#include "base/files.h"
#include "base/quantity.h"
#include "models/family.h"
#include "run/text_data.h"
#include "run/train_task.h"
#include "train/feed.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

class TextTask final : public TrainTask {
 public:
  TextTask(const RunConfig& config, Device device, const OnNotice& notice)
      : config_(config),
        device_(device),
        source_(model_source(config)),
        data_(load_text(config, source_,
                        [&](const std::string& line) { notice("left out: " + line); })) {}

  std::shared_ptr<const Feed> samples() const override { return make_text_feed(data_.samples); }
  std::shared_ptr<const Feed> held_out() const override { return make_text_feed(data_.held_out); }
  std::shared_ptr<const data::Users> users() const override { return data_.users; }
  Model model(int world) const override { return make_model(config_, source_, world); }
  const ModelSource& source() const override { return source_; }
  bool one_sample_a_document() const override {
    return sample_kind(config_, source_) != data::SampleKind::packed;
  }
  std::vector<std::string> warnings() const override {
    std::vector<std::string> lines;
    const data::CutText cut = data_.samples->cut_text();
    if (cut.documents > 0)
      lines.push_back(fmt::format(
          "{} of {} are longer than `seq_length` {}: {} of {} are cut off and not trained on",
          cut.documents, quantity(data_.samples->count(), "document"), data_.samples->length(),
          cut.tokens, quantity(cut.all_tokens, "token")));
    if (config_.privacy.is_private() && !one_sample_a_document())
      lines.push_back(
          fmt::format("packed sequences mix documents: epsilon protects one sequence, and a "
                      "document spans up to {}; `samples` document protects documents",
                      quantity(data_.samples->longest_span(), "sequence")));
    return lines;
  }

  std::string unit_text() const override {
    const int64_t length = data_.samples->length();
    if (data_.users)
      return fmt::format("user with all their documents, of which a step takes one, up to {}",
                         quantity(length, "token"));
    if (one_sample_a_document())
      return fmt::format("document, one sequence of up to {}", quantity(length, "token"));
    return fmt::format("packed sequence of {}; a document spans up to {}",
                       quantity(length, "token"), data_.samples->longest_span());
  }

  // Texts, tokens and labels in their order, and whose they are.
  Sha256Digest data_digest() const override {
    if (digest_) return *digest_;
    digest_ = data_.samples->store().digest();
    if (!data_.owners) return *digest_;
    Sha256 all;
    all.add(*digest_);
    all.add(data_.owners->digest());
    digest_ = all.digest();
    return *digest_;
  }

  TaskFacts facts() const override {
    const data::StoreHeader& header = data_.samples->store().header();
    TaskFacts facts;
    facts.model = source_.name;
    facts.attention =
        attention_backend(config_.model.attention, dtype_of(config_.step.compute), device_);
    facts.samples = data_.samples->count();
    facts.held_out = data_.held_out ? data_.held_out->count() : 0;
    facts.users = data_.users ? data_.users->count() : 0;
    facts.text = TaskFacts::Text{name_of(source_.config->task), header.tokenizer.name,
                                 header.documents, header.tokens, data_.samples->length()};
    return facts;
  }

  std::vector<std::pair<std::string, std::string>> export_files() const override {
    std::vector<std::pair<std::string, std::string>> files = {
        {"config.json", config_json(*source_.config).dump(2) + "\n"}};
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                             "generation_config.json"}) {
      const std::string path = source_.folder.empty() ? "" : join_path(source_.folder, name);
      if (!path.empty() && fs::exists(path)) files.emplace_back(name, read_file(path));
    }
    return files;
  }

 private:
  const RunConfig& config_;
  Device device_;
  ModelSource source_;
  TextData data_;
  mutable std::optional<Sha256Digest> digest_;  // once it is known
};

}  // namespace

std::unique_ptr<TrainTask> make_text_task(const RunConfig& config, Device device,
                                          const OnNotice& notice) {
  return std::make_unique<TextTask>(config, device, notice);
}

}  // namespace veil
