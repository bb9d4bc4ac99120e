#include "privacy/book_sink.h"

#include "profile/ledger.h"

namespace veil::privacy {
namespace {

// What was a temporary of the layer's is a record now.
const Tensor& held(const Tensor& tensor) {
  ledger::retag(tensor, Category::clip_records, Category::temporary);
  return tensor;
}

}  // namespace

void BookSink::linear(ReportOf of, const Tensor& a, const Tensor& g) {
  norms_.linear(of, a, g);
  pages_[block_].push_back({Entry::Kind::linear, of, held(a), held(g)});
}

void BookSink::embedding(ParamId table, const Tensor& ids, const Tensor& g) {
  norms_.embedding(table, ids, g);
  pages_[block_].push_back({Entry::Kind::embedding, {table}, ids, held(g)});
}

void BookSink::direct(ParamId param, const Tensor& per_sample) {
  norms_.direct(param, per_sample);
  pages_[block_].push_back({Entry::Kind::direct, {param}, {}, held(per_sample)});
}

void BookSink::replay(int block, GradSink& to) {
  std::vector<Entry>& page = pages_[static_cast<size_t>(block)];
  for (const Entry& entry : page) {
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
