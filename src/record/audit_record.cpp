#include "record/audit_record.h"

#include <fmt/core.h>

#include "base/outputs.h"
#include "base/units.h"
#include "record/fields.h"
#include "record/verify_record.h"

namespace veil {

using Json = nlohmann::ordered_json;

template <typename Visit>
void fields(AuditClaim& c, Visit& visit) {
  visit("epsilon", c.epsilon);
  visit("delta", c.delta);
  visit("sigma", c.sigma);
  visit("clip_norm", c.clip_norm);
  visit("slack", c.slack);
  visit("expected_batch", c.expected_batch);
  visit("q", c.q);
  visit("steps", c.steps);
  visit("unit", c.unit);
  visit("sampler", c.sampler);
  visit("accountant", c.accountant);
  visit("optimizer", c.optimizer);
  visit("storage", c.storage);
  visit("world", c.world);
  visit("parameters", c.parameters);
}

template <typename Visit>
void fields(AuditLaw& l, Visit& visit) {
  visit("name", l.name);
  visit("where", l.where);
  visit("tests", l.tests);
  visit.always_if(true, "value", l.value);
  visit("lower", l.lower);
  visit("upper", l.upper);
  visit("verdict", l.verdict);
}

template <typename Visit>
void fields(AuditNoise& n, Visit& visit) {
  visit("values", n.values);
  visit("planned", n.planned);
  visit("measured", n.measured);
  visit("low", n.low);
  visit("high", n.high);
}

template <typename Visit>
void fields(AuditSampling& s, Visit& visit) {
  visit("trials", s.trials);
  visit("inclusions", s.inclusions);
  visit("planned", s.planned);
  visit("low", s.low);
  visit("high", s.high);
}

template <typename Visit>
void fields(AuditCanary& c, Visit& visit) {
  visit("name", c.name);
  visit.always_if(true, "distance", c.distance);
  visit("allowed", c.allowed);
}

template <typename Visit>
void fields(AuditTest& t, Visit& visit) {
  visit("pairs", t.pairs);
  visit("threshold", t.threshold);
  visit("false_positives", t.false_positives);
  visit("false_negatives", t.false_negatives);
  visit("false_positive_high", t.false_positive_high);
  visit("false_negative_high", t.false_negative_high);
  visit("conversion", t.conversion);
}

template <typename Visit>
void fields(AuditOneRun& r, Visit& visit) {
  visit("canaries", r.canaries);
  visit("included", r.included);
  visit("guesses", r.guesses);
  visit("correct", r.correct);
}

template <typename Visit>
void fields(AuditPoint& p, Visit& visit) {
  visit("false_positive", p.false_positive);
  visit("true_positive", p.true_positive);
}

template <typename Visit>
void fields(AuditRecord& r, Visit& visit) {
  visit("audit", r.kind);
  visit("command", r.command);
  visit("config", r.config);
  visit("build", r.build);
  visit("confidence", r.confidence);
  visit("claim", r.claim);
  visit("epsilon_low", r.epsilon_low);
  visit("noise", r.noise);
  visit("sampling", r.sampling);
  visit("laws", r.laws);
  visit("canaries", r.canaries);
  visit("test", r.test);
  visit("one_run", r.one_run);
  visit("roc", r.roc);
  visit("claimed_roc", r.claimed_roc);
  visit.always_if(true, "failures", r.failures);
  visit("verdict", r.verdict);
  visit("seconds", r.seconds);
}

void conclude(AuditRecord& record) {
  if (record.epsilon_low > record.claim.epsilon)
    record.failures.insert(record.failures.begin(),
                           fmt::format("epsilon is at least {}; the run claims {}",
                                       format_lower_epsilon(record.epsilon_low),
                                       format_epsilon(record.claim.epsilon)));
  record.verdict = record.failures.empty() ? kPass : kFail;
}

Json to_json(const AuditRecord& record) {
  Json json = {{"schema", 1}, {kWrittenBy, kWriter}};
  json["not_private"] =
      "everything here was measured on the data and is not covered by the run's epsilon";
  FieldWriter writer(json);
  fields(const_cast<AuditRecord&>(record), writer);
  return json;
}

AuditRecord audit_record_from_json(const Json& json) {
  AuditRecord record;
  FieldReader::read("audit", json, record);
  return record;
}

}  // namespace veil
