// The gradient of a table of rows looked up by token.
#pragma once

#include "tensor/device.h"

namespace veil {

// out[id] = the sum of grad over the positions with that id, or out[id] += that with `accumulate`;
// without, all other rows become 0. ids [n] int64, grad [n, width] of any floating type, out
// [vocabulary, width] fp32 or wider (fp64 if grad is) or grad's type; contiguous. Sums run in
// fp32 (fp64) over positions in order, on every device. With coefficients fp64 [samples] each
// position counts by its sample's, positions being [samples, tokens]; those of a sample whose
// coefficient is 0 are passed over. A GPU passes over ids outside the table; the CPU refuses them.
void embedding_grad(const Tensor& ids, const Tensor& grad, const Tensor& out, bool accumulate,
                    const Tensor& coefficients = {});
// The same with a table for each sample: ids [n, positions], grad [n, positions, width], out [n,
// vocabulary * width] with contiguous rows at any distance.
void embedding_grads(const Tensor& ids, const Tensor& grad, const Tensor& out, bool accumulate);
// Likewise, added to what is there; squared[i], the sum of squares of out[i] before, becomes that of
// out[i] afterwards. squared fp64 [n]. A GPU reads only the rows that change, and all of a table
// that loses at least half of its squares: a difference of sums has too few digits left there.
void embedding_grads_normed(const Tensor& ids, const Tensor& grad, const Tensor& out,
                            const Tensor& squared);
// What sorting takes on a GPU meanwhile: the sorted ids and their positions. The workspace that
// at::sort takes for itself comes on top and is not counted. None on CPU.
int64_t embedding_grad_scratch_bytes(int64_t positions, bool on_gpu);

}  // namespace veil
