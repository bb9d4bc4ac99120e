// Reports held until the coefficients are known.
#pragma once

#include <vector>

#include "nn/grad_sink.h"

namespace veil::privacy {

// Passes every report on to `norms` and books it under the current block. Tensors are held, not copied: blocks do not overwrite what they have reported (nn/grad_sink.h).
class BookSink final : public GradSink {
 public:
  BookSink(GradSink& norms, size_t blocks) : norms_(norms), pages_(blocks) {}
  void set_block(int block) { block_ = static_cast<size_t>(block); }
  void linear(ReportOf of, const Tensor& a, const Tensor& g) override;
  void embedding(ParamId table, const Tensor& ids, const Tensor& g) override;
  void direct(ParamId param, const Tensor& per_sample) override;

  // Reports what was booked of a block, in its order, and then lets it all go.
  void replay(int block, GradSink& to);
  void clear();

 private:
  struct Entry {
    enum class Kind { linear, embedding, direct } kind;
    ReportOf of;
    Tensor a, g;
  };
  GradSink& norms_;
  size_t block_ = 0;
  std::vector<std::vector<Entry>> pages_;  // by block
};

}  // namespace veil::privacy
