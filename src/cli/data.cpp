// veil data: what would be trained on.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/outputs.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/hub_environment.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "data/overview.h"
#include "models/classifier_labels.h"
#include "run/model_source.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNotPrivate = "not private: these figures and texts are the data's own";
constexpr size_t kLongestShown = 4000;  // bytes of a sample's text

// The tokenizer that `veil train` would take.
std::string tokenizer_of(const std::string& given, const ModelSource& source) {
  if (!given.empty()) return given;
  if (!source.folder.empty() && fs::exists(fs::path(source.folder) / "tokenizer.json"))
    return source.folder;
  return source.config && source.config->vocabulary <= 512 ? "byte" : "";
}

// A store names its tokenizer and does not hold it; only bytes need no file.
bool is_of_bytes(const data::TokenizerIdentity& made_by) {
  const auto bytes = data::byte_tokenizer();
  return made_by.name == bytes->identity().name && made_by.hash == bytes->identity().hash;
}

void print_histogram(const data::DataOverview& overview) {
  int64_t most = 1;
  for (const data::LengthBin& bin : overview.lengths) most = std::max(most, bin.documents);
  const int64_t room = std::max(10, std::min(60, terminal_width(stdout) - 40));
  for (const data::LengthBin& bin : overview.lengths) {
    std::string bar;
    for (int64_t mark = 0; mark < (bin.documents * room + most - 1) / most; ++mark) bar += "#";
    fmt::print("{:>9} to {:<8} {:>8} {}\n", bin.from, bin.to, bin.documents,
               colored(stdout, bin.from > overview.seq_length ? Color::yellow : Color::green, bar));
  }
}

// Trained tokens are green on a terminal, and are in brackets elsewhere.
void print_sample(const data::ShownSample& sample, bool all_trained, bool has_text) {
  const bool brackets = colored(stdout, Color::green, "x") == "x";
  std::string where =
      sample.file.empty() ? "" : fmt::format("{}:{}: ", printable(sample.file), sample.line);
  fmt::print("\n{}document {}, {}{}{}\n", colored(stdout, Color::bold, where), sample.document + 1,
             quantity(sample.tokens, "token"),
             all_trained ? "" : fmt::format(", {} trained on", sample.trained_tokens),
             sample.label ? fmt::format(", label {}", *sample.label) : "");
  if (!has_text) return;
  size_t shown = 0;
  for (const data::MarkedText& part : sample.text) {
    if (shown >= kLongestShown) break;
    std::string text = part.text;
    if (text.size() > kLongestShown - shown) {
      size_t end = kLongestShown - shown;
      while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
      text = text.substr(0, end) + "...";
    }
    shown += part.text.size();
    text = for_screen(stdout, text);
    if (part.cut) {
      fmt::print("{}", colored(stdout, Color::red, "{beyond the length: " + text + "}"));
    } else if (!part.trained || all_trained) {
      fmt::print("{}", text);
    } else {
      fmt::print("{}", brackets ? "[" + text + "]" : colored(stdout, Color::green, text));
    }
  }
  fmt::print("\n");
}

