// Measurements of other software that are shown beside Veil's: `veil report --with peers.json`. The
// format is described in docs/reading-results.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace veil {

struct PeerRecord {
  std::string library, mode;
  int64_t tokens = 0;  // in a sample
  std::optional<int64_t> batch = {}, layers = {};
  std::optional<double> ms = {}, bytes = {};  // none if it did not end well
  std::string error = "";

  bool is_plain() const;  // not private: what private ones are divided by
  std::string name() const { return library.empty() ? mode : library + " " + mode; }
};
using Peers = std::vector<PeerRecord>;

// A JSON array of objects, or one object per line, as a measuring script prints them; text before
// the first brace of a line is ignored, and so are lines without one. UserError for a file that
// cannot be read, holds no record, or holds one without mode, tokens and time.
Peers read_peers(const std::string& path);

// The record that is not private and does the same work: of the same library where there is one.
const PeerRecord* plain_peer(const Peers& peers, const PeerRecord& record);

}  // namespace veil
