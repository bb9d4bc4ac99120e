// Files that a command writes where a person asked for them. One rule protects everything else: a
// file that Veil did not write is never replaced, unless the person says so by `overwrite`.
//
// Veil knows its own files in two ways. A JSON file says so itself: by "written_by": "veil", or by
// a "command" that begins with "veil ". Tables, pages and pictures are listed, with a hash of their
// content, in the manifest of their folder. A file that was edited since is therefore not Veil's.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace veil {

inline constexpr const char* kWrittenBy = "written_by";  // a key of JSON files, with kWriter
inline constexpr const char* kWriter = "veil";
inline constexpr const char* kManifestFile = ".veil_files.json";

bool written_by_veil(const std::string& path);

// UserError if `path` cannot be written, if it is no regular file, and if it holds what
// Veil did not write, unless `overwrite`. Makes nothing.
void check_output_file(const std::string& path, bool overwrite = false);

// Checks, writes the file whole, and lists it in its folder's manifest. `owner_only` gives mode
// 0600: for what looks at the data itself.
void write_listed_file(const std::string& path, std::string_view content, bool overwrite = false,
                       bool owner_only = false);
// For a file that another program writes for Veil, such as gnuplot: before it is written, after
// check_output_file, and when that program has ended. If it left no file, what gets that name later
// is not Veil's.
void expect_output_file(const std::string& path);
void list_output_file(const std::string& path);

// A folder that Veil alone writes into: makes it, with a manifest. UserError if it holds files
// already and no manifest of Veil's.
void claim_output_folder(const std::string& folder);

// Whether `inner` is `outer` or lies inside it, links followed. Neither need exist.
bool lies_inside(const std::string& inner, const std::string& outer);
// UserError if `folder` contains one of these places, is one of them or lies inside one. Each is
// a path and what to call it ("the data"); empty paths are left out.
void check_apart(const std::string& field, const std::string& folder,
                 const std::vector<std::pair<std::string, std::string>>& places);

}  // namespace veil
