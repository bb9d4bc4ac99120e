// veil tokenize: a folder of text as a token store.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/outputs.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "data/encode.h"
#include "data/token_store.h"

namespace veil {
namespace {

struct TokenizeOptions {
  std::string folder, tokenizer = "byte", output, json;
  data::CorpusOptions corpus;
  data::EncodeOptions encode;
  bool overwrite = false;
};

// "stories/" gives "stories.tokens".
std::string default_output(const std::string& folder) {
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  return (name.empty() || name == "." || name == ".." ? "data" : name) + ".tokens";
}

// Shows how far it is, a few times per second on a terminal and rarely elsewhere.
class EncodingProgress {
 public:
  void show(const data::EncodeProgress& now) {
    const double interval_ms = is_terminal(stderr) ? 200 : 10000;
    if (steady_ms() - shown_ms_ < interval_ms) return;
    shown_ms_ = steady_ms();
    const double elapsed_s = (shown_ms_ - begin_ms_) / 1000;
    progress_.show(fmt::format("{} of {}, {}, {} tokens, {:.1f} MB/s", format_bytes(now.read_bytes),
                               format_bytes(now.file_bytes), quantity(now.documents, "document"),
                               format_count(static_cast<double>(now.tokens)),
                               static_cast<double>(now.read_bytes) / 1e6 / elapsed_s),
                   now.read_bytes, now.file_bytes);
  }
  void clear() { progress_.clear(); }

 private:
  Progress progress_;
  double begin_ms_ = steady_ms(), shown_ms_ = begin_ms_;
};

void report_bad_lines(const data::Corpus& corpus) {
  for (const data::BadLine& line : corpus.bad_lines()) {
    fmt::print(stderr, "{} left out: {}\n", colored(stderr, Color::yellow, "veil:"),
               printable(line.message()));
  }
  const auto more = corpus.counts().bad - static_cast<int64_t>(corpus.bad_lines().size());
  if (more > 0)
    fmt::print(stderr, "{} left out: {} more\n", colored(stderr, Color::yellow, "veil:"), more);
}

}  // namespace

int run_tokenize(const CommandCall& call) {
  TokenizeOptions wanted;
  Options options("tokenize",
                  "writes the documents of a folder (.txt, .json, .jsonl, .csv, .tsv) as a token "
                  "store");
  options.add(
      "data", wanted.folder,
      {.help = "the folder, or one file", .positional = true, .required = true, .value = "DATA"});
  options.add("tokenizer", wanted.tokenizer,
              {.help = "a tokenizer.json, a folder that holds one, or byte", .value = "PATH"});
  options.add(
      "output", wanted.output,
      {.help = "the store; by default the folder's name with .tokens, here", .value = "FILE"});
  add_corpus_options(options, wanted.corpus, "labels");
  options.add(
      "add-special", wanted.encode.add_special,
      {.help =
           "put around each document what the tokenizer's template says (Llama 3: begin_of_text)"});
  options.add("threads", wanted.encode.threads,
              {.help = "threads that encode; 0: one per core", .minimum = 0, .maximum = 1024});
  options.add(
      "json", wanted.json,
      {.help = "write the counts as JSON, to stdout without a FILE", .bare = "-", .value = "FILE"});
  add_overwrite_option(options, wanted.overwrite);
  if (!options.parse_call(call)) return kExitDone;
  if (options.given("labels") && wanted.corpus.label_key.empty())
    user_error("--labels: labels are not read without --label-key; pass --label-key KEY too");
  if (wanted.output.empty()) wanted.output = default_output(wanted.folder);
  // A token store is Veil's own.
  if (!data::is_token_store(wanted.output)) check_output_file(wanted.output, wanted.overwrite);
  if (!wanted.json.empty() && wanted.json != "-") check_output_file(wanted.json, wanted.overwrite);

  const double begin_ms = steady_ms();
  const std::unique_ptr<data::Tokenizer> tokenizer = data::load_tokenizer(wanted.tokenizer);
  data::Corpus corpus(wanted.folder, wanted.corpus,
                      data::find_chat_template(wanted.tokenizer, wanted.corpus.chat_template));
  data::StoreFile store(wanted.output,
                        data::corpus_header(*tokenizer, corpus, wanted.corpus, wanted.encode));
  EncodingProgress progress;
  data::encode_corpus(corpus, *tokenizer, wanted.encode, store,
                      [&](const data::EncodeProgress& now) { progress.show(now); });
  progress.clear();
  report_bad_lines(corpus);
  if (const std::string dropped = tokenizer->dropped_notice(); !dropped.empty())
    fmt::print(stderr, "{} {}\n", colored(stderr, Color::yellow, "veil:"), dropped);
  const data::CorpusCounts& counts = corpus.counts();
  data::check_documents(wanted.folder, counts);
  const data::StoreHeader header = store.finish();

  const double seconds = (steady_ms() - begin_ms) / 1000,
               rate = static_cast<double>(header.text_bytes) / 1e6 / seconds;
  const auto store_bytes = static_cast<int64_t>(std::filesystem::file_size(wanted.output));
  if (wanted.json != "-") {
    fmt::print("{}: {}, {}, {} of text in {:.1f} s ({:.1f} MB/s), {} in the store{}{}\n",
               wanted.output, quantity(header.documents, "document"),
               quantity(header.tokens, "token"), format_bytes(header.text_bytes), seconds, rate,
               format_bytes(store_bytes),
               counts.bad > 0 ? fmt::format(", {} left out", quantity(counts.bad, "bad line")) : "",
               counts.empty > 0 ? fmt::format(", {} without text left out", counts.empty) : "");
  }
  if (wanted.json.empty()) return kExitDone;
  const nlohmann::json record = {{kWrittenBy, kWriter},
                                 {"output", wanted.output},
                                 {"tokenizer", header.tokenizer.name},
                                 {"tokenizer_hash", header.tokenizer.hash},
                                 {"vocabulary_size", header.tokenizer.vocabulary_size},
                                 {"files", counts.files},
                                 {"documents", header.documents},
                                 {"tokens", header.tokens},
                                 {"text_bytes", header.text_bytes},
                                 {"store_bytes", store_bytes},
                                 {"bad_lines", counts.bad},
                                 {"empty_documents", counts.empty},
                                 {"seconds", seconds},
                                 {"mb_per_s", rate}};
  if (wanted.json == "-") {
    fmt::print("{}\n", record.dump(2));
  } else {
    write_file_atomically(wanted.json, record.dump(2) + "\n");
  }
  return kExitDone;
}

}  // namespace veil
