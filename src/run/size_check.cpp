#include "run/size_check.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/config_fields.h"

namespace veil {
namespace {

// What one sample takes, as real numbers: no less than any whole number that counts it.
struct SampleCost {
  double parameters = 0;
  double operations = 0;
  double activations = 0;        // numbers that live at the same time
  const char* length = nullptr;  // the field that says how long a sample is
  int64_t length_value = 0;
  // Of eight bytes each; and one gradient per sample, twice.
  double bytes() const { return 8 * activations + 16 * parameters; }
  double most() const { return std::max(operations, bytes()); }
};

double real(int64_t number) {
  return static_cast<double>(number);
}

// Of `layers` blocks with attention: a block keeps some dozens of numbers per token and column, and
// scores of every head where no fused kernel is used.
void add_blocks(SampleCost& cost, double layers, double tokens, double columns, double width,
                double heads) {
  cost.operations += 2 * cost.parameters * tokens + 4 * layers * tokens * tokens * width;
  cost.activations += layers * tokens * (64 * columns + 4 * heads * tokens);
}

SampleCost cost_of(const LanguageConfig& c, int64_t tokens) {
  SampleCost cost;
  const double width = real(c.heads) * real(c.head_dim), keys = real(c.kv_heads) * real(c.head_dim),
               hidden = real(c.hidden), feed = real(c.feed), vocabulary = real(c.vocabulary);
  cost.parameters = hidden * (2 * vocabulary + real(c.positions) + real(c.labels)) +
                    real(c.layers) * hidden * (2 * width + 2 * keys + 3 * feed + 8);
  cost.activations = 4 * real(tokens) * vocabulary;
  add_blocks(cost, real(c.layers), real(tokens), hidden + width + 2 * keys + 2 * feed, width,
             real(c.heads));
  cost.length = "seq_length";
  cost.length_value = tokens;
  return cost;
}

SampleCost cost_of(const DitConfig& c) {
  SampleCost cost;
  const double hidden = real(c.hidden), ratio = real(c.feed_ratio),
               pixels = real(c.channels) * real(c.patch) * real(c.patch),
               side = real(c.image_size / c.patch), tokens = side * side;
  cost.parameters = hidden * (real(c.classes) + 1 + 2 * pixels + tokens) +
                    real(c.layers) * hidden * hidden * (10 + 2 * ratio);
  cost.activations = 4 * tokens * pixels;
  add_blocks(cost, real(c.layers), tokens, hidden * (4 + ratio) + pixels, hidden, real(c.heads));
  cost.length = "image_size";
  cost.length_value = c.image_size;
  return cost;
}

}  // namespace

void check_sizes(const ModelSource& source, const StepSizes& sizes) {
  const int64_t layers = source.diffusion ? source.diffusion->layers
                         : source.config  ? source.config->layers
                                          : sizes.layers;
  if (layers > kMostLayers) field_error("layers", "{}: allowed are 1 to {}", layers, kMostLayers);
  SampleCost cost;
  if (source.diffusion) {
    cost = cost_of(*source.diffusion);
  } else if (source.config) {
    cost = cost_of(*source.config, sizes.seq_length);
  } else {
    const double width = real(sizes.stack_width);
    cost.parameters = real(layers) * width * (width + 1);
    cost.operations = 2 * cost.parameters;
    cost.activations = 8 * real(layers) * width;
  }
  constexpr double kMost = 0x1p62;
  const auto expect_countable = [&](const char* field, int64_t value, double most) {
    if (most > kMost)
      field_error(field,
                  "{}: it makes {:.1e} operations or bytes, and {:.1e} can be counted; "
                  "give less",
                  value, most, kMost);
  };
  if (cost.length) expect_countable(cost.length, cost.length_value, cost.most());
  expect_countable("batch_size", sizes.batch, cost.most() * real(sizes.batch));
}

}  // namespace veil
