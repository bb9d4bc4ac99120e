#include "privacy/clip_method.h"

#include <fmt/format.h>

#include <algorithm>

namespace veil::privacy {

const NameTable<PassKind>& names(PassKind) {
  static const NameTable<PassKind> table = {{PassKind::keep, "keep"},
                                            {PassKind::book, "book", {"bookkeeping"}},
                                            {PassKind::two_pass, "two-pass", {"two_pass"}},
                                            {PassKind::per_layer, "per-layer", {"per_layer"}}};
  return table;
}

std::string plan_name(PassKind pass, int combine_every) {
  if (combine_every == 1) return name_of(pass);
  return fmt::format("{}, {} micro-batches at once", name_of(pass), combine_every);
}

ClipLayers clip_layers(const ModelShape& shape, bool by_layer) {
  const size_t blocks = shape.blocks.size() + 1;
  auto params_of = [&](size_t block) -> const std::vector<ParamId>& {
    return block + 1 == blocks ? shape.loss.params : shape.blocks[block].params;
  };
  ClipLayers layers;
  layers.of_block.assign(blocks, 0);
  layers.of_param.assign(shape.params.size(), 0);
  if (!by_layer) return layers;
  // A block joins the first one that it shares a parameter with.
  std::vector<int> owner(shape.params.size(), -1);
  std::vector<int> group(blocks);
  for (size_t b = 0; b < blocks; ++b) {
    group[b] = static_cast<int>(b);
    for (ParamId id : params_of(b)) {
      int& first = owner[static_cast<size_t>(id)];
      if (first < 0) first = static_cast<int>(b);
      group[b] = std::min(group[b], group[static_cast<size_t>(first)]);
    }
  }
  layers.count = 0;
  std::vector<int> number(blocks, -1);
  for (size_t b = 0; b < blocks; ++b) {
    int& of_group = number[static_cast<size_t>(group[b])];
    const bool trained = std::any_of(params_of(b).begin(), params_of(b).end(), [&](ParamId id) {
      return !shape.params[static_cast<size_t>(id)].frozen;
    });
    if (of_group < 0 && trained) of_group = layers.count++;
    layers.of_block[b] = std::max(0, of_group);
    for (ParamId id : params_of(b)) layers.of_param[static_cast<size_t>(id)] = layers.of_block[b];
  }
  return layers;
}

ClipMethod uniform_method(const ModelShape& shape, PassKind pass, NormRule rule) {
  ClipMethod method;
  method.pass = pass;
  method.rules.assign(shape.params.size(), rule);
  method.layers = pass == PassKind::per_layer;
  return method;
}

}  // namespace veil::privacy
