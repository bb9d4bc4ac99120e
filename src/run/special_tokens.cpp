#include "run/special_tokens.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct TokenFile {
  std::string name;
  Json json;
};

// The ids that a file names, one or a list; those that the vocabulary lacks are left out.
std::vector<int32_t> named_ids(const Json& json, const char* field, int64_t vocabulary) {
  std::vector<int32_t> ids;
  if (!json.is_object() || !json.contains(field)) return ids;
  const Json& value = json.at(field);
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    if (id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < vocabulary)
      ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::string text_of_token(const data::Tokenizer* tokenizer, int32_t id) {
  if (!tokenizer) return "";
  try {
    return tokenizer->decode({id});
  } catch (const UserError&) {  // a row of the table that no token has
    return "";
  }
}

int32_t wanted_end(const std::string& wanted, int64_t vocabulary,
                   const data::Tokenizer* tokenizer) {
  int64_t id = -1;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), id);
  if (error == std::errc() && end == wanted.data() + wanted.size()) {
    if (id < 0 || id >= vocabulary)
      field_error("end_token", "{}: token ids are 0 to {}", wanted, vocabulary - 1);
    return static_cast<int32_t>(id);
  }
  if (!tokenizer)
    field_error("end_token", "{}: a token store knows ids only; pass the token's number", wanted);
  const std::vector<int32_t> tokens = tokenizer->encode(wanted, /*add_special=*/false);
  if (tokens.size() != 1)
    field_error("end_token",
                "{}: it is {} tokens of this tokenizer; pass one token, as text or number", wanted,
                tokens.size());
  return tokens.front();
}

}  // namespace

std::string special_token_text(const SpecialToken& token) {
  const bool plain = std::all_of(token.text.begin(), token.text.end(),
                                 [](unsigned char c) { return c > ' ' && c != 0x7F; });
  const std::string text =
      plain ? token.text : Json(token.text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return fmt::format("{}{} ({})", token.id, text.empty() ? "" : " " + text, token.from);
}

SpecialTokens choose_special_tokens(const ModelSource& source, bool own_tokenizer,
                                    const data::TokenizerIdentity& identity,
                                    const data::Tokenizer* tokenizer,
                                    const std::string& end_token) {
  const int64_t vocabulary = source.config ? source.config->vocabulary : identity.vocabulary_size;
  std::vector<TokenFile> files;
  if (own_tokenizer && !source.folder.empty()) {
    const std::string path = join_path(source.folder, "generation_config.json");
    if (fs::exists(path))
      files.push_back({"generation_config.json", try_json<Json>(read_file(path))});
    if (source.config) files.push_back({"config.json", source.config->source});
  }
  const auto token = [&](int32_t id, const std::string& from) {
    return SpecialToken{id, from, text_of_token(tokenizer, id)};
  };
  const auto first_named = [&](const char* field, std::optional<int32_t> own, bool config_first) {
    std::vector<TokenFile> order = files;
    if (config_first) std::reverse(order.begin(), order.end());
    for (const TokenFile& file : order) {
      const std::vector<int32_t> ids = named_ids(file.json, field, vocabulary);
      if (!ids.empty()) return std::optional(token(ids.front(), file.name));
    }
    return own ? std::optional(token(*own, "tokenizer")) : std::nullopt;
  };

  SpecialTokens special;
  special.begin = first_named("bos_token_id", identity.begin_of_text, false);
  const bool classifies = source.config && source.config->task == Task::sequence_classification;
  special.padding = first_named("pad_token_id", identity.padding, classifies);
  if (!end_token.empty()) {
    special.end = token(wanted_end(end_token, vocabulary, tokenizer), "--end-token");
    special.ends = {special.end->id};
    return special;
  }
  for (const TokenFile& file : files) {
    special.ends = named_ids(file.json, "eos_token_id", vocabulary);
    if (special.ends.empty()) continue;
    const bool has_own =
        identity.end_of_text &&
        std::count(special.ends.begin(), special.ends.end(), *identity.end_of_text) > 0;
    special.end = token(has_own ? *identity.end_of_text : special.ends.front(), file.name);
    return special;
  }
  if (identity.end_of_text) {
    special.end = token(*identity.end_of_text, "tokenizer");
    special.ends = {*identity.end_of_text};
  }
  return special;
}

}  // namespace veil
