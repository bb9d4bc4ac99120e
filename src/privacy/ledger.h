// What a model's parameters have cost: the list of accounting events behind them. It goes with
// every checkpoint and every exported model.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "kernels/noise_values.h"
#include "privacy/mechanism.h"

namespace veil::privacy {

// Steps first + 1 to reached of a run, under one mechanism and nonce. Steps that a crash took back
// are among them: they were computed, and whoever watched has seen them.
struct LedgerEvent {
  std::string segment;  // its random name; tells events apart and is no secret
  PrivacyUnit unit = PrivacyUnit::sample;
  Relation relation = Relation::add_remove;
  SamplerKind sampler = SamplerKind::poisson;
  double sigma = 0, q = 1;
  int64_t max_batch = 0;        // draws were cut to it; 0: they were not
  double overflow = 0;          // the chance of that, per step (Phase)
  int64_t steps_per_epoch = 0;  // shuffled
  int64_t data_size = 0;
  bool size_from_data = false;
  int64_t canaries = 0;  // among data_size
  double expected_batch = 0;
  ClipFunction clip = ClipFunction::abadi;
  double clip_norm = 0, slack = 0;  // adaptive: the first C
  NoiseGenerator generator = NoiseGenerator::secure;
  int64_t first = 0, reached = 0;

  // What the accountant is told. shuffled: a plain Gaussian for each epoch that any of the steps
  // fell in.
  Phase phase() const;
};
LedgerEvent ledger_event(const Mechanism& mechanism, NoiseGenerator generator,
                         const std::string& segment, int64_t first);

struct Ledger {
  std::vector<LedgerEvent> events;
  std::vector<BasePhase> base = {};  // of earlier trainings; counted, and in no list of events

  std::vector<BasePhase> phases() const;  // the base's and the events'
  int64_t steps() const;  // noisy updates in all, those taken back by crashes included
  Spent spent(AccountantKind accountant, double delta) const;
  // The last step, up to `limit`, that its last event may reach without spending more than
  // `epsilon`; the event's first step if none may.
  int64_t reach_within(double epsilon, AccountantKind accountant, double delta,
                       int64_t limit) const;
  // UserError unless an event of this kind can follow: one unit, one sampler and so one relation
  // from a model's first step to its last.
  void check_follows(const LedgerEvent& next) const;
};
// Both lists' events; one that is in both reaches as far as the further.
Ledger merged(const Ledger& a, const Ledger& b);

nlohmann::json ledger_json(const Ledger& ledger);
// UserError that names `where` if it is none.
Ledger ledger_from_json(const nlohmann::json& text, const std::string& where);

// Whether noise came from a generator that was not made for secrecy, and what to say of it.
bool has_insecure_noise(const Ledger& ledger);
inline constexpr const char* kInsecureNoise =
    "the noise is not cryptographic (rng philox): whoever finds its 64-bit key can take it off "
    "again, so the epsilon stated here holds only for those who cannot";
// Adds a sentence to a statement's "WARNING", which stands before all that it says.
void add_warning(nlohmann::json& statement, const std::string& sentence);

// privacy.json of an exported model: the guarantee, and the events it follows from. Holds nothing
// but what is public or private in the sense of the guarantee.
nlohmann::json guarantee_json(const Ledger& ledger, AccountantKind accountant, double delta);
// The same in a line for a person.
std::string guarantee_line(const Ledger& ledger, AccountantKind accountant, double delta);

// Epsilon as a run goes, for many steps without an accountant's work for each: exact at about fifty
// steps and at the last one, and in between that of the next such step, which is no less.
class SpentCurve {
 public:
  // The last event of `ledger` is the one that grows, up to `last` steps of the run.
  SpentCurve(Ledger ledger, AccountantKind accountant, double delta, int64_t last);
  double at(int64_t step);

 private:
  Ledger ledger_;
  AccountantKind accountant_;
  double delta_;
  int64_t last_, spacing_;
  std::map<int64_t, double> known_;
};

}  // namespace veil::privacy
