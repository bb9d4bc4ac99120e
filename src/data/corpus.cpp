#include "data/corpus.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/user_field.h"
#include "models/classifier_labels.h"

namespace veil::data {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kBadLinesKept = 20, kLongestReason = 160, kLongestLabel = 40, kLongestKeys = 80;
constexpr const char* kByteOrderMark = "\xEF\xBB\xBF";

std::string data_extension(const std::string& path) {
  return canonical(fs::path(without_packing(path)).extension().string());
}

bool is_data_file(const fs::path& path) {
  const std::string extension = data_extension(path.string());
  return extension == ".txt" || extension == ".json" || extension == ".jsonl" ||
         extension == ".csv" || extension == ".tsv";
}

bool blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

int64_t lines_in(std::string_view text) {
  return std::count(text.begin(), text.end(), '\n');
}

// JSON's own message says first which of its exceptions it is.
std::string short_reason(const json::exception& error) {
  std::string reason = error.what();
  if (const size_t bracket = reason.find("] "); bracket != std::string::npos)
    reason.erase(0, bracket + 2);
  if (const size_t place = reason.find(": ");
      reason.starts_with("parse error at") && place != std::string::npos) {
    reason.erase(0, place + 2);
  }
  if (reason.size() > kLongestReason) reason = reason.substr(0, kLongestReason) + "...";
  return "this is not JSON: " + repair_utf8(reason);
}

// Where the value that begins at `begin` ends: behind its closing bracket, or before what follows a
// plain value. The text's end if it is not closed.
size_t end_of_value(std::string_view text, size_t begin) {
  int64_t depth = 0;
  bool quoted = false;
  for (size_t at = begin; at < text.size(); ++at) {
    const char letter = text[at];
    if (quoted) {
      if (letter == '\\') ++at;
      if (letter == '"') quoted = false;
      continue;
    }
    if (letter == '"') quoted = true;
    if (letter == '{' || letter == '[') ++depth;
    if (letter == '}' || letter == ']') {
      if (depth == 0) return at;
      if (--depth == 0) return at + 1;
    }
    if (depth == 0 && letter == ',') return at;
  }
  return text.size();
}

// The number that a spelling is; nothing if it is none, or none that a label can have.
std::optional<int32_t> number_of(const std::string& spelling) {
  const bool digits = !spelling.empty() && spelling.size() < 10 &&
                      spelling.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || std::stoll(spelling) >= kMostLabels) return {};
  return static_cast<int32_t>(std::stoll(spelling));
}

// Numbers are classes unless names are numbers: those would be meant, and count otherwise.
bool numbers_are_classes(const std::vector<std::string>& names) {
  return std::none_of(names.begin(), names.end(),
                      [](const std::string& name) { return number_of(name).has_value(); });
}

// The class that a label means, a string or a whole number: the place of its spelling among the
// names, else its number.
std::optional<int32_t> class_of(const json& label, const std::vector<std::string>& names) {
  if (!label.is_string() && !label.is_number_integer()) return {};
  const std::string spelling = label.is_string() ? label.get<std::string>() : label.dump();
  const auto place = std::find(names.begin(), names.end(), spelling);
  if (place != names.end()) return static_cast<int32_t>(place - names.begin());
  return numbers_are_classes(names) ? number_of(spelling) : std::nullopt;
}

std::string keys_of(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return printable(join(keys, ", "), kLongestKeys);
}

std::string allowed_labels(const std::vector<std::string>& names) {
  if (names.empty()) return "numbers from 0, and words that `label_names` lists";
  const std::string listed = printable(join(names, ", "));
  return numbers_are_classes(names) ? "numbers from 0 and " + listed : listed;
}

}  // namespace

std::string BadLine::message() const {
  return fmt::format("{}:{}: {}", file, line, reason);
}

void check_documents(const std::string& path, const CorpusCounts& counts) {
  if (counts.documents > 0) return;
  const std::string bad =
      counts.bad > 0 ? fmt::format(": {} left out", quantity(counts.bad, "bad line")) : "";
  user_error("'{}' holds no document with text{}", path, bad);
}

