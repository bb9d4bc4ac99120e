// Files that are either whole or not there.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace veil {

// The whole file. UserError if it cannot be read.
std::string read_file(const std::string& path);

// Writes next to the target, syncs, renames over it: a reader sees the old file or the new one,
// never half of one. Missing folders are made. `owner_only` gives mode 0600 from the first byte on.
// UserError if it cannot be written; nothing is left behind then.
void write_file_atomically(const std::string& path, std::string_view content,
                           bool owner_only = false);

// The same for content that is too large to hold: `produce` hands it over piece by piece. What it
// throws is passed on.
using AppendBytes = std::function<void(std::string_view)>;
void write_stream_atomically(const std::string& path,
                             const std::function<void(const AppendBytes&)>& produce);

// Makes the folder if need be and proves, by writing, that files can be made in it. UserError in
// one line otherwise.
void ensure_folder_writable(const std::string& folder);

// UserError if making the folder or writing the file is bound to fail. They make nothing, so
// that wrong input leaves nothing behind.
void check_folder_can_be_made(const std::string& folder);
void check_file_can_be_written(const std::string& path);

// "<folder>/<name>", without doubling the stroke; an absolute `name` stays as it is.
std::string join_path(const std::string& folder, const std::string& name);

}  // namespace veil
