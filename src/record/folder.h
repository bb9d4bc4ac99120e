// The records of a folder: one file <experiment>_result.json each.
#pragma once

#include <string>
#include <vector>

#include "record/record.h"

namespace veil {

struct DamagedRecord {
  std::string file, reason;
};

struct RecordFolder {
  std::string folder;
  std::vector<Record> records;  // by `order` if they have one, then by file name
  std::vector<DamagedRecord> damaged;
};

// Reads every *_result.json in the folder. A record that cannot be used is named in `damaged` and
// left out. UserError if there is none, or none that can be read.
RecordFolder read_records(const std::string& folder);

std::string record_path(const std::string& folder, const std::string& name);
// Whole or not at all.
void write_record(const std::string& path, const Record& record);

}  // namespace veil
