// How fast a device multiplies and moves, measured once: what clip methods are priced by.
#pragma once

#include <string>

#include "tensor/device.h"

namespace veil {

struct Roofline {
  double flops_per_second = 0;  // of a large product in the compute type
  double bytes_per_second = 0;  // read or written, of large tensors
  double launch_seconds = 0;    // from one small operation to the next
  std::string source;           // "measured", "cached" or "assumed"
};

// What a device of that kind is taken for if none is at hand: an H200, or one core.
Roofline assumed_roofline(bool on_gpu, DType compute);
// A few products and copies: about a tenth of a second.
Roofline measure_roofline(Device device, DType compute);
// From the file at `path`, which holds one for each device and type; measured and added if it
// has none. A file that cannot be read or written is as if it were not there.
Roofline cached_roofline(const std::string& path, Device device, DType compute);

}  // namespace veil
