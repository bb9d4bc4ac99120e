// A model's folder as transformers reads it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/safetensors.h"

namespace veil {

struct ExportOptions {
  // above this the weights are cut into several files with an index
  int64_t shard_bytes = 5'000'000'000;
  bool overwrite = false;  // replace an earlier export
  // Who exports, if not empty: an earlier export with the same one is replaced without `overwrite`.
  std::string owner = "";
  std::string weights = "model";  // the weights' file, without .safetensors
};

// Lists an export's files with their sizes and digests (base/file_digest.h): {"written_by": "veil",
// "owner": "5f3a...", "files": {"config.json": 512}, "sha256": {"config.json": "9b1c..."}}.
inline constexpr const char* kExportManifest = "veil_export.json";

// A new folder appears whole or not at all: it is made under another name next to its place and
// then renamed. An earlier export in the folder is replaced with `overwrite` only, file by file;
// what its manifest does not list is never touched. `files` are whole small files by name,
// config.json among them. Tensors are written in the order given (see write_safetensors), as
// model.safetensors (ExportOptions::weights) or as model-00001-of-0000N.safetensors with model.safetensors.index.json.
// UserError as of check_export_folder.
void export_model(const std::string& folder,
                  const std::vector<std::pair<std::string, std::string>>& files,
                  const std::vector<TensorSource>& tensors, const ExportOptions& options = {});

// UserError that names a file in the folder which is not as it was exported: of its weights, or its
// statement of privacy. Other files may be edited. Folders that are no export, and exports of
// earlier versions, are not looked at.
void check_exported_weights(const std::string& folder);

// UserError if the folder cannot be written, if it is not empty and no export, if it is an
// export that the options do not allow to replace, and if a file has the name of an exported one
// and is not it. Writes nothing.
void check_export_folder(const std::string& folder, const ExportOptions& options);

}  // namespace veil
