#include "record/verify_record.h"

#include "record/fields.h"

namespace veil {

using Json = nlohmann::ordered_json;

template <typename Visit>
void fields(VerifyNorm& n, Visit& visit) {
  visit("rank", n.rank);
  visit("sample", n.sample);
  visit("layer", n.layer);
  visit("before", n.before);
  visit("after", n.after);
  visit("counts", n.counts);
}

template <typename Visit>
void fields(VerifyMismatch& m, Visit& visit) {
  visit("what", m.what);
  visit.always_if(true, "parameter", m.parameter);
  visit("rank", m.rank);
  visit("sample", m.sample);
  visit("likely_cause", m.likely_cause);
}

template <typename Visit>
void fields(VerifyRow& r, Visit& visit) {
  visit("model", r.model);
  visit("task", r.task);
  visit("mode", r.mode);
  visit("strategy", r.strategy);
  visit("world", r.world);
  visit("dtype", r.dtype);
  visit("batch_size", r.batch_size);
  visit("micro_batches", r.micro_batches);
  visit("checkpointing", r.checkpointing);
  visit("pass_plan", r.pass_plan);
  visit("rules", r.rules);
  visit("clip", r.clip);
  visit("clip_norm", r.clip_norm);
  visit.always_if(true, "max_grad_diff", r.max_grad_diff);
  visit.always_if(true, "max_norm_diff", r.max_norm_diff);
  visit.always_if(true, "max_coefficient_diff", r.max_coefficient_diff);
  visit("sum_clipped_norms", r.sum_clipped_norms);
  visit("expected_sum_clipped_norms", r.expected_sum_clipped_norms);
  visit("norms", r.norms);
  visit("not_private", r.not_private);
  visit("tolerance", r.tolerance);
  visit("verdict", r.verdict);
  visit("failure", r.failure);
  visit("phases_ms", r.phases_ms);
}

template <typename Visit>
void fields(VerifyNoiseRow& r, Visit& visit) {
  visit("model", r.model);
  visit("task", r.task);
  visit("strategy", r.strategy);
  visit("world", r.world);
  visit("rng", r.rng);
  visit("batch", r.batch);
  visit("optimizer", r.optimizer);
  visit("storage", r.storage);
  visit("sigma", r.sigma);
  visit("clip_norm", r.clip_norm);
  visit("expected_batch", r.expected_batch);
  visit("draws", r.draws);
  visit("mean_z", r.mean_z);
  visit("variance_z", r.variance_z);
  visit("kolmogorov", r.kolmogorov);
  visit("between_shards_z", r.between_shards_z);
  visit("between_steps_z", r.between_steps_z);
  visit("bits_are_the_generators", r.bits_are_the_generators);
  visit("difference_with_samples", r.difference_with_samples);
  visit("digest", r.digest);
  visit.always_if(true, "failures", r.failures);
  visit("verdict", r.verdict);
}

template <typename Visit>
void fields(VerifyRecord& r, Visit& visit) {
  visit("command", r.command);
  visit("config", r.config);
  visit("build", r.build);
  visit("tolerance", r.tolerance);
  visit("verdict", r.verdict);
  visit.always_if(true, "rows", r.rows);
  visit.always_if(true, "noise", r.noise);
}

Json to_json(const VerifyRecord& record) {
  Json json = {{"schema", 1}};
  FieldWriter writer(json);
  fields(const_cast<VerifyRecord&>(record), writer);
  return json;
}

VerifyRecord verify_record_from_json(const Json& json) {
  VerifyRecord record;
  FieldReader::read("verify", json, record);
  return record;
}

}  // namespace veil