void print_overview(const std::string& path, const data::DataOverview& overview, bool has_text) {
  const data::CorpusCounts& counts = overview.counts;
  const auto percent = [](int64_t part, int64_t whole) {
    return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  fmt::print("{}: {}, {} by the tokenizer {}\n", path, quantity(counts.documents, "document"),
             quantity(overview.tokens, "token"), overview.tokenizer);
  fmt::print("format {}{}, loss on {}: {} trained on ({:.1f} %)\n", overview.format,
             overview.chat_template.empty() ? "" : " by the template " + overview.chat_template,
             overview.loss_on, quantity(overview.trained_tokens, "token"),
             percent(overview.trained_tokens, overview.tokens));
  if (counts.bad > 0 || counts.empty > 0)
    fmt::print("left out: {}, {} without text\n", quantity(counts.bad, "bad line"), counts.empty);
  for (size_t label = 0; label < overview.labels.size(); ++label)
    fmt::print("label {}: {}\n", label, quantity(overview.labels[label], "document"));
  fmt::print("lengths: {} to {} tokens, median {}\n", overview.shortest, overview.longest,
             overview.median);
  print_histogram(overview);
  if (overview.cut_documents > 0)
    fmt::print("longer than --seq-length {}: {} ({:.1f} %), {} cut off in document samples\n",
               overview.seq_length, quantity(overview.cut_documents, "document"),
               percent(overview.cut_documents, counts.documents),
               quantity(overview.cut_tokens, "token"));
  if (overview.untrained_documents > 0)
    fmt::print("without a trained token within it: {}; their loss is 0\n",
               quantity(overview.untrained_documents, "document"));
  const bool all_trained = overview.loss_on == "all";
  for (const data::ShownSample& sample : overview.samples)
    print_sample(sample, all_trained, has_text);
  if (!has_text && !overview.samples.empty())
    fmt::print(
        "\na token store holds no text: pass --tokenizer PATH, its tokenizer ({}), to see it\n",
        printable(overview.tokenizer));
  fmt::print("\n{}\n", colored(stdout, Color::yellow, kNotPrivate));
}

nlohmann::json overview_json(const std::string& path, const data::DataOverview& overview) {
  nlohmann::json record = {{kWrittenBy, kWriter},
                           {"note", kNotPrivate},
                           {"data", path},
                           {"tokenizer", overview.tokenizer},
                           {"format", overview.format},
                           {"chat_template", overview.chat_template},
                           {"loss_on", overview.loss_on},
                           {"files", overview.counts.files},
                           {"documents", overview.counts.documents},
                           {"bad_lines", overview.counts.bad},
                           {"empty_documents", overview.counts.empty},
                           {"tokens", overview.tokens},
                           {"trained_tokens", overview.trained_tokens},
                           {"seq_length", overview.seq_length},
                           {"shortest", overview.shortest},
                           {"median", overview.median},
                           {"longest", overview.longest},
                           {"cut_documents", overview.cut_documents},
                           {"cut_tokens", overview.cut_tokens},
                           {"untrained_documents", overview.untrained_documents},
                           {"labels", overview.labels},
                           {"lengths", nlohmann::json::array()},
                           {"samples", nlohmann::json::array()}};
  for (const data::LengthBin& bin : overview.lengths)
    record["lengths"].push_back({{"from", bin.from}, {"to", bin.to}, {"documents", bin.documents}});
  for (const data::ShownSample& sample : overview.samples) {
    nlohmann::json parts = nlohmann::json::array();
    for (const data::MarkedText& part : sample.text)
      parts.push_back({{"text", part.text}, {"trained", part.trained}, {"cut", part.cut}});
    record["samples"].push_back(
        {{"file", repair_utf8(sample.file)},
         {"line", sample.line},
         {"document", sample.document},
         {"tokens", sample.tokens},
         {"trained_tokens", sample.trained_tokens},
         {"label", sample.label ? nlohmann::json(*sample.label) : nlohmann::json()},
         {"text", parts}});
  }
  return record;
}

}  // namespace

int run_data(const CommandCall& call) {
  std::string path, model, tokenizer_path, json;
  data::CorpusOptions corpus;
  int64_t seq_length = 1024, show = 3;
  bool overwrite = false;
  Options options("data",
                  "shows what would be trained on: counts, lengths, what is cut off, and samples "
                  "with the trained tokens marked; nothing of it is private");
  options.add("data", path,
              {.help = "folder, file or token store, as for `veil train`",
               .positional = true,
               .required = true,
               .value = "DATA"});
  options.add(
      "model", model,
      {.help = "model whose tokenizer, chat template and names of labels are used: a folder, a "
               "preset or a fetched hub id",
       .value = "NAME"});
  options.add("tokenizer", tokenizer_path,
              {.help = "tokenizer.json, a folder that holds one, or bytes; by default the model's, "
                       "or bytes without a model",
               .value = "PATH"});
  options.add("seq-length", seq_length,
              {.help = "tokens in a sequence: what is longer is cut off",
               .minimum = 1,
               .maximum = 1 << 24});
  add_corpus_options(options, corpus, "labels");
  options.add("show", show, {.help = "samples to show", .minimum = 0, .maximum = 1000});
  options.add("json", json,
              {.help = "write the figures and samples as JSON, to stdout without a FILE",
               .bare = "-",
               .value = "FILE"});
  add_overwrite_option(options, overwrite);
  if (!options.parse_call(call)) return kExitDone;
  if (!json.empty() && json != "-") check_output_file(json, overwrite);

  ModelSource source;
  if (!model.empty()) source = find_model(model, hub_cache_root(hub_variables_from_environment()));
  if (source.config && corpus.label_names.empty())
    corpus.label_names = named_labels(source.config->source);
  std::string name = tokenizer_of(tokenizer_path, source);
  const bool stored = data::is_token_store(path);
  if (name.empty() && !stored) {
    if (!model.empty())
      user_error(
          "--model {}: it has no tokenizer.json; pass --tokenizer PATH, or --tokenizer bytes",
          model);
    name = "byte";
  }
  if (name.empty() && is_of_bytes(data::TokenStore::open(path).header().tokenizer)) name = "byte";
  const auto tokenizer = name.empty() ? nullptr : data::load_tokenizer(name);
  data::EncodeOptions encode;
  encode.chat = data::find_chat_template(name, corpus.chat_template);
  const data::DataOverview overview =
      data::data_overview(path, tokenizer.get(), corpus, encode, seq_length, show);
  const std::string text = json.empty() ? "" : overview_json(path, overview).dump(2) + "\n";
  if (json == "-") {
    fmt::print("{}", text);
    return kExitDone;
  }
  if (!json.empty()) write_file_atomically(json, text);
  print_overview(path, overview, tokenizer != nullptr);
  if (tokenizer && !tokenizer->dropped_notice().empty())
    fmt::print(stderr, "{} {}\n", colored(stderr, Color::yellow, "veil:"),
               tokenizer->dropped_notice());
  return kExitDone;
}

}  // namespace veil
