#include "record/metrics_line.h"

#include <limits>

#include "record/fields.h"

namespace veil {

using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kEpsilon = "epsilon";
constexpr const char* kInfinite = "inf";  // JSON has no number for it

}  // namespace

template <typename Visit>
void fields(MetricsLine& l, Visit& visit) {
  visit("step", l.step);
  visit(kEpsilon, l.epsilon);
  visit("clip_norm", l.clip_norm);
  visit("epoch", l.epoch);
  visit.always_if(l.is_step(), "loss", l.loss);  // null: not a number
  visit("grad_norm", l.grad_norm);
  visit("learning_rate", l.learning_rate);
  visit("samples", l.samples);
  visit("bad_samples", l.bad_samples);
  visit("below_clip_norm", l.below_clip_norm);
  visit("seconds", l.seconds);
  visit("tokens_per_second", l.tokens_per_second);
  visit("waited_for_data_seconds", l.waited_for_data_seconds);
  visit("peak_memory_bytes", l.peak_memory_bytes);
  visit("left_seconds", l.left_seconds);
  visit("mfu", l.mfu);
  visit("held_out_loss", l.held_out_loss);
  visit("held_out_samples", l.held_out_samples);
  visit("held_out_accuracy", l.held_out_accuracy);
  visit("held_out_perplexity", l.held_out_perplexity);
  visit("held_out_tokens", l.held_out_tokens);
  visit("not_private", l.not_private);
  visit("held_out_weights", l.held_out_weights);
}

Json to_json(const MetricsLine& line) {
  Json json = Json::object();
  FieldWriter writer(json);
  fields(const_cast<MetricsLine&>(line), writer);
  if (line.epsilon && std::isinf(*line.epsilon)) json[kEpsilon] = kInfinite;
  return json;
}

MetricsLine metrics_line_from_json(const Json& json) {
  MetricsLine line;
  Json finite = json;
  const auto epsilon = finite.find(kEpsilon);
  const bool infinite = epsilon != finite.end() && *epsilon == kInfinite;
  if (infinite) finite.erase(kEpsilon);
  FieldReader::read("line", finite, line);
  if (infinite) line.epsilon = std::numeric_limits<double>::infinity();
  return line;
}

}  // namespace veil
