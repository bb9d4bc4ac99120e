// An image as a row of patches, from left to right and from top to bottom.
#pragma once

#include "tensor/device.h"

namespace veil {

struct PatchGrid {
  int64_t size = 0, patch = 0, channels = 0;  // of the image's side and of a patch's

  int64_t side() const { return size / patch; }
  int64_t tokens() const { return side() * side(); }
  int64_t patch_numel() const { return channels * patch * patch; }

  // [batch, channels, size, size] as a view with dimensions batch, patch row, patch column,
  // channel, row in the patch, column in it.
  Tensor split(const Tensor& images) const {
    return images.view({images.size(0), channels, side(), patch, side(), patch})
        .permute({0, 2, 4, 1, 3, 5});
  }
  // [batch, tokens, patch_numel] with [channel, row, column] inside a patch, as a convolution's
  // kernel has them. Contiguous: patches of one pixel would be a view of the image.
  Tensor channels_first(const Tensor& images) const {
    return split(images).reshape({images.size(0), tokens(), patch_numel()}).contiguous();
  }
  // The same with [row, column, channel], as a model's last layer has them.
  Tensor channels_last(const Tensor& images) const {
    return split(images)
        .permute({0, 1, 2, 4, 5, 3})
        .reshape({images.size(0), tokens(), patch_numel()})
        .contiguous();
  }
  // Back from channels_last: [batch, channels, size, size].
  Tensor image(const Tensor& patches) const {
    return patches.view({patches.size(0), side(), side(), patch, patch, channels})
        .permute({0, 5, 1, 3, 2, 4})
        .reshape({patches.size(0), channels, size, size})
        .contiguous();
  }
};

}  // namespace veil
