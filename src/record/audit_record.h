// What `veil audit` and the canaries of a training run found: measurements of a private run's
// mechanism and a lower bound of its epsilon. Nothing in it is private.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace veil {

// What the run claims.
struct AuditClaim {
  double epsilon = 0, delta = 0;
  double sigma = 0, clip_norm = 0, expected_batch = 0, q = 0, slack = 0;
  int64_t steps = 0;
  std::string unit = "", sampler = "", accountant = "", optimizer = "", storage = "";
  int64_t world = 1, parameters = 0;  // those that are trained
};

// A law that the mechanism must keep: the worst of `tests` tests.
struct AuditLaw {
  std::string name = "", where = "";
  int64_t tests = 0;
  double value = 0, lower = 0, upper = 0;  // value must lie between
  std::string verdict = "";
};

// The deviation of the noise on an element of the mean gradient.
struct AuditNoise {
  int64_t values = 0;
  double planned = 0, measured = 0, low = 0, high = 0;
};

struct AuditSampling {
  int64_t trials = 0, inclusions = 0;
  double planned = 0, low = 0, high = 0;
};

// How far one sample moved the sum, in units of C.
struct AuditCanary {
  std::string name = "";
  double distance = 0, allowed = 0;
};

// Two hypotheses told apart: with and without a canary.
struct AuditTest {
  int64_t pairs = 0, false_positives = 0, false_negatives = 0;
  double threshold = 0, false_positive_high = 0, false_negative_high = 0;
  std::string conversion = "";
};

// One run with canaries that coins included.
struct AuditOneRun {
  int64_t canaries = 0, included = 0, guesses = 0, correct = 0;
};

struct AuditPoint {
  double false_positive = 0, true_positive = 0;
};

struct AuditRecord {
  std::string kind = "";  // "mechanism", "canary" or "one-run"
  std::string command = "";
  nlohmann::json config = {}, build = {};
  double confidence = 0;
  AuditClaim claim = {};
  double epsilon_low = 0;  // the lower bound
  std::optional<AuditNoise> noise = {};
  std::optional<AuditSampling> sampling = {};
  std::vector<AuditLaw> laws = {};
  std::vector<AuditCanary> canaries = {};
  std::optional<AuditTest> test = {};
  std::optional<AuditOneRun> one_run = {};
  std::vector<AuditPoint> roc = {}, claimed_roc = {};
  std::vector<std::string> failures = {};
  std::string verdict = "";
  double seconds = 0;
};

// The verdict on what was found: a bound above the claim is the first of its failures.
void conclude(AuditRecord& record);

nlohmann::ordered_json to_json(const AuditRecord& record);
// DamagedRecordError if a value has another type.
AuditRecord audit_record_from_json(const nlohmann::ordered_json& json);

}  // namespace veil
