#include "privacy/secret.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files.h"

namespace veil::privacy {
namespace {

enum BlockKind : uint32_t { kLength = 1, kNumber = 2, kEnd = 3 };
// "/tag": apart from derive_key's second step; nonces are random, so its first one never meets it
constexpr uint32_t kTagDomain = 0x6761742Fu;

template <size_t Size>
void fill(std::array<uint8_t, Size>& bytes) {
  for (size_t done = 0; done < Size;) {
    const ssize_t got = getrandom(bytes.data() + done, Size - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw UserError(
          fmt::format("the operating system gives no random bytes: {}", std::strerror(errno)),
          kExitFailed);
    done += static_cast<size_t>(got);
  }
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

RunSecret draw_secret() {
  RunSecret secret;
  fill(secret);
  return secret;
}

RunNonce draw_nonce() {
  RunNonce nonce;
  fill(nonce);
  return nonce;
}

RunSecret read_secret(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0)
    field_error("secret_file", "{}: cannot read '{}': {}", path, path, std::strerror(errno));
  if (!S_ISREG(facts.st_mode)) field_error("secret_file", "{}: it is not a file", path);
  if ((facts.st_mode & 077) != 0)
    field_error("secret_file",
                "{}: it may be read by others (mode {:o}), allowed is its owner alone; run chmod "
                "600 on it",
                path, facts.st_mode & 0777);
  const std::string content = read_file(path);
  RunSecret secret;
  // Random bytes are not all characters of a text: once in 10^13 secrets. Hexadecimal digits that
  // were cut in half are.
  const bool is_text = std::all_of(content.begin(), content.end(), [](unsigned char c) {
    return (c >= 0x20 && c < 0x7F) || (c >= '\t' && c <= '\r');
  });
  if (content.size() == secret.size() && is_text)
    field_error("secret_file",
                "{} holds 32 characters of text, not 32 random bytes: allowed are those or 64 "
                "hexadecimal digits, as of `openssl rand -hex 32`",
                path);
  if (content.size() == secret.size()) {
    std::memcpy(secret.data(), content.data(), secret.size());
    return secret;
  }
  const size_t begin = content.find_first_not_of(" \t\r\n"),
               end = content.find_last_not_of(" \t\r\n");
  const std::string_view text = begin == std::string::npos
                                    ? std::string_view()
                                    : std::string_view(content).substr(begin, end - begin + 1);
  if (!from_hex(text, secret.data(), secret.size()))
    field_error("secret_file",
                "{} holds no secret: allowed are 32 random bytes or 64 hexadecimal digits, as of "
                "`openssl rand -hex 32`",
                path);
  return secret;
}

void write_secret(const std::string& path, const RunSecret& secret) {
  write_file_atomically(path, hex(secret.data(), secret.size()) + "\n", /*owner_only=*/true);
}

std::string hex(const uint8_t* bytes, size_t count) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

bool from_hex(std::string_view text, uint8_t* bytes, size_t count) {
  if (text.size() != 2 * count) return false;
  for (const char c : text) {
    if (digit(c) < 0) return false;
  }
  for (size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<uint8_t>(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
  return true;
}

SecretTag::SecretTag(const RunSecret& secret, std::string_view purpose) {
  for (int i = 0; i < 8; ++i) state_.word[i] = word_at(secret.data() + 4 * i);
  block(kTagDomain, 0x6C696576u, 0x2F31762Fu, 0);  // "veil/v1/"
  add(purpose);
}

void SecretTag::add(std::string_view bytes) {
  const auto size = static_cast<uint64_t>(bytes.size());
  block(static_cast<uint32_t>(size), static_cast<uint32_t>(size >> 32), 0, kLength);
  for (size_t at = 0; at < bytes.size(); at += 16) {
    uint8_t piece[16] = {};
    std::memcpy(piece, bytes.data() + at, std::min<size_t>(16, bytes.size() - at));
    block(word_at(piece), word_at(piece + 4), word_at(piece + 8), word_at(piece + 12));
  }
}

void SecretTag::add(uint64_t number) {
  block(static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, kNumber);
}

RunNonce SecretTag::value() const {
  const ChaChaKey last = hchacha20(state_, 0, 0, 0, kEnd);
  RunNonce result;
  for (int i = 0; i < 16; ++i)
    result[static_cast<size_t>(i)] = static_cast<uint8_t>(last.word[i / 4] >> (8 * (i % 4)));
  return result;
}

std::string fingerprint(const RunSecret& secret) {
  return hex(SecretTag(secret, "fingerprint").value().data(), 8);
}

}  // namespace veil::privacy
