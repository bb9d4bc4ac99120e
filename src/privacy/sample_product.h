// Products of one sample's tokens with another matrix of the same sample, batched: what the
// clipping sinks are made of.
#pragma once

#include "tensor/device.h"

namespace veil::privacy {

// [n, T, width]; a report without tokens has one.
Tensor samples_of(const Tensor& x);

// As a factor of a product whose result is fp32 (fp64): x itself, or a widened copy if the
// device has no such product (16-bit types on CPU).
Tensor product_factor(const Tensor& x);

// out = x y, or out += x y; [n, ., .] each. out is fp32 if the factors are narrower
// (product_factor), else of their type; its samples may be any distance apart.
void product_into(Tensor& out, const Tensor& x, const Tensor& y, bool add);

}  // namespace veil::privacy
