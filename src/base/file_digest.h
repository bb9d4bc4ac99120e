// The SHA-256 of files.
#pragma once

#include <functional>
#include <string>

#include "base/files.h"
#include "base/sha256.h"

namespace veil {

// Of a file's bytes, in pieces of 1 MiB that are hashed on several threads: the digest of theirs.
// UserError if it cannot be read.
Sha256Digest digest_of_file(const std::string& path);

// write_stream_atomically that answers the digest_of_file of what it wrote. Other threads read back
// and hash what is written so far, while the next bytes are produced and while the disk takes them.
// The bytes come from the operating system's memory: whether a disk has stored them is not known
// before they are read again, after they have left that memory.
Sha256Digest write_hashed_stream(const std::string& path,
                                 const std::function<void(const AppendBytes&)>& produce);

// Of the regular files of a folder, without its sub-folders: their names, sizes and bytes.
// UserError if one cannot be read.
Sha256Digest digest_of_files(const std::string& folder);

}  // namespace veil
