// Reports held until the coefficients are known.
#pragma once

#include <vector>

#include "nn/grad_sink.h"
#include "nn/tape.h"

namespace veil::privacy {

// Passes every report on to `norms` and books it under the current block. Tensors are held, not
// copied: blocks do not overwrite what they have reported (nn/grad_sink.h). Of a block whose tape
// will be made again, inputs that are in the tape are not held but found there again.
class BookSink final : public GradSink {
 public:
  BookSink(GradSink& norms, size_t blocks) : norms_(norms), pages_(blocks) {}
  // `remade`: the block's tape, if it is freed and made again before the replay; it lives as long as
  // the block reports.
  void set_block(int block, const Tape* remade = nullptr) {
    block_ = static_cast<size_t>(block);
    remade_ = remade;
  }
  void linear(ReportOf of, const Tensor& a, const Tensor& g) override;
  void embedding(ParamId table, const Tensor& ids, const Tensor& g) override;
  void direct(ParamId param, const Tensor& per_sample) override;

  // Reports what was booked of a block, in its order, and then lets it all go. `tape`: the block's,
  // made again if its bookings need it; otherwise it may be empty.
  void replay(int block, const Tape& tape, GradSink& to);
  void clear();

 private:
  // A view of one of a tape's tensors.
  struct Place {
    int tensor = -1;  // none
    std::vector<int64_t> sizes = {}, strides = {};
    int64_t offset = 0;  // into its storage
  };
  struct Entry {
    enum class Kind { linear, embedding, direct } kind;
    ReportOf of;
    Tensor a, g;
    // if they are not held; a weight that is stored turned reports its input as g
    Place a_place = {}, g_place = {};
  };
  Place place_of(const Tensor& tensor) const;

  GradSink& norms_;
  size_t block_ = 0;
  const Tape* remade_ = nullptr;
  std::vector<std::vector<Entry>> pages_;  // by block
};

}  // namespace veil::privacy
