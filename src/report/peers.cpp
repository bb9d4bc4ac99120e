#include "report/peers.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"

namespace veil {
namespace {

using nlohmann::json;

[[noreturn]] void peer_error(const std::string& path, const std::string& where,
                             const std::string& why) {
  user_error(
      "'{}'{}: {}; a peer's record has \"mode\", \"seq\" (tokens in a sample) and \"ms\", or "
      "\"error\" instead of \"ms\" (docs/reading-results.md)",
      path, where, why);
}

// A number under one of these names.
std::optional<double> peer_number(const json& object, const std::vector<const char*>& names) {
  for (const char* const name : names) {
    const auto found = object.find(name);
    if (found != object.end() && found->is_number()) return found->get<double>();
  }
  return {};
}

std::string peer_text(const json& object, const std::vector<const char*>& names) {
  for (const char* const name : names) {
    const auto found = object.find(name);
    if (found != object.end() && found->is_string()) return found->get<std::string>();
  }
  return "";
}

PeerRecord peer_from_json(const std::string& path, const std::string& where, const json& object) {
  if (!object.is_object()) peer_error(path, where, "this is no object");
  PeerRecord record;
  record.library = peer_text(object, {"lib", "library"});
  record.mode = peer_text(object, {"mode"});
  record.error = peer_text(object, {"error"});
  const auto tokens = peer_number(object, {"seq", "seq_length", "tokens"});
  record.ms = peer_number(object, {"ms", "avg_time_ms"});
  if (record.mode.empty()) peer_error(path, where, "\"mode\" is missing");
  if (!tokens || *tokens < 1) peer_error(path, where, "\"seq\" is missing");
  if (record.ms && !(*record.ms > 0)) peer_error(path, where, "\"ms\" is not above 0");
  if (!record.ms && record.error.empty()) peer_error(path, where, "\"ms\" is missing");
  record.tokens = static_cast<int64_t>(*tokens);
  const auto whole = [&](const std::vector<const char*>& names) -> std::optional<int64_t> {
    const auto number = peer_number(object, names);
    return number ? std::optional(static_cast<int64_t>(*number)) : std::nullopt;
  };
  record.batch = whole({"batch", "batch_size"});
  record.layers = whole({"layers"});
  record.bytes = peer_number(object, {"peak_memory_bytes"});
  if (const auto gib = peer_number(object, {"peak_gb", "peak_gib"}); gib && !record.bytes)
    record.bytes = *gib * static_cast<double>(kGiB);
  return record;
}

}  // namespace

bool PeerRecord::is_plain() const {
  const std::string name = canonical(mode);
  return name == "no-dp" || name == "vanilla" || name == "none";
}

Peers read_peers(const std::string& path) {
  const std::string content = read_file(path);
  Peers peers;
  const json whole = try_json(content);
  if (whole.is_array()) {
    for (size_t i = 0; i < whole.size(); ++i)
      peers.push_back(peer_from_json(path, " record " + std::to_string(i + 1), whole[i]));
  } else {
    const std::vector<std::string> lines = split(content, '\n');
    for (size_t i = 0; i < lines.size(); ++i) {
      const size_t brace = lines[i].find('{');
      if (brace == std::string::npos) continue;
      const std::string where = " line " + std::to_string(i + 1);
      const json object = try_json(lines[i].substr(brace));
      if (object.is_discarded()) peer_error(path, where, "this is no JSON");
      peers.push_back(peer_from_json(path, where, object));
    }
  }
  if (peers.empty()) peer_error(path, "", "there is no record in it");
  return peers;
}

const PeerRecord* plain_peer(const Peers& peers, const PeerRecord& record) {
  const PeerRecord* other = nullptr;
  for (const PeerRecord& plain : peers) {
    const bool same = plain.is_plain() && plain.ms && plain.tokens == record.tokens &&
                      plain.batch == record.batch && plain.layers == record.layers;
    if (same && plain.library == record.library) return &plain;
    if (same && !other) other = &plain;
  }
  return other;
}

}  // namespace veil
