// The accounting events of a ledger, and what they add up to.
#include "base/json.h"
#include "fuzz/fuzz.h"
#include "privacy/ledger.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  using namespace veil::privacy;
  const nlohmann::json json = try_json(fuzz::text_of(data, size));
  fuzz::allow_user_error([&] {
    const Ledger ledger = ledger_from_json(json, "input");
    fuzz::require(ledger.steps() >= 0, "steps are counted");
    for (const BasePhase& phase : ledger.phases())
      fuzz::require(phase.phase.steps >= 0, "each event has steps");
    const Ledger again = ledger_from_json(ledger_json(ledger), "input");
    fuzz::require(again.steps() == ledger.steps(), "what was read can be written and read");
    fuzz::require(merged(ledger, again).steps() <= ledger.steps(), "an event counts once");
    if (!ledger.events.empty()) ledger.check_follows(ledger.events[0]);
  });
  return 0;
}
