#include "privacy/book_sink.h"

#include <ATen/ops/as_strided.h>

#include "profile/memory.h"

namespace veil::privacy {
namespace {

// What was a temporary of the layer's is a record now.
const Tensor& held(const Tensor& tensor) {
  memory::retag(tensor, Category::clip_records, Category::temporary);
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

BookSink::Place BookSink::place_of(const Tensor& tensor) const {
  if (!remade_) return {};
  const std::vector<const Tensor*> all = tensors_of(*remade_);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i]->defined() && all[i]->is_alias_of(tensor))
      return {static_cast<int>(i), tensor.sizes().vec(), tensor.strides().vec(),
              tensor.storage_offset()};
  }
  return {};
}

void BookSink::linear(ReportOf of, const Tensor& a, const Tensor& g) {
  norms_.linear(of, a, g);
  const Place a_place = place_of(a), g_place = place_of(g);
  pages_[block_].push_back({Entry::Kind::linear, of, a_place.tensor < 0 ? held(a) : Tensor(),
                            g_place.tensor < 0 ? held(g) : Tensor(), a_place, g_place});
}

void BookSink::embedding(ParamId table, const Tensor& ids, const Tensor& g) {
  norms_.embedding(table, ids, g);
  const Place place = place_of(ids);
  pages_[block_].push_back(
      {Entry::Kind::embedding, {table}, place.tensor < 0 ? ids : Tensor(), held(g), place});
}

void BookSink::direct(ParamId param, const Tensor& per_sample) {
  norms_.direct(param, per_sample);
  pages_[block_].push_back({Entry::Kind::direct, {param}, {}, held(per_sample)});
}

void BookSink::replay(int block, const Tape& tape, GradSink& to) {
  std::vector<Entry>& page = pages_[static_cast<size_t>(block)];
  const std::vector<const Tensor*> all = tensors_of(tape);
  const auto found = [&](const Place& at) {
    return all.at(static_cast<size_t>(at.tensor))->as_strided(at.sizes, at.strides, at.offset);
  };
  for (Entry& entry : page) {
    if (entry.a_place.tensor >= 0) entry.a = found(entry.a_place);
    if (entry.g_place.tensor >= 0) entry.g = found(entry.g_place);
    switch (entry.kind) {
      case Entry::Kind::linear:
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
