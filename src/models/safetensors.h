// The safetensors format: eight bytes of header length, a JSON header that names the tensors, their
// bytes one after the other. https://huggingface.co/docs/safetensors. No LibTorch.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file_digest.h"
#include "models/stored_type.h"

namespace veil {

struct StoredTensor {
  std::string name;
  StoredType dtype = StoredType::f32;
  std::vector<int64_t> dims;
  int64_t elements = 0;
  int64_t begin = 0, end = 0;  // its bytes in the file
};

// A file mapped into memory, read-only: opening it reads the header, and a tensor's pages are read
// when they are touched. Everything that the header says is checked when it is opened, so that no
// tensor reaches beyond the file; UserError names the file and the tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;

  const std::string& path() const { return path_; }
  // in the order of their bytes
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(const std::string& name) const;  // null if there is none
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::span<const std::byte> bytes(const StoredTensor& tensor) const;

 private:
  void read_header();

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string, size_t> places_;
  std::map<std::string, std::string> metadata_;
};

// A tensor that is yet to be written. `produce` hands over exactly its bytes, in pieces of any
// size.
struct TensorSource {
  std::string name;
  StoredType dtype = StoredType::f32;
  std::vector<int64_t> dims;
  std::function<void(const AppendBytes&)> produce;
};
int64_t source_bytes(const TensorSource& source);

// Writes a file that is whole or not there. Tensors of larger elements come first, so that all are
// aligned; otherwise they keep the given order, and `produce` is called once for each in the order
// written. Metadata is {"format": "pt"}, which transformers asks for. Answers the file's digest
// (base/file_digest.h).
Sha256Digest write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors);

std::string shape_text(const std::vector<int64_t>& dims);  // "[2, 3]"

}  // namespace veil
