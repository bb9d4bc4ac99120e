#include "data/byte_source.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace veil::data {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;

bool has_ending(const std::string& path, const char* ending) {
  return canonical(path).ends_with(ending);
}

}  // namespace

PlainBytes::PlainBytes(const std::string& path) : path_(path), stream_(path, std::ios::binary) {
  if (!stream_) user_error("cannot read '{}': {}", path, std::strerror(errno));
}

size_t PlainBytes::read(char* bytes, size_t count) {
  stream_.read(bytes, static_cast<std::streamsize>(count));
  if (stream_.bad()) user_error("cannot read '{}' any further", path_);
  read_ += stream_.gcount();
  return static_cast<size_t>(stream_.gcount());
}

std::string without_packing(const std::string& path) {
  if (has_ending(path, ".gz")) return path.substr(0, path.size() - 3);
  if (has_ending(path, ".zst")) return path.substr(0, path.size() - 4);
  return path;
}

std::unique_ptr<ByteSource> open_bytes(const std::string& path) {
  if (has_ending(path, ".gz")) return open_gzip(path);
  if (has_ending(path, ".zst")) return open_zstd(path);
  return std::make_unique<PlainBytes>(path);
}

std::string read_all(ByteSource& source) {
  std::string content;
  for (size_t size = 0;;) {
    content.resize(size + kReadBytes);
    const size_t more = source.read(content.data() + size, kReadBytes);
    size += more;
    if (more == kReadBytes) continue;
    content.resize(size);
    return content;
  }
}

bool LineReader::next(std::string& line) {
  line.clear();
  while (true) {
    const size_t end = buffer_.find('\n', position_);
    if (end != std::string::npos) {
      line.append(buffer_, position_, end - position_);
      position_ = end + 1;
      return true;
    }
    line.append(buffer_, position_);
    position_ = buffer_.size();
    if (ended_) return !line.empty();
    buffer_.resize(kReadBytes);
    buffer_.resize(source_->read(buffer_.data(), kReadBytes));
    position_ = 0;
    ended_ = buffer_.empty();
  }
}

}  // namespace veil::data