std::vector<std::string> find_data_files(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    field_error(
        "data",
        "{}: no such folder or file; allowed are a folder with .txt, .json, .jsonl, .csv or .tsv "
        "files, one such file, or a token store of `veil tokenize`",
        path);
  std::vector<std::string> files;
  if (!fs::is_directory(status)) {
    if (!is_data_file(path))
      field_error("data",
                  "{} is no data: allowed are a folder, .txt, .json, .jsonl, .csv and .tsv files, "
                  "plain or packed (.gz, .zst)",
                  path);
    return {path};
  }
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    if (!is_data_file(at->path())) continue;
    const fs::file_status found = at->status(error);
    if (error) user_error("cannot read '{}': {}", at->path().string(), error.message());
    if (fs::is_regular_file(found)) files.push_back(at->path().string());
  }
  if (error) user_error("cannot read the folder '{}': {}", path, error.message());
  if (files.empty())
    field_error("data", "{}: the folder holds no .txt, .json, .jsonl, .csv or .tsv file", path);
  std::sort(files.begin(), files.end());
  return files;
}

Corpus::Corpus(const std::string& path, CorpusOptions options, RecognisedChat chat)
    : options_(std::move(options)), files_(find_data_files(path)) {
  rules_.text_key = options_.text_key;
  rules_.labelled = !options_.label_key.empty();
  rules_.chat = std::move(chat);
  if (options_.format != DataFormat::automatic) settle_format(options_.format);
  for (const std::string& file : files_) {
    std::error_code ignored;
    const auto size = fs::file_size(file, ignored);
    if (!ignored) file_bytes_ += static_cast<int64_t>(size);
  }
}

void Corpus::settle_format(DataFormat found) {
  if (settled_) return;
  rules_.format = found;
  settled_ = true;
}

DataFormat Corpus::format() {
  if (!settled_ && !read_ahead_) read_ahead_ = next_read();
  settle_format(DataFormat::text);  // there is no document
  return rules_.format;
}

bool Corpus::masked() {
  const bool text = format() == DataFormat::text;
  if (options_.loss_on == LossOn::replies && (text || rules_.labelled))
    field_error("loss_on", "replies: {} no replies; allowed is all",
                text ? "plain text has" : "samples with labels need");
  return !text && !rules_.labelled && options_.loss_on.value_or(LossOn::replies) == LossOn::replies;
}

bool Corpus::ended() {
  if (!ended_ && !read_ahead_) read_ahead_ = next_read();
  return ended_.value_or(false);
}

std::string Corpus::chat_name() {
  return ended() && rules_.chat.chat ? name_of(rules_.chat.chat->format) : "";
}

std::optional<Document> Corpus::next() {
  if (!read_ahead_) return next_read();
  std::optional<Document> document = std::move(read_ahead_);
  read_ahead_.reset();
  return document;
}

std::optional<Document> Corpus::next_read() {
  while (true) {
    if (!open_) {
      if (next_file_ == files_.size()) return {};
      open_next();
    }
    std::optional<Document> document = next_in_file();
    if (open_->ended) open_.reset();
    if (!document) continue;
    if (document->text.empty()) {
      ++counts_.empty;
      continue;
    }
    ++counts_.documents;
    counts_.text_bytes += static_cast<int64_t>(document->text.size());
    if (document->second) counts_.text_bytes += static_cast<int64_t>(document->second->size());
    return document;
  }
}

void Corpus::open_next() {
  const std::string& path = files_[next_file_++];
  const std::string extension = data_extension(path);
  open_ = Open();
  open_->kind = extension == ".txt"     ? Kind::text
                : extension == ".jsonl" ? Kind::lines
                : extension == ".json"  ? Kind::list
                                        : Kind::table;
  open_->path = path;
  ++counts_.files;
  std::unique_ptr<ByteSource> source = open_bytes(path);
  if (open_->kind == Kind::lines) {
    open_->lines.emplace(std::move(source));
    return;
  }
  open_->content = read_all(*source);
  read_bytes_ += source->file_bytes_read();
  if (open_->content.starts_with(kByteOrderMark)) open_->content.erase(0, 3);
  if (open_->kind == Kind::table)
    open_->table.emplace(std::move(open_->content), extension == ".tsv" ? '\t' : ',');
}

