// Documents from a folder: every .txt, .json and .jsonl file below it, in the order of their paths.
//
// A .txt file is one document. A line of .jsonl is an object that holds the text under a key; a
// .json file is one such object, a list of them, or several one after the other. Text is UTF-8; a
// byte order mark is left out.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace veil::data {

struct Document {
  std::string text;  // never empty
  std::optional<int32_t> label;
  std::string user = {};  // where CorpusOptions::user_key asks for it
  std::string file;
  int64_t line = 1;  // where it begins
};

struct CorpusOptions {
  std::string text_key = "text";
  std::string label_key = "";  // "": labels are not read; otherwise every document must have one
  std::vector<std::string> label_names = {};  // what labels that are words mean: their places here
  bool skip_bad = false;                      // otherwise the first bad line is a UserError
  // "": users are not read; otherwise every document must have exactly one
  std::string user_key = "";
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

// Sorted. A file is its own answer; links to folders are not followed. UserError where there is
// none.
std::vector<std::string> find_data_files(const std::string& path);

class Corpus {
 public:
  Corpus(const std::string& path, CorpusOptions options);
  Corpus(Corpus&&) = default;

  // The next document, or nothing at the end.
  std::optional<Document> next();

  const CorpusCounts& counts() const { return counts_; }
  const std::vector<BadLine>& bad_lines() const { return bad_lines_; }  // the first 20
  int64_t file_bytes() const { return file_bytes_; }                    // of all files
  int64_t read_bytes() const { return read_bytes_; }                    // so far

 private:
  enum class Kind { text, lines, list };
  struct Open {
    Kind kind;
    std::string path;
    std::ifstream stream;  // lines
    std::string content;   // text, list
    size_t position = 0;   // list: what lies before is read
    int64_t line = 1;      // list: at `position`; lines: of the next one
    bool in_list = false, ended = false;
  };
  void open_next();
  std::optional<Document> next_in_file();
  std::optional<Document> whole_text();
  std::optional<Document> next_line();
  std::optional<Document> next_in_list();
  std::optional<Document> parse(std::string_view text, int64_t line);
  void bad(int64_t line, const std::string& reason);

  CorpusOptions options_;
  std::vector<std::string> files_;
  size_t next_file_ = 0;
  std::optional<Open> open_;
  CorpusCounts counts_;
  std::vector<BadLine> bad_lines_;
  int64_t file_bytes_ = 0, read_bytes_ = 0;
};

}  // namespace veil::data
