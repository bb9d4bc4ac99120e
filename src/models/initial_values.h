// How a parameter starts by its own rule (Init, models/shape.h).
#pragma once

#include "kernels/random.h"
#include "models/shape.h"

namespace veil {

// `first` is the index of out's first element, by which the generator is counted.
inline void fill_by_rule(const Init& init, const Tensor& out, uint64_t seed, int64_t first) {
  switch (init.kind) {
    case Init::Kind::uniform:
      return fill_uniform(out, init.scale, seed, RandomDomain::parameters, first);
    case Init::Kind::normal:
      return fill_normal(out, init.scale, seed, RandomDomain::parameters, first);
    case Init::Kind::constant:
      out.fill_(init.scale);
  }
}

}  // namespace veil
