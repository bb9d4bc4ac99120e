// What a JSON object or a row of a table says, as the text of one sample.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/names.h"
#include "data/chat.h"
#include "data/span.h"

namespace veil::data {

enum class DataFormat {
  automatic,
  chat,         // {"messages": [{"role", "content"}, ...]}
  completion,   // {"prompt", "completion"}
  instruction,  // {"instruction", "input", "output"}, the input optional
  text,         // {"text"}, or a pair such as {"premise", "hypothesis"} for classification
};
const NameTable<DataFormat>& names(DataFormat);

enum class LossOn { all, replies };
const NameTable<LossOn>& names(LossOn);

// The format that an object's keys tell; text if they tell none.
DataFormat format_of_keys(const nlohmann::json& object, const std::string& text_key, bool labelled);

struct RecordText {
  std::string text;
  std::optional<std::string> second;  // of a pair
  // The text is whole: a template has put its tokens around it, and nothing is added to it.
  bool whole = false;
  std::vector<Span> replies;  // what a loss on replies covers
};

struct RecordRules {
  DataFormat format = DataFormat::text;  // not automatic
  std::string text_key = "text";
  bool labelled = false;
  RecognisedChat chat;
};
// Sets `record` and answers ""; otherwise says what is wrong with the object. UserError if a
// conversation needs a template and there is none: no object can help that.
std::string read_record(const nlohmann::json& object, const RecordRules& rules, RecordText& record);

}  // namespace veil::data
