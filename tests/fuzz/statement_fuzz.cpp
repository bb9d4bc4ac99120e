// privacy.json of a model that was trained before.
#include "base/json.h"
#include "fuzz/fuzz.h"
#include "privacy/statement.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  using namespace veil::privacy;
  const nlohmann::json json = try_json(fuzz::text_of(data, size));
  fuzz::allow_user_error([&] {
    const Statement statement = statement_from_json(json, "input");
    fuzz::require(!statement.trainings.empty(), "a statement is of a training");
    const Together how = together(statement, PrivacyUnit::sample, SamplerKind::poisson, "sample");
    fuzz::require(how.apart.size() <= statement.trainings.size(), "trainings count once");
    fuzz::require(how.one_figure() == how.why_apart.empty(), "trainings apart have a reason");
    plain_statement(statement).dump();
    plain_warning(statement);
    on_top_of(statement, statement);
  });
  return 0;
}
