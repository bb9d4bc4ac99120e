#include <zstd.h>

#include <vector>

#include "base/error.h"
#include "data/byte_source.h"

namespace veil::data {
namespace {

class ZstdBytes final : public ByteSource {
 public:
  explicit ZstdBytes(const std::string& path)
      : path_(path), packed_(path), buffer_(ZSTD_DStreamInSize()), stream_(ZSTD_createDStream()) {
    VEIL_CHECK(stream_, "zstd has no memory");
  }
  ~ZstdBytes() override { ZSTD_freeDStream(stream_); }
  ZstdBytes(const ZstdBytes&) = delete;
  ZstdBytes& operator=(const ZstdBytes&) = delete;

  size_t read(char* bytes, size_t count) override {
    ZSTD_outBuffer output{bytes, count, 0};
    while (output.pos < output.size) {
      if (input_.pos == input_.size)
        input_ = {buffer_.data(), packed_.read(buffer_.data(), buffer_.size()), 0};
      const bool at_end = input_.size == 0;
      const size_t before = output.pos;
      const size_t result = ZSTD_decompressStream(stream_, &output, &input_);
      if (ZSTD_isError(result))
        user_error("'{}' is no whole zstd file: {}", path_, ZSTD_getErrorName(result));
      if (!at_end) frame_ended_ = result == 0;
      // What the library still held has been written out.
      if (at_end && output.pos == before) {
        if (!frame_ended_) user_error("'{}' is no whole zstd file: it is cut short", path_);
        break;
      }
      if (at_end) frame_ended_ = result == 0;
    }
    return output.pos;
  }
  int64_t file_bytes_read() const override { return packed_.file_bytes_read(); }

 private:
  std::string path_;
  PlainBytes packed_;
  std::vector<char> buffer_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  ZSTD_DStream* stream_;
  bool frame_ended_ = false;
};

}  // namespace

bool built_with_zstd() {
  return true;
}

std::unique_ptr<ByteSource> open_zstd(const std::string& path) {
  return std::make_unique<ZstdBytes>(path);
}

}  // namespace veil::data
