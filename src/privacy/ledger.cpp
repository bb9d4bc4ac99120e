#include "privacy/ledger.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/quantity.h"
#include "base/units.h"
#include "kernels/noise.h"

namespace veil::privacy {
namespace {

constexpr int64_t kCurvePoints = 50;
// What JSON's numbers hold exactly everywhere. Sums of a few such numbers fit 64 bits.
constexpr int64_t kMostInLedger = int64_t{1} << 53;

nlohmann::json number(double value) {
  if (std::isinf(value)) return "inf";  // JSON has no infinity
  return value;
}

nlohmann::json event_json(const LedgerEvent& event) {
  nlohmann::json result = {
      {"segment", event.segment},
      {"unit", name_of(event.unit)},
      {"relation", name_of(event.relation)},
      {"sampler", name_of(event.sampler)},
      {"sigma", event.sigma},
      {"q", event.q},
      {"data_size", event.data_size},
      {"data_size_source", event.size_from_data ? "counted, declared public" : "given"},
      {"expected_batch", event.expected_batch},
      {"clip", name_of(event.clip)},
      {"clip_norm", event.clip_norm},
      {"slack", event.slack},
      {"rng", name_of(event.generator)},
      {"first_step", event.first + 1},
      {"last_step", event.reached}};
  if (event.sampler == SamplerKind::shuffled) result["steps_per_epoch"] = event.steps_per_epoch;
  if (event.max_batch > 0) result["max_batch"] = event.max_batch;
  if (event.canaries > 0) result["audit_canaries"] = event.canaries;
  return result;
}

template <typename Enum>
void read_name(const nlohmann::json& text, const char* key, Enum& value) {
  if (!find_name(text.at(key).get<std::string>(), value))
    throw UserError(fmt::format("an unknown {}", key));
}

int64_t read_whole(const nlohmann::json& text, const char* key) {
  const nlohmann::json& value = text.at(key);
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= static_cast<uint64_t>(kMostInLedger)
                        : value.is_number_integer() && value.get<int64_t>() >= 0 &&
                              value.get<int64_t>() <= kMostInLedger;
  if (!fits)
    throw UserError(fmt::format("{} must be a whole number from 0 to {}", key, kMostInLedger));
  return value.get<int64_t>();
}
int64_t read_whole_or_zero(const nlohmann::json& text, const char* key) {
  return text.contains(key) ? read_whole(text, key) : 0;
}

LedgerEvent event_from_json(const nlohmann::json& text) {
  LedgerEvent event;
  event.segment = text.at("segment").get<std::string>();
  read_name(text, "unit", event.unit);
  read_name(text, "relation", event.relation);
  read_name(text, "sampler", event.sampler);
  event.sigma = text.at("sigma").get<double>();
  event.q = text.at("q").get<double>();
  event.data_size = read_whole(text, "data_size");
  event.size_from_data = text.at("data_size_source").get<std::string>() != "given";
  event.canaries = read_whole_or_zero(text, "audit_canaries");
  event.expected_batch = text.at("expected_batch").get<double>();
  read_name(text, "clip", event.clip);
  event.clip_norm = text.at("clip_norm").get<double>();
  event.slack = text.at("slack").get<double>();
  read_name(text, "rng", event.generator);
  event.first = read_whole(text, "first_step") - 1;
  event.reached = read_whole(text, "last_step");
  event.steps_per_epoch = read_whole_or_zero(text, "steps_per_epoch");
  event.max_batch = read_whole_or_zero(text, "max_batch");
  check_phases({{.sigma = event.sigma, .q = event.q, .steps = event.reached - event.first}});
  if (event.first < 0 || (event.sampler == SamplerKind::shuffled && event.steps_per_epoch < 1))
    throw UserError("steps that are none");
  if (event.max_batch > 0)
    event.overflow = overflow_chance(event.data_size, event.q, event.max_batch);
  return event;
}

}  // namespace

Phase LedgerEvent::phase() const {
  if (sampler == SamplerKind::poisson)
    return {.sigma = sigma, .q = q, .steps = reached - first, .overflow = overflow};
  if (reached == first) return {.sigma = sigma, .q = 1, .steps = 0};
  const int64_t begun = (reached + steps_per_epoch - 1) / steps_per_epoch;
  return {.sigma = sigma, .q = 1, .steps = begun - first / steps_per_epoch};
}

LedgerEvent ledger_event(const Mechanism& mechanism, NoiseGenerator generator,
                         const std::string& segment, int64_t first) {
  const MechanismRequest& r = mechanism.request();
  LedgerEvent event;
  event.segment = segment;
  event.unit = r.unit;
  event.relation = mechanism.relation();
  event.sampler = r.sampler;
  event.sigma = mechanism.sigma();
  event.q = mechanism.q();
  event.max_batch = mechanism.batch_maximum();
  event.overflow = mechanism.overflow();
  event.steps_per_epoch = mechanism.steps_per_epoch();
  event.data_size = r.data_size;
  event.size_from_data = r.size_from_data;
  event.canaries = r.canaries;
  event.expected_batch = mechanism.expected_batch();
  event.clip = r.clip;
  event.clip_norm = r.clip_norm;
  event.slack = r.slack;
  event.generator = generator;
  event.first = event.reached = first;
  return event;
}

std::vector<BasePhase> Ledger::phases() const {
  std::vector<BasePhase> result = base;
  for (const LedgerEvent& event : events) result.push_back({event.sampler, event.phase()});
  return result;
}

int64_t Ledger::steps() const {
  int64_t total = 0;
  for (const LedgerEvent& event : events) total += event.reached - event.first;
  return total;
}

Spent Ledger::spent(AccountantKind accountant, double delta) const {
  return spent_together(*make_accountant(accountant), by_sampler(phases()), delta);
}

int64_t Ledger::reach_within(double epsilon, AccountantKind accountant, double delta,
                             int64_t limit) const {
  VEIL_CHECK(!events.empty() && limit >= events.back().first,
             "a limit of {} steps for a ledger of {} events", limit, events.size());
  Ledger tried = *this;
  const auto fits = [&](int64_t reached) {
    tried.events.back().reached = reached;
    return tried.spent(accountant, delta).epsilon <= epsilon;
  };
  if (fits(limit)) return limit;
  // high does not fit; low is where nothing more is spent
  int64_t low = events.back().first, high = limit;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

void Ledger::check_follows(const LedgerEvent& next) const {
  for (const LedgerEvent& event : events) {
    if (event.unit != next.unit)
      field_error("privacy_unit", "{}: the run was begun with {}; a guarantee has one unit",
                  name_of(next.unit), name_of(event.unit));
    if (event.sampler != next.sampler)
      field_error(
          "sampler",
          "{}: the run was begun with {}; their neighbours differ, and a guarantee has one kind",
          name_of(next.sampler), name_of(event.sampler));
  }
}

namespace {
bool alike_but_for_steps(LedgerEvent a, const LedgerEvent& b) {
  a.first = b.first;
  a.reached = b.reached;
  return event_json(a) == event_json(b);
}
}  // namespace

Ledger merged(const Ledger& a, const Ledger& b) {
  Ledger result = a;
  for (const LedgerEvent& event : b.events) {
    const auto same =
        std::find_if(result.events.begin(), result.events.end(),
                     [&](const LedgerEvent& other) { return other.segment == event.segment; });
    if (same == result.events.end()) {
      result.events.push_back(event);
    } else {
      if (!alike_but_for_steps(*same, event))
        user_error(
            "the ledger and the checkpoint tell of other noise, draws or clipping in segment {}: "
            "one of them was changed; restore both",
            event.segment);
      same->first = std::min(same->first, event.first);
      same->reached = std::max(same->reached, event.reached);
    }
  }
  return result;
}

nlohmann::json ledger_json(const Ledger& ledger) {
  nlohmann::json events = nlohmann::json::array();
  for (const LedgerEvent& event : ledger.events) events.push_back(event_json(event));
  return events;
}

Ledger ledger_from_json(const nlohmann::json& text, const std::string& where) {
  Ledger ledger;
  try {
    int64_t steps = 0;
    std::set<std::string> segments;
    for (const nlohmann::json& event : text) {
      ledger.events.push_back(event_from_json(event));
      // Two of one name would be taken for one where ledgers are merged.
      if (!segments.insert(ledger.events.back().segment).second)
        throw UserError("a segment is there twice");
      steps += ledger.events.back().reached - ledger.events.back().first;
      if (steps > kMostInLedger) throw UserError(fmt::format("more than {} steps", kMostInLedger));
    }
    return ledger;
  } catch (const nlohmann::json::exception&) {
    user_error("{}: not a ledger of accounting events", where);
  } catch (const UserError& error) {
    user_error("{}: not a ledger of accounting events: {}", where, error.what());
  }
}

bool has_insecure_noise(const Ledger& ledger) {
  return std::any_of(ledger.events.begin(), ledger.events.end(), [](const LedgerEvent& event) {
    return event.generator == NoiseGenerator::philox;
  });
}

// Capitals sort before all other keys.
void add_warning(nlohmann::json& statement, const std::string& sentence) {
  const std::string before = statement.value("WARNING", std::string());
  statement["WARNING"] = before.empty() ? sentence : before + "; " + sentence;
}

namespace {

double delta_of_cuts(const Ledger& ledger, double epsilon) {
  std::vector<Phase> all;
  for (const BasePhase& of : ledger.phases()) all.push_back(of.phase);
  return overflow_delta(all, epsilon);
}

}  // namespace

nlohmann::json guarantee_json(const Ledger& ledger, AccountantKind accountant, double delta) {
  const Spent spent = ledger.spent(accountant, delta);
  nlohmann::json result = {{"schema", 1},
                           {"epsilon", number(spent.epsilon)},
                           {"delta", delta},
                           {"accountant", name_of(accountant)},
                           {"steps", ledger.steps()},
                           {"covers",
                            "the parameters, in every state that they had; no loss, norm, drawn "
                            "size or held-out figure"},
                           {"events", ledger_json(ledger)}};
  if (has_insecure_noise(ledger)) add_warning(result, kInsecureNoise);
  if (spent.error) result["epsilon_error"] = *spent.error;
  if (!ledger.events.empty()) {
    result["unit"] = name_of(ledger.events[0].unit);
    result["relation"] = name_of(ledger.events[0].relation);
    result["sampler"] = name_of(ledger.events[0].sampler);
  }
  if (const double cuts = delta_of_cuts(ledger, spent.epsilon); cuts > 0) {
    result["delta_of_cuts"] = number(cuts);
    result["delta_of_cuts_is"] =
        "part of delta: sum over events of steps (1 + e^epsilon) Pr[Bin(data_size + 1, q) > "
        "max_batch]";
  }
  return result;
}

std::string guarantee_line(const Ledger& ledger, AccountantKind accountant, double delta) {
  if (ledger.events.empty()) return "nothing was released";
  const LedgerEvent& event = ledger.events[0];
  const Spent spent = ledger.spent(accountant, delta);
  std::string line = has_insecure_noise(ledger) ? std::string(kInsecureNoise) + ": " : "";
  line += std::isinf(spent.epsilon)
              ? "not private: without noise epsilon is infinite"
              : fmt::format("(epsilon {}, delta {:g})", format_epsilon(spent.epsilon), delta);
  if (const double cuts = delta_of_cuts(ledger, spent.epsilon); cuts > 0 && std::isfinite(cuts))
    line += fmt::format(", of which {:.2g} for draws that are cut,", cuts);
  line += fmt::format(" for one {} ({} neighbours), {} sampling, {}, accountant {}",
                      name_of(event.unit), name_of(event.relation), name_of(event.sampler),
                      quantity(ledger.steps(), "step"), name_of(accountant));
  if (spent.error && *spent.error > 0)
    line += fmt::format(" (exact epsilon at most {:.1e} less)", *spent.error);
  return line;
}

SpentCurve::SpentCurve(Ledger ledger, AccountantKind accountant, double delta, int64_t last)
    : ledger_(std::move(ledger)), accountant_(accountant), delta_(delta), last_(last) {
  VEIL_CHECK(!ledger_.events.empty(), "a curve of no event");
  spacing_ =
      std::max<int64_t>(1, (last_ - ledger_.events.back().first + kCurvePoints - 1) / kCurvePoints);
}

double SpentCurve::at(int64_t step) {
  const LedgerEvent& event = ledger_.events.back();
  // what is counted already stays so while an exact resume replays it
  step = std::max(step, event.reached);
  const int64_t next = event.first + (step - event.first + spacing_ - 1) / spacing_ * spacing_;
  const int64_t point = std::min(next, std::max(step, last_));
  const auto found = known_.find(point);
  if (found != known_.end()) return found->second;
  Ledger then = ledger_;
  then.events.back().reached = point;
  return known_[point] = then.spent(accountant_, delta_).epsilon;
}

}  // namespace veil::privacy
