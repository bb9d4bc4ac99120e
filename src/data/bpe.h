// Byte pair encoding of one piece of text: its bytes or its characters are tokens, and of all
// neighbours that have a merge, the pair of the lowest rank (the leftmost of several) becomes one
// token, until none has.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/span.h"

namespace veil::data {

struct Merge {
  int32_t left = 0, right = 0, result = 0;  // tokens; a merge's rank is its place in the list
};

// The tokens that a piece begins as. No token is -1.
struct FirstTokens {
  // Byte-level BPE: the bytes of a piece are its tokens. Otherwise its characters are, and one that
  // is not in the vocabulary becomes its bytes if all of them have a token (byte fallback).
  bool by_byte = true;
  std::array<int32_t, 256> of_byte{};
  std::unordered_map<char32_t, int32_t> of_character = {};
  int32_t unknown = -1;       // for what has no token; -1: it is dropped
  bool fuse_unknown = false;  // neighbouring unknowns become one
};

class Bpe {
 public:
  // What one thread needs to merge; it may serve any number of pieces, one after the other.
  struct Workspace {
    struct Symbol {
      // before, after: places of the living neighbours, -1 at the ends; token -1 is dead
      int32_t token, before, after;
    };
    struct Candidate {
      int32_t rank, place, result;
    };
    std::vector<Symbol> symbols;
    std::vector<Span> spans;  // bytes of the piece that each symbol stands for
    std::vector<Candidate> heap;
  };

  Bpe(FirstTokens first, const std::vector<Merge>& merges);

  // Appends the tokens of `piece`, which is UTF-8 unless tokens are bytes, to `tokens` and, unless
  // it is null, the bytes that each covers to `spans`; n log n in its bytes. Answers whether
  // something was dropped.
  bool encode(std::string_view piece, Workspace& workspace, std::vector<int32_t>& tokens,
              std::vector<Span>* spans = nullptr) const;

 private:
  struct Slot {
    uint64_t pair;  // left << 32 | right
    int32_t rank, result;
  };
  const Slot* find(int32_t left, int32_t right) const;
  void consider(Workspace& workspace, int32_t place) const;
  bool begin_with(std::string_view piece, Workspace& workspace) const;
  bool begin_with_characters(std::string_view piece, Workspace& workspace) const;

  FirstTokens first_;
  std::vector<Slot> slots_;  // open addressing, a power of two
};

// The alphabet of byte-level BPE, as GPT-2 wrote it first: each byte stands as one printable
// character, so that a vocabulary can be a table of strings.
char32_t byte_to_character(uint8_t byte);

// The bytes that a word of the alphabet stands for; nothing if a character is not of the
// alphabet.
std::optional<std::string> bytes_of_word(std::string_view word);

}  // namespace veil::data
