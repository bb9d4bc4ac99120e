// A language model on text.
#include <algorithm>

#include "base/error.h"
#include "base/quantity.h"
#include "models/classifier_labels.h"
#include "models/family.h"
#include "models/model_files.h"
#include "run/text_data.h"
#include "run/train_task.h"
#include "train/feed.h"

namespace veil {
namespace {

// Whether the data marks a token of these documents as trained on, however long they are.
bool has_replies(const data::Samples& samples) {
  std::vector<uint8_t> trained;
  const auto has_one = [&](int64_t document) {
    trained.resize(static_cast<size_t>(samples.store().size(document)));
    samples.store().copy_trained(document, 0, std::ssize(trained), trained.data());
    return std::find(trained.begin(), trained.end(), uint8_t{1}) != trained.end();
  };
  return std::any_of(samples.documents().begin(), samples.documents().end(), has_one);
}

class TextTask final : public TrainTask {
 public:
  TextTask(const RunConfig& config, Device device, const OnNotice& notice)
      : config_(config),
        device_(device),
        source_(model_source(config)),
        data_(load_text(config, source_,
                        [&](const std::string& line) { notice("left out: " + line); })) {
    const data::TrainedTokens trained = data_.samples->trained_tokens();
    if (trained.without == 0 || trained.without < data_.samples->count()) return;
    if (!has_replies(*data_.samples))
      field_error("loss_on",
                  "replies: none of {} has a reply to train on; give data with replies, or pass "
                  "`loss_on` all",
                  quantity(data_.samples->count(), "record"));
    field_error("seq_length",
                "{}: no sample has a token to train on within it, because prompts come first; "
                "raise it, or pass `loss_on` all",
                data_.samples->length());
  }

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
    if (const data::TrainedTokens trained = data_.samples->trained_tokens(); trained.without > 0)
      lines.push_back(fmt::format(
          "{} of {} have no token to train on within `seq_length` {}: their loss is 0",
          trained.without, quantity(data_.samples->count(), "sample"), data_.samples->length()));
    if (!data_.dropped.empty()) lines.push_back(data_.dropped);
    if (config_.privacy.is_private() && !one_sample_a_document())
      lines.push_back(
          fmt::format("packed sequences mix documents: epsilon protects one sequence, and a "
                      "document spans up to {}; `samples` document protects documents",
                      quantity(data_.samples->longest_span(), "sequence")));
    return lines;
  }

  std::string unit_text() const override {
    const int64_t length = data_.samples->length();
    const std::string& format = data_.samples->store().header().format;
    const char* const record = format == "chat" ? "conversation"
                               : format.empty() ? "document"
                                                : "record";
    if (data_.users)
      return fmt::format("user with all their {}s, of which a step takes one, up to {}", record,
                         quantity(length, "token"));
    if (one_sample_a_document())
      return fmt::format("{}, one sequence of up to {}", record, quantity(length, "token"));
    return fmt::format("packed sequence of {}", quantity(length, "token"));
  }

  // Texts, tokens and labels in their order, and whose they are.
  Sha256Digest data_digest() const override {
    if (digest_) return *digest_;
    digest_ = data_.samples->store().digest();
    // another end of text than the store's own makes other samples
    const auto end = data_.samples->options().end_of_text;
    const bool other_end = end != data_.samples->store().header().tokenizer.end_of_text;
    if (!data_.owners && !other_end) return *digest_;
    Sha256 all;
    all.add(*digest_);
    if (data_.owners) all.add(data_.owners->digest());
    if (other_end) all.add(fmt::format("end of text {}", end.value_or(-1)));
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
    const SpecialTokens& special = data_.special;
    if (!header.format.empty())
      facts.text->records = fmt::format(
          "{}{}, loss on {}", header.format,
          header.chat_template.empty() ? "" : " by the template " + header.chat_template,
          header.masked
              ? fmt::format("replies ({} targets)", data_.samples->trained_tokens().tokens)
              : "all tokens");
    if (special.end) facts.text->end = special_token_text(*special.end);
    if (special.padding) facts.text->padding = special_token_text(*special.padding);
    if (special.begin) facts.text->begin = special_token_text(*special.begin);
    return facts;
  }

  std::vector<std::pair<std::string, std::string>> export_files(StoredType weights) const override {
    nlohmann::ordered_json json = config_json(*source_.config);
    const bool classifies = source_.config->task == Task::sequence_classification;
    if (const auto names = label_names(config_, source_);
        classifies && std::ssize(names) == source_.config->labels)
      write_label_names(names, json);
    // in the spelling that the config has; the older one is read by every transformers
    if (json.contains("dtype")) json["dtype"] = config_dtype(weights);
    if (json.contains("torch_dtype") || !json.contains("dtype"))
      json["torch_dtype"] = config_dtype(weights);
    std::vector<std::pair<std::string, std::string>> files = {{"config.json", json.dump(2) + "\n"}};
    for (auto& file : companion_files(source_.folder)) files.push_back(std::move(file));
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
