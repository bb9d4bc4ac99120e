// A 64-bit hash of bytes that is the same on every machine and in every version: it names
// tokenizers and decides which documents are held out. Not cryptographic: two texts with the same
// one are found in minutes, so it must decide nothing else (base/sha256.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace veil::data {

// FNV-1a, then SplitMix64's finalizer, so that every bit depends on every byte.
constexpr uint64_t content_hash(std::string_view bytes) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3u;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9u;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBu;
  return hash ^ (hash >> 31);
}

}  // namespace veil::data
