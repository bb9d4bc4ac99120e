// A model's files from a Hugging Face-compatible hub into the cache of data/hub.h.
//
// A file is known by its checksum: SHA-256 for large files, git's own for small ones. It is
// downloaded into blobs/<checksum>.incomplete, which a later try continues, and renamed once size
// and checksum are right. The snapshot's links and the ref come last, when every file is there: an
// interrupted fetch leaves no snapshot that looks whole. A lock a file (the one that the hub's own
// tools take) keeps two fetches apart.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/names.h"
#include "data/hub_session.h"

namespace veil {

// absent: a dry run would download it
enum class FileState { cached, resumed, downloaded, absent };
const NameTable<FileState>& names(FileState);

struct FetchedFile {
  std::string name, checksum;
  int64_t bytes = 0;
  int64_t received_bytes = 0;  // by this fetch
  FileState state = FileState::absent;
};

struct FetchedModel {
  std::string commit;
  std::string folder;  // the snapshot
  std::vector<FetchedFile> files;
};

struct FetchProgress {
  std::string file;            // the one under way
  int64_t done_bytes = 0;      // of all files, those that were there included
  int64_t received_bytes = 0;  // by this fetch
  int64_t total_bytes = 0;
  bool file_ended = false;
  std::string note;  // something to be told: a wait for another fetch, a broken connection
};

// UserError: exit code 2 for what a person can fix (a wrong name, a gated model, no space), 1 for
// a hub that fails or sends something wrong.
FetchedModel fetch_model(const FetchRequest& request,
                         const std::function<void(const FetchProgress&)>& progress = {});

}  // namespace veil
