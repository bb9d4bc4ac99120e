#include "profile/tensorboard.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>

#include "base/error.h"
#include "base/files.h"
#include "base/process.h"

namespace veil {

namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value & 1 ? (value >> 1) ^ 0x82F63B78u : value >> 1;
    table[i] = value;
  }
  return table;
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <typename Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(Number); ++i) bytes += static_cast<char>(number >> (8 * i) & 0xFF);
  return bytes;
}

// Protocol buffers, as far as an Event needs them: a field is its number and wire type, then the
// value.
std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  return bytes + static_cast<char>(number);
}

std::string varint_field(int field, int64_t value) {
  return varint(static_cast<uint64_t>(field) << 3 | 0) + varint(static_cast<uint64_t>(value));
}

std::string double_field(int field, double value) {
  return varint(static_cast<uint64_t>(field) << 3 | 1) +
         little_endian(std::bit_cast<uint64_t>(value));
}

std::string float_field(int field, float value) {
  return varint(static_cast<uint64_t>(field) << 3 | 5) +
         little_endian(std::bit_cast<uint32_t>(value));
}

std::string bytes_field(int field, std::string_view value) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(value.size()) + std::string(value);
}

// Field numbers of tensorflow's event.proto and summary.proto.
constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimpleValue = 2;

std::string new_event_path(const std::string& folder) {
  static std::atomic<int> count{0};
  return join_path(
      folder, fmt::format("events.out.tfevents.{}.{}.{}.{}", static_cast<int64_t>(wall_seconds()),
                          host_name(), getpid(), count++));
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_crc_table();
  uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xA282EAD8u;
}

ScalarLog::ScalarLog(const std::string& folder, bool owner_only) {
  ensure_folder_writable(folder);
  path_ = new_event_path(folder);
  if (owner_only) write_file_atomically(path_, "", owner_only);
  file_.open(path_, std::ios::binary);
  if (!file_) user_error("cannot write '{}'", path_);
  record(double_field(kEventWallTime, wall_seconds()) +
         bytes_field(kEventFileVersion, "brain.Event:2"));
}

void ScalarLog::add(const std::string& tag, double value, int64_t step) {
  const std::string scalar =
      bytes_field(kValueTag, tag) + float_field(kValueSimpleValue, static_cast<float>(value));
  record(double_field(kEventWallTime, wall_seconds()) + varint_field(kEventStep, step) +
         bytes_field(kEventSummary, bytes_field(kSummaryValue, scalar)));
}

// TFRecord: length, its checksum, the bytes, their checksum.
void ScalarLog::record(std::string_view event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  file_ << length << little_endian(masked_crc32c(length)) << event
        << little_endian(masked_crc32c(event));
  file_.flush();
  if (!file_) user_error("cannot write '{}': is the disk full?", path_);
}

}  // namespace veil
