// How the processes of a job know each other: by a secret that all of them have and that is never
// sent. Each side proves that it has it by a keyed hash of what the other side chose at random.
#pragma once

#include <string>
#include <string_view>

namespace veil {

inline constexpr size_t kShortestToken = 16;  // characters

std::string random_hex(int bytes);  // from the kernel's generator

// HMAC-SHA-256 (RFC 2104) in hexadecimal.
std::string keyed_hash(std::string_view key, std::string_view message);
// Takes the same time wherever they differ.
bool same_secret(std::string_view a, std::string_view b);

// A joining rank's proof to rank 0, who sent `challenge`; and rank 0's to the rank, who sent
// `nonce`, of what it tells it.
std::string join_proof(const std::string& token, const std::string& challenge,
                       const std::string& nonce, int rank, const std::string& port);
std::string places_proof(const std::string& token, const std::string& nonce,
                         const std::string& places);

// A secret of this user, in a file that is made with mode 0600 if it is not there. "" if that
// cannot be done or another user could have read or written it.
std::string user_key(const std::string& path);

}  // namespace veil
