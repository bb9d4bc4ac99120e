// The bytes of a data file, unpacked where its name ends in .gz or .zst.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

namespace veil::data {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Up to `count` bytes into `bytes`; fewer only at the end, 0 behind it. UserError if the file
  // cannot be read or is damaged.
  virtual size_t read(char* bytes, size_t count) = 0;
  virtual int64_t file_bytes_read() const = 0;  // of the file as it is stored
};

// MissingBackend for a packed file in a build without its library (VEIL_ZLIB, VEIL_ZSTD).
std::unique_ptr<ByteSource> open_bytes(const std::string& path);

// A file as it is, and what opens the packed ones.
class PlainBytes final : public ByteSource {
 public:
  explicit PlainBytes(const std::string& path);
  size_t read(char* bytes, size_t count) override;
  int64_t file_bytes_read() const override { return read_; }

 private:
  std::string path_;
  std::ifstream stream_;
  int64_t read_ = 0;
};
std::unique_ptr<ByteSource> open_gzip(const std::string& path);
std::unique_ptr<ByteSource> open_zstd(const std::string& path);
bool built_with_zlib();
bool built_with_zstd();

// "a/b.jsonl.gz" is "a/b.jsonl", packed.
std::string without_packing(const std::string& path);

std::string read_all(ByteSource& source);

class LineReader {
 public:
  explicit LineReader(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {}
  // The next line without its end; false behind the last.
  bool next(std::string& line);
  int64_t file_bytes_read() const { return source_->file_bytes_read(); }

 private:
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t position_ = 0;
  bool ended_ = false;
};

}  // namespace veil::data
