// The SHA-256 of files.
#pragma once

#include <string>

#include "base/sha256.h"

namespace veil {

// Of a file's bytes, in pieces of 1 MiB that are hashed on several threads: the digest of theirs.
// UserError if it cannot be read.
Sha256Digest digest_of_file(const std::string& path);

}  // namespace veil