// A document, or nothing: then the file has ended or a line was bad.
std::optional<Document> Corpus::next_in_file() {
  switch (open_->kind) {
    case Kind::text:
      return whole_text();
    case Kind::lines:
      return next_line();
    case Kind::list:
      return next_in_list();
    case Kind::table:
      return next_row();
  }
  return {};
}

void Corpus::bad(int64_t line, const std::string& reason) {
  const BadLine entry{open_->path, line, reason};
  if (!options_.skip_bad) user_error("{}; `skip_bad` leaves such lines out", entry.message());
  ++counts_.bad;
  if (bad_lines_.size() < kBadLinesKept) bad_lines_.push_back(entry);
}

std::optional<Document> Corpus::whole_text() {
  open_->ended = true;
  settle_format(DataFormat::text);
  std::string& text = open_->content;
  if (rules_.format != DataFormat::text) {
    bad(1, fmt::format("a .txt file is plain text, and the data is of the format {}",
                       name_of(rules_.format)));
    return {};
  }
  if (const size_t wrong = find_invalid_utf8(text); wrong != std::string::npos) {
    bad(1 + lines_in(std::string_view(text).substr(0, wrong)),
        fmt::format("byte 0x{:02X} is not UTF-8", static_cast<uint8_t>(text[wrong])));
    return {};
  }
  if (!options_.label_key.empty()) {
    bad(1, fmt::format("a .txt file has no label '{}'", options_.label_key));
    return {};
  }
  if (!options_.user_key.empty()) {
    bad(1, fmt::format("a .txt file has no user '{}'; give .json or .jsonl", options_.user_key));
    return {};
  }
  return Document{.text = std::move(text), .label = {}, .file = open_->path, .line = 1};
}

std::optional<Document> Corpus::next_line() {
  std::string line;
  const bool found = open_->lines->next(line);
  const int64_t file_bytes = open_->lines->file_bytes_read();
  read_bytes_ += file_bytes - open_->counted;
  open_->counted = file_bytes;
  if (!found) {
    open_->ended = true;
    return {};
  }
  const int64_t number = open_->line++;
  if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, 3);
  if (blank(line)) return {};
  return parse(line, number);
}

std::optional<Document> Corpus::next_in_list() {
  Open& file = *open_;
  const std::string_view text = file.content;
  const auto skip_blanks = [&] {
    for (; file.position < text.size() && std::strchr(" \t\r\n", text[file.position]) &&
           text[file.position] != '\0';
         ++file.position) {
      file.line += text[file.position] == '\n';
    }
    return file.position < text.size() ? text[file.position] : '\0';
  };
  char letter = skip_blanks();
  if (file.position == text.size()) {
    if (file.in_list) bad(file.line, "the list is not closed");
    file.ended = true;
    return {};
  }
  if (!file.in_list && letter == '[') {
    file.in_list = true;
    ++file.position;
    letter = skip_blanks();
  }
  if (file.in_list && letter == ']') {
    file.in_list = false;
    ++file.position;
    return {};
  }
  const int64_t line = file.line;
  const size_t begin = file.position, end = end_of_value(text, begin);
  // a bracket or a comma that belongs to nothing: what follows cannot be made out
  if (end == begin) {
    bad(line, fmt::format("unexpected '{}'", letter));
    file.ended = true;
    return {};
  }
  file.position = end;
  file.line += lines_in(text.substr(begin, end - begin));
  std::optional<Document> document = parse(text.substr(begin, end - begin), line);
  if (file.in_list && skip_blanks() == ',') {
    ++file.position;
    if (skip_blanks() == ']') bad(file.line, "a comma before the list's end");
  } else if (file.in_list && file.position < text.size() && text[file.position] != ']') {
    bad(file.line, "a comma is missing in the list");
  }
  return document;
}

