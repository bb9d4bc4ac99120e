// Two runs of the same experiments side by side: what changed, and whether by more than the noise.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/table.h"
#include "record/folder.h"

namespace veil {

struct Change {
  std::string label;
  std::optional<double> before_ms, after_ms,
      // noise: one standard deviation of single steps, of both together; nothing if it is not
      // known
      noise_ms;
  std::optional<double> before_bytes, after_bytes;
  std::string before_outcome, after_outcome;

  std::optional<double> more_ms() const;
  bool beyond_noise() const;  // the times differ by more than the noise
};

struct Changes {
  std::string before, after;  // the folders
  std::vector<Change> all;    // of experiments that both have, in the order of the second
  std::vector<std::string> only_before, only_after;
  std::vector<std::pair<std::string, std::pair<std::string, std::string>>>
      settings;  // that differ: name, before, after
};

// UserError if the two have no experiment in common.
Changes changes_between(const RecordFolder& before, const RecordFolder& after);

Table change_table(const Changes& changes);
std::string change_headline(const Changes& changes);
std::string change_text(const Changes& changes);      // for a terminal
std::string change_markdown(const Changes& changes);  // for a pull request
std::string change_page(const Changes& changes);      // one self-contained page

// Reads both folders and writes changes.txt, changes.md, changes.csv and changes.html into
// `output_folder`, if that is not "". The text. Files that Veil did not write stay, as in
// write_report.
std::string write_changes(const std::string& before, const std::string& after,
                          const std::string& output_folder, bool overwrite = false);

}  // namespace veil
