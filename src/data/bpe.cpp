#include "data/bpe.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "base/utf8.h"

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

Bpe::Bpe(FirstTokens first, const std::vector<Merge>& merges)
    : first_(std::move(first)), slots_(std::bit_ceil(merges.size() * 2 + 2), Slot{kEmpty, 0, 0}) {
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

// One symbol for each byte or character of the piece. Answers whether some had none.
bool Bpe::begin_with(std::string_view piece, Workspace& workspace) const {
  if (!first_.by_byte) return begin_with_characters(piece, workspace);
  bool dropped = false;
  for (size_t place = 0; place < piece.size(); ++place) {
    const int32_t known = first_.of_byte[static_cast<uint8_t>(piece[place])];
    const int32_t token = known < 0 ? first_.unknown : known;
    if (token < 0) {
      dropped = true;
      continue;
    }
    // A run of unknown bytes is one token if the file asks for it.
    const bool fused = known < 0 && first_.fuse_unknown && !workspace.symbols.empty() &&
                       workspace.spans.back().end == place &&
                       workspace.symbols.back().token == first_.unknown;
    if (fused) {
      workspace.spans.back().end = place + 1;
      continue;
    }
    workspace.symbols.push_back({token, 0, 0});
    workspace.spans.push_back({place, place + 1});
  }
  return dropped;
}

bool Bpe::begin_with_characters(std::string_view piece, Workspace& workspace) const {
  const auto add = [&](int32_t token, Span span) {
    workspace.symbols.push_back({token, 0, 0});
    workspace.spans.push_back(span);
  };
  bool dropped = false;
  // An unknown waits for what follows, because it may grow. Bytes of a fallback overtake it: the
  // library whose files these are does the same.
  Span unknown;  // empty: none waits
  const auto end_unknown = [&] {
    if (unknown.end > unknown.begin) add(first_.unknown, unknown);
    unknown = {};
  };
  for (size_t position = 0; position < piece.size();) {
    const size_t begin = position;
    const char32_t character = next_character(piece, position);
    if (const auto found = first_.of_character.find(character);
        found != first_.of_character.end()) {
      end_unknown();
      add(found->second, {begin, position});
      continue;
    }
    bool all_bytes = true;
    for (size_t at = begin; at < position; ++at)
      all_bytes = all_bytes && first_.of_byte[static_cast<uint8_t>(piece[at])] >= 0;
    if (all_bytes) {
      for (size_t at = begin; at < position; ++at)
        add(first_.of_byte[static_cast<uint8_t>(piece[at])], {at, at + 1});
    } else if (first_.unknown < 0) {
      dropped = true;
    } else if (unknown.end > 0 && first_.fuse_unknown) {
      unknown.end = position;
    } else {
      end_unknown();
      unknown = {begin, position};
    }
  }
  end_unknown();
  return dropped;
}

bool Bpe::encode(std::string_view piece, Workspace& workspace, std::vector<int32_t>& tokens,
                 std::vector<Span>* spans) const {
  if (piece.size() > static_cast<size_t>(INT32_MAX)) {
    user_error("a text has {} bytes without a break: allowed are 2 GiB", piece.size());
  }
  auto& symbols = workspace.symbols;
  auto& heap = workspace.heap;
  symbols.clear();
  workspace.spans.clear();
  heap.clear();
  const bool dropped = begin_with(piece, workspace);
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t place = 0; place < count; ++place) {
    symbols[static_cast<size_t>(place)].before = place - 1;
    symbols[static_cast<size_t>(place)].after = place + 1 < count ? place + 1 : -1;
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
    workspace.spans[static_cast<size_t>(top.place)].end =
        workspace.spans[static_cast<size_t>(left.after)].end;
    left.after = right.after;
    if (left.after >= 0) symbols[static_cast<size_t>(left.after)].before = top.place;
    consider(workspace, top.place);
    if (left.before >= 0) consider(workspace, left.before);
  }
  for (size_t place = 0; place < symbols.size(); ++place) {
    if (symbols[place].token < 0) continue;
    tokens.push_back(symbols[place].token);
    if (spans) spans->push_back(workspace.spans[place]);
  }
  return dropped;
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