std::optional<Document> Corpus::parse(std::string_view text, int64_t line) {
  if (const size_t wrong = find_invalid_utf8(text); wrong != std::string_view::npos) {
    bad(line + lines_in(text.substr(0, wrong)),
        fmt::format("byte 0x{:02X} is not UTF-8", static_cast<uint8_t>(text[wrong])));
    return {};
  }
  CountedObject counted;
  try {
    if (options_.user_key.empty()) {
      counted.object = parse_json(text);
    } else {
      counted = parse_counting(text, options_.user_key);
    }
  } catch (const json::parse_error& error) {
    bad(line + lines_in(text.substr(
                   0, std::min(error.byte - std::min<size_t>(error.byte, 1), text.size()))),
        short_reason(error));
    return {};
  } catch (const json::exception& error) {
    bad(line, short_reason(error));
    return {};
  }
  return record(counted, line);
}

// The first row has the keys.
std::optional<Document> Corpus::next_row() {
  Open& file = *open_;
  const std::optional<TableRows::Row> row = file.table->next();
  if (!row) {
    file.ended = true;
    return {};
  }
  if (!row->closed) {
    bad(row->line, "a quote is not closed");
    file.ended = true;
    return {};
  }
  for (const std::string& field : row->fields) {
    if (const size_t wrong = find_invalid_utf8(field); wrong != std::string::npos) {
      bad(row->line, fmt::format("byte 0x{:02X} is not UTF-8", static_cast<uint8_t>(field[wrong])));
      return {};
    }
  }
  if (file.keys.empty()) {
    file.keys = row->fields;
    for (auto key = file.keys.begin(); key != file.keys.end(); ++key) {
      if (std::find(file.keys.begin(), key, *key) != key)
        user_error("{}:1: the first row names the column '{}' twice", file.path, printable(*key));
    }
    return {};
  }
  if (row->fields.size() != file.keys.size()) {
    bad(row->line, fmt::format("the row has {} fields, and the first row names {}",
                               row->fields.size(), file.keys.size()));
    return {};
  }
  CountedObject counted{json::object(), 1};
  for (size_t column = 0; column < file.keys.size(); ++column) {
    counted.object[file.keys[column]] = row->fields[column];
  }
  return record(counted, row->line);
}

std::optional<Document> Corpus::record(const CountedObject& counted, int64_t line) {
  const json& object = counted.object;
  const auto complain = [&](const std::string& reason) {
    bad(line, reason);
    return std::optional<Document>();
  };
  if (!object.is_object())
    return complain(fmt::format("this is no object with the key '{}'", options_.text_key));
  settle_format(format_of_keys(object, options_.text_key, rules_.labelled));
  RecordText text;
  if (const std::string wrong = read_record(object, rules_, text); !wrong.empty())
    return complain(wrong);
  // Never skipped: one record would decide about all others.
  if (ended_.value_or(text.whole) != text.whole)
    user_error("{}:{}: some records hold messages and some hold texts; allowed is one kind",
               open_->path, line);
  ended_ = text.whole;
  Document document{.text = std::move(text.text),
                    .label = {},
                    .file = open_->path,
                    .line = line,
                    .second = std::move(text.second),
                    .whole = text.whole,
                    .replies = std::move(text.replies)};
  if (!options_.user_key.empty()) {
    const std::string wrong = read_user(counted, options_.user_key, document.user);
    if (!wrong.empty()) return complain(wrong);
  }
  if (options_.label_key.empty()) return document;

  const auto label = object.find(options_.label_key);
  if (label == object.end())
    return complain(fmt::format("there is no label '{}': the record has {}; pass `label_key`",
                                printable(options_.label_key, kLongestLabel), keys_of(object)));
  document.label = class_of(*label, options_.label_names);
  if (!document.label)
    return complain(fmt::format("label {} is unknown: allowed are {}",
                                printable(label->dump(), kLongestLabel),
                                allowed_labels(options_.label_names)));
  return document;
}

}  // namespace veil::data
