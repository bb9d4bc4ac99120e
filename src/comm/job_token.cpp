#include "comm/job_token.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "base/sha256.h"

namespace veil {
namespace {

std::string bytes_of(const Sha256Digest& digest) {
  return {digest.begin(), digest.end()};
}

// The key in the file, if it is of this user alone.
std::string read_user_key(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return "";
  struct stat file {};
  char text[128];
  const bool own = fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_uid == geteuid() &&
                   (file.st_mode & 077) == 0;
  const ssize_t n = own ? read(fd, text, sizeof text) : -1;
  close(fd);
  return n >= static_cast<ssize_t>(kShortestToken) ? std::string(text, static_cast<size_t>(n)) : "";
}

}  // namespace

std::string random_hex(int bytes) {
  std::vector<uint8_t> random(static_cast<size_t>(bytes));
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    throw std::runtime_error(fmt::format("getrandom: {}", std::strerror(errno)));
  std::string text;
  for (const uint8_t byte : random) text += fmt::format("{:02x}", byte);
  return text;
}

std::string keyed_hash(std::string_view key, std::string_view message) {
  constexpr size_t kBlock = 64;
  std::string inner = key.size() > kBlock ? bytes_of(sha256(key)) : std::string(key);
  inner.resize(kBlock, '\0');
  std::string outer = inner;
  for (size_t i = 0; i < kBlock; ++i) {
    inner[i] = static_cast<char>(inner[i] ^ 0x36);
    outer[i] = static_cast<char>(outer[i] ^ 0x5c);
  }
  inner += message;
  outer += bytes_of(sha256(inner));
  return digest_text(sha256(outer));
}

bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned different = 0;
  for (size_t i = 0; i < a.size(); ++i) different |= static_cast<unsigned char>(a[i] ^ b[i]);
  return different == 0;
}

std::string join_proof(const std::string& token, const std::string& challenge,
                       const std::string& nonce, int rank, const std::string& port) {
  return keyed_hash(token, fmt::format("veil join\n{}\n{}\n{}\n{}", challenge, nonce, rank, port));
}

std::string places_proof(const std::string& token, const std::string& nonce,
                         const std::string& places) {
  return keyed_hash(token, fmt::format("veil places\n{}\n{}", nonce, places));
}

std::string user_key(const std::string& path) {
  if (path.empty()) return "";
  if (std::string key = read_user_key(path); !key.empty()) return key;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  // Ranks of several machines may make it at once: the first link counts, and all read that one.
  const std::string made = fmt::format("{}.{}.tmp", path, random_hex(8));
  const int fd = open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return "";
  const std::string key = random_hex(32);
  const bool written = write(fd, key.data(), key.size()) == static_cast<ssize_t>(key.size());
  close(fd);
  if (written) (void)!link(made.c_str(), path.c_str());  // never replaces a file that is there
  unlink(made.c_str());
  return read_user_key(path);
}

}  // namespace veil
