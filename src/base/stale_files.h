// Temporary files that killed processes left.
#pragma once

#include <string>

namespace veil {

// Whether another process may be writing the same file now.
enum class OtherWriters {
  none,      // the caller holds a lock
  possible,  // here or on another machine: only what is an hour old and whose process is gone here
};

// Removes what killed processes left of writing `target`: regular files of this user that are
// named as base/files.h names them, "<target>.<process>.<count>.tmp" (the count may be missing).
// Answers how many. Never throws: what cannot be removed stays.
int remove_stale_temporaries(const std::string& target, OtherWriters others);

}  // namespace veil
