// Byte pair encoding of one piece of text: its bytes are tokens, and of all neighbours that have a
// merge, the pair of the lowest rank (the leftmost of several) becomes one token, until none has.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace veil::data {

struct Merge {
  int32_t left = 0, right = 0, result = 0;  // tokens; a merge's rank is its place in the list
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
    std::vector<Candidate> heap;
  };

  Bpe(const std::array<int32_t, 256>& token_of_byte, const std::vector<Merge>& merges);

  // Appends the tokens of `piece` to `tokens`; n log n in its bytes.
  void encode(std::string_view piece, Workspace& workspace, std::vector<int32_t>& tokens) const;

 private:
  struct Slot {
    uint64_t pair;  // left << 32 | right
    int32_t rank, result;
  };
  const Slot* find(int32_t left, int32_t right) const;
  void consider(Workspace& workspace, int32_t place) const;

  std::array<int32_t, 256> token_of_byte_;
  std::vector<Slot> slots_;  // open addressing, a power of two
};

// The alphabet of byte-level BPE, as GPT-2 wrote it first: each byte stands as one printable
// character, so that a vocabulary can be a table of strings.
char32_t byte_to_character(uint8_t byte);

// The bytes that a word of the alphabet stands for; nothing where a character is not of the
// alphabet.
std::optional<std::string> bytes_of_word(std::string_view word);

}  // namespace veil::data
