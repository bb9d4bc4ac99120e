// Documents from a folder: every .txt, .json, .jsonl, .csv and .tsv file below it, plain or packed
// by gzip (.gz) or zstd (.zst), in the order of their paths.
//
// A .txt file is one document. A line of .jsonl is an object that holds a document; a .json file is
// one such object, a list of them, or several one after the other; a row of a table is an object
// whose keys are in the first row. What an object holds, its keys tell (data/record_text.h): the
// first one decides for all. Text is UTF-8; a byte order mark is left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/byte_source.h"
#include "data/record_text.h"
#include "data/table_rows.h"

namespace veil::data {

struct CountedObject;  // data/user_field.h

struct Document {
  std::string text;  // never empty
  std::optional<int32_t> label;
  std::string user = {};  // if CorpusOptions::user_key asks for it
  std::string file;
  int64_t line = 1;  // where it begins
  // RecordText's
  std::optional<std::string> second = {};
  bool whole = false;
  std::vector<Span> replies = {};
};

struct CorpusOptions {
  std::string text_key = "text";
  std::string label_key = "";  // "": labels are not read; otherwise every document must have one
  std::vector<std::string> label_names = {};  // what labels that are words mean: their places here
  bool skip_bad = false;                      // otherwise the first bad line is a UserError
  // "": users are not read; otherwise every document must have exactly one
  std::string user_key = "";
  DataFormat format = DataFormat::automatic;  // automatic: as the first record's keys tell
  std::optional<LossOn> loss_on = {};  // none: replies, and all of plain text and labelled samples
  std::string chat_template = "";      // a name; "": the tokenizer's own
};

struct BadLine {
  std::string file;
  int64_t line = 0;
  std::string reason;
  std::string message() const;  // "file:line: reason"
};

struct CorpusCounts {
  int64_t files = 0, documents = 0, text_bytes = 0;
  int64_t bad = 0;    // lines, or list entries of a .json
  int64_t empty = 0;  // documents without text, left out
};

// UserError where no document is left; it says what was left out.
void check_documents(const std::string& path, const CorpusCounts& counts);

// Sorted. A file is its own answer; links to folders are not followed. UserError if there is
// none.
std::vector<std::string> find_data_files(const std::string& path);

class Corpus {
 public:
  // `chat` renders conversations.
  Corpus(const std::string& path, CorpusOptions options, RecognisedChat chat = {});
  Corpus(Corpus&&) = default;

  // Of all records, never automatic; reads the first one.
  DataFormat format();
  // Only replies are trained on: documents say where they are. UserError if there can be none.
  bool masked();
  // A template has ended the documents, all of them or none: no end of text belongs behind them.
  bool ended();
  // The template that conversations are rendered with, "" without one.
  std::string chat_name();

  // The next document, or nothing at the end.
  std::optional<Document> next();

  const CorpusCounts& counts() const { return counts_; }
  const std::vector<BadLine>& bad_lines() const { return bad_lines_; }  // the first 20
  int64_t file_bytes() const { return file_bytes_; }                    // of all files
  int64_t read_bytes() const { return read_bytes_; }                    // so far

 private:
  enum class Kind { text, lines, list, table };
  struct Open {
    Kind kind;
    std::string path;
    std::optional<LineReader> lines;
    std::string content;  // text, list
    std::optional<TableRows> table;
    std::vector<std::string> keys;  // table
    size_t position = 0;            // list: what comes before is read
    int64_t line = 1;               // list: at `position`; lines: of the next one
    int64_t counted = 0;            // bytes of the file that read_bytes_ has
    bool in_list = false, ended = false;
  };
  void open_next();
  std::optional<Document> next_read();
  std::optional<Document> next_in_file();
  std::optional<Document> whole_text();
  std::optional<Document> next_line();
  std::optional<Document> next_in_list();
  std::optional<Document> next_row();
  std::optional<Document> parse(std::string_view text, int64_t line);
  std::optional<Document> record(const CountedObject& counted, int64_t line);
  void bad(int64_t line, const std::string& reason);
  void settle_format(DataFormat found);

  CorpusOptions options_;
  RecordRules rules_;
  std::optional<bool> ended_;  // as the first document is
  bool settled_ = false;       // rules_.format is known
  std::optional<Document> read_ahead_;
  std::vector<std::string> files_;
  size_t next_file_ = 0;
  std::optional<Open> open_;
  CorpusCounts counts_;
  std::vector<BadLine> bad_lines_;
  int64_t file_bytes_ = 0, read_bytes_ = 0;
};

}  // namespace veil::data
