#include "privacy/book_sink.h"

#include <ATen/ops/as_strided.h>

#include "profile/ledger.h"

namespace veil::privacy {
namespace {

// What was a temporary of the layer's is a record now.
const Tensor& held(const Tensor& tensor) {
  ledger::retag(tensor, Category::clip_records, Category::temporary);
  return tensor;
}

// All tensors of a tape in a fixed order.
std::vector<const Tensor*> tensors_of(const Tape& tape) {
  std::vector<const Tensor*> all = {&tape.input, &tape.output};
  for (const Tensor& tensor : tape.saved) all.push_back(&tensor);
  for (const Tensor& tensor : tape.kept) all.push_back(&tensor);
  return all;
}

}  // namespace

BookSink::Place BookSink::place_of(const Tensor& a) const {
  if (!remade_) return {};
  const std::vector<const Tensor*> all = tensors_of(*remade_);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i]->defined() && all[i]->is_alias_of(a))
      return {static_cast<int>(i), a.sizes().vec(), a.strides().vec(), a.storage_offset()};
  }
  return {};
}

void BookSink::linear(ReportOf of, const Tensor& a, const Tensor& g) {
  norms_.linear(of, a, g);
  const Place place = place_of(a);
  pages_[block_].push_back({Entry::Kind::linear, of, place.tensor < 0 ? held(a) : Tensor(), held(g), place});
}

void BookSink::embedding(ParamId table, const Tensor& ids, const Tensor& g) {
  norms_.embedding(table, ids, g);
  pages_[block_].push_back({Entry::Kind::embedding, {table}, ids, held(g)});
}

void BookSink::direct(ParamId param, const Tensor& per_sample) {
  norms_.direct(param, per_sample);
  pages_[block_].push_back({Entry::Kind::direct, {param}, {}, held(per_sample)});
}

void BookSink::replay(int block, const Tape& tape, GradSink& to) {
  std::vector<Entry>& page = pages_[static_cast<size_t>(block)];
  const std::vector<const Tensor*> all = tensors_of(tape);
  for (Entry& entry : page) {
    switch (entry.kind) {
      case Entry::Kind::linear:
        if (const Place& at = entry.a_place; at.tensor >= 0)
          entry.a = all.at(static_cast<size_t>(at.tensor))->as_strided(at.sizes, at.strides, at.offset);
        to.linear(entry.of, entry.a, entry.g);
        break;
      case Entry::Kind::embedding:
        to.embedding(entry.of.param, entry.a, entry.g);
        break;
      case Entry::Kind::direct:
        to.direct(entry.of.param, entry.g);
        break;
    }
  }
  page.clear();
}

void BookSink::clear() {
  for (auto& page : pages_) page.clear();
}

}  // namespace veil::privacy
