#include "profile/scalars.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"

namespace veil {
namespace {

// Protocol buffers, as much as an Event needs: double wall_time = 1, int64 step = 2, string file_version = 3, Summary summary = 5
// { Value value = 1 { string tag = 1, float simple_value = 2 } }.
void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

template <typename Number>
void put_fixed(std::string& out, Number value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void put_bytes(std::string& out, int field, const std::string& bytes) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_head() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  put_varint(event, 1 << 3 | 1);
  put_fixed(event, std::chrono::duration<double>(now).count());
  return event;
}

uint32_t masked(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

}  // namespace

uint32_t crc32c(const void* bytes, size_t count) {
  static const auto table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ 0x82F63B78u : value >> 1;
      made[i] = value;
    }
    return made;
  }();
  uint32_t crc = ~0u;
  const auto* at = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < count; ++i) crc = table[(crc ^ at[i]) & 0xFF] ^ crc >> 8;
  return ~crc;
}

ScalarLog::ScalarLog(const std::string& folder) {
  ensure_folder_writable(folder);
  const auto seconds = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  path_ = join_path(folder, fmt::format("events.out.tfevents.{}.{}.veil", seconds / 1000, seconds % 1000 * 100000 + getpid() % 100000));
  file_ = std::fopen(path_.c_str(), "wb");
  if (!file_) user_error("{}: cannot be written: {}", path_, std::strerror(errno));
  std::string event = event_head();
  put_bytes(event, 3, "brain.Event:2");
  write(event);
}

ScalarLog::~ScalarLog() {
  if (file_) std::fclose(file_);
}

void ScalarLog::add(const std::string& tag, int64_t step, double value) {
  std::string entry;
  put_bytes(entry, 1, tag);
  put_varint(entry, 2 << 3 | 5);
  put_fixed(entry, static_cast<float>(value));
  std::string summary;
  put_bytes(summary, 1, entry);
  std::string event = event_head();
  put_varint(event, 2 << 3 | 0);
  put_varint(event, static_cast<uint64_t>(step));
  put_bytes(event, 5, summary);
  write(event);
}

void ScalarLog::write(const std::string& event) {
  std::string record;
  put_fixed(record, static_cast<uint64_t>(event.size()));
  put_fixed(record, masked(crc32c(record.data(), 8)));
  record += event;
  put_fixed(record, masked(crc32c(event.data(), event.size())));
  if (std::fwrite(record.data(), 1, record.size(), file_) != record.size() || std::fflush(file_) != 0)
    user_error("{}: cannot be written: {}", path_, std::strerror(errno));
}

}  // namespace veil
