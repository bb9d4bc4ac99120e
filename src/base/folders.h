// Folders: that last, and that only their owner reads.
#pragma once

#include <string>

namespace veil {

// What was renamed, made or removed in a folder lasts only once the folder is on disk. Some file
// systems cannot sync a folder; that is no error.
void sync_folder(const std::string& folder);

// Makes the folder, if it is not there, for its owner alone (mode 0700) whatever the umask. Folders
// above it are made as usual. UserError if it cannot be made.
void make_private_folder(const std::string& folder);

}  // namespace veil
