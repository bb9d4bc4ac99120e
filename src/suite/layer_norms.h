// What the per-sample norms of each layer take, of records that were profiled by layers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/plots.h"
#include "report/suite_page.h"

namespace veil {

struct LayerNorm {
  std::string layer;      // "embed", "layers.0", "head"
  double ms = 0;          // of a step
  bool backward = false;  // the row computes gradients of inputs as well
};
// In the order of the model. Empty if the record has no norms or no times of layers.
std::vector<LayerNorm> layer_norms(const Record& record);

// `records`: one per mode. None without norms.
std::vector<Plot> layer_norm_plots(const std::vector<Record>& records);
std::optional<PageTable> layer_norm_table(const std::vector<Record>& records);

// "Norms by layer, flash: layers.1 takes most, 2.23 ms of 5.09 ms (44%)."; "" without norms.
std::string layer_norm_words(const Record& record);

}  // namespace veil
