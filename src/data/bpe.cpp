#include "data/bpe.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "data/utf8.h"

namespace veil::data {
namespace {

constexpr uint64_t kEmpty = ~uint64_t{0};  // no pair: tokens are not negative

uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

size_t mix(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(pair ^ (pair >> 29));
}

// The heap's top is the lowest rank, and of equal ranks the leftmost place.
bool later(const Bpe::Workspace::Candidate& a, const Bpe::Workspace::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.place > b.place;
}

}  // namespace

Bpe::Bpe(const std::array<int32_t, 256>& token_of_byte, const std::vector<Merge>& merges)
    : token_of_byte_(token_of_byte),
      slots_(std::bit_ceil(merges.size() * 2 + 2), Slot{kEmpty, 0, 0}) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    const uint64_t pair = pair_of(merge.left, merge.right);
    size_t at = mix(pair) & (slots_.size() - 1);
    while (slots_[at].pair != kEmpty && slots_[at].pair != pair)
      at = (at + 1) & (slots_.size() - 1);
    // of a pair named twice the last stays
    slots_[at] = {pair, static_cast<int32_t>(rank), merge.result};
  }
}

const Bpe::Slot* Bpe::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  size_t at = mix(pair) & (slots_.size() - 1);
  while (slots_[at].pair != kEmpty) {
    if (slots_[at].pair == pair) return &slots_[at];
    at = (at + 1) & (slots_.size() - 1);
  }
  return nullptr;
}

// Puts the pair that begins at `place` on the heap, if it has a merge.
void Bpe::consider(Workspace& workspace, int32_t place) const {
  const auto& symbol = workspace.symbols[static_cast<size_t>(place)];
  if (symbol.after < 0) return;
  const Slot* const slot =
      find(symbol.token, workspace.symbols[static_cast<size_t>(symbol.after)].token);
  if (!slot) return;
  workspace.heap.push_back({slot->rank, place, slot->result});
  std::push_heap(workspace.heap.begin(), workspace.heap.end(), later);
}

void Bpe::encode(std::string_view piece, Workspace& workspace, std::vector<int32_t>& tokens) const {
  if (piece.size() > static_cast<size_t>(INT32_MAX)) {
    user_error("a text has {} bytes without a break: allowed are 2 GiB", piece.size());
  }
  auto& symbols = workspace.symbols;
  auto& heap = workspace.heap;
  const auto count = static_cast<int32_t>(piece.size());
  symbols.clear();
  heap.clear();
  for (int32_t place = 0; place < count; ++place) {
    const auto byte = static_cast<uint8_t>(piece[static_cast<size_t>(place)]);
    symbols.push_back({token_of_byte_[byte], place - 1, place + 1 < count ? place + 1 : -1});
  }
  for (int32_t place = 0; place + 1 < count; ++place) consider(workspace, place);

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Workspace::Candidate top = heap.back();
    heap.pop_back();
    auto& left = symbols[static_cast<size_t>(top.place)];
    if (left.token < 0 || left.after < 0) continue;
    auto& right = symbols[static_cast<size_t>(left.after)];
    // The pair may have changed since; it is the result that counts, as in the library whose files
    // these are.
    const Slot* const slot = find(left.token, right.token);
    if (!slot || slot->result != top.result) continue;
    left.token = top.result;
    right.token = -1;
    left.after = right.after;
    if (left.after >= 0) symbols[static_cast<size_t>(left.after)].before = top.place;
    consider(workspace, top.place);
    if (left.before >= 0) consider(workspace, left.before);
  }
  for (const auto& symbol : symbols) {
    if (symbol.token >= 0) tokens.push_back(symbol.token);
  }
}

namespace {

constexpr char32_t kLast = 0x143;  // of the alphabet's characters

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, kLast + 1> byte{};

  // Printable Latin-1 stands for itself; the other 68 bytes take the characters from U+0100 on.
  Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (char32_t value = 0; value < 256; ++value) {
      const bool printable =
          (value >= '!' && value <= '~') || (value >= 0xA1 && value <= 0xFF && value != 0xAD);
      character[value] = printable ? value : next++;
      byte[character[value]] = static_cast<int16_t>(value);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}

}  // namespace

char32_t byte_to_character(uint8_t byte) {
  return alphabet().character[byte];
}

std::optional<std::string> bytes_of_word(std::string_view word) {
  std::string bytes;
  for (size_t position = 0; position < word.size();) {
    const char32_t character = next_character(word, position);
    if (character > kLast || alphabet().byte[character] < 0) return {};
    bytes.push_back(static_cast<char>(alphabet().byte[character]));
  }
  return bytes;
}

}  // namespace veil::data
