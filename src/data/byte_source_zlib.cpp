#include <zlib.h>

#include <vector>

#include "base/error.h"
#include "data/byte_source.h"

namespace veil::data {
namespace {

class GzipBytes final : public ByteSource {
 public:
  explicit GzipBytes(const std::string& path) : path_(path), packed_(path), input_(kInputBytes) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    VEIL_CHECK(inflateInit2(&stream_, kGzipOnly) == Z_OK, "zlib has no memory");
  }
  ~GzipBytes() override { inflateEnd(&stream_); }
  GzipBytes(const GzipBytes&) = delete;
  GzipBytes& operator=(const GzipBytes&) = delete;

  size_t read(char* bytes, size_t count) override {
    stream_.next_out = reinterpret_cast<Bytef*>(bytes);
    stream_.avail_out = static_cast<uInt>(count);
    while (stream_.avail_out > 0 && !ended_) {
      if (stream_.avail_in == 0) refill();
      if (stream_.avail_in == 0) {
        if (!between_members_) user_error("'{}' is no whole gzip file: it is cut short", path_);
        ended_ = true;
        break;
      }
      // Files that were joined are one: the next member begins where the last ended.
      if (between_members_) inflateReset(&stream_);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      between_members_ = result == Z_STREAM_END;
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        user_error("'{}' is no whole gzip file: {}", path_,
                   stream_.msg ? stream_.msg : "its data is damaged");
    }
    return count - stream_.avail_out;
  }
  int64_t file_bytes_read() const override { return packed_.file_bytes_read(); }

 private:
  static constexpr size_t kInputBytes = size_t{64} << 10;

  void refill() {
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(packed_.read(input_.data(), input_.size()));
  }

  std::string path_;
  PlainBytes packed_;
  std::vector<char> input_;
  z_stream stream_{};
  bool ended_ = false, between_members_ = false;
};

}  // namespace

bool built_with_zlib() {
  return true;
}

std::unique_ptr<ByteSource> open_gzip(const std::string& path) {
  return std::make_unique<GzipBytes>(path);
}

}  // namespace veil::data
