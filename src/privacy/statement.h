// What is stated of a model that was trained more than once. An exported model's privacy.json is
// the statement of its last training; under "base" it holds that of the model it began with, and so
// on. A training that starts from such a model counts what came before, or says why it cannot.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "privacy/ledger.h"

namespace veil::privacy {

inline constexpr const char* kStatementFile = "privacy.json";

// One training of a chain.
struct StatedTraining {
  bool is_private = true;  // otherwise its data has no guarantee, and there are no events
  std::string unit_text;   // what a sample is, in words; "" if it is not said
  Ledger ledger;
};

struct Statement {
  nlohmann::json json;                    // privacy.json as it was
  std::vector<StatedTraining> trainings;  // the oldest first; at least one
};
// Of the model in this folder; nothing if it has none. UserError in one line if it is
// damaged: a guarantee that cannot be read must not be forgotten.
std::optional<Statement> read_statement(const std::string& folder);
// `where` is named in errors.
Statement statement_from_json(const nlohmann::json& json, const std::string& where);

// How a new training goes with those before it.
struct Together {
  // Of those with its unit and relation: one figure covers a person in any or all of them. Phases
  // of one sampler compose; epsilons and deltas of several add up.
  std::vector<BasePhase> phases;
  std::vector<size_t> apart;  // places of the others in Statement::trainings
  std::string why_apart;      // a phrase; "" if there is none
  bool one_figure() const { return apart.empty(); }
};
Together together(const Statement& base, PrivacyUnit unit, SamplerKind sampler,
                  const std::string& unit_text);

// privacy.json of a private training that began with `base`: its own one (guarantee_json, whose
// ledger counts Together::phases), with the base in it. Where no single figure covers all, none is
// claimed: "figures" then has one for each unit and relation.
nlohmann::json with_base(nlohmann::json own, const Statement& base, const Together& how,
                         AccountantKind accountant, double delta);
// The same in a line for a person.
std::string line_with_base(const std::string& own, const Statement& base, const Together& how,
                           AccountantKind accountant, double delta);
// Of adapters and the model they are put on, both with a statement: the model's trainings come first
// unless the adapters' bases name them already. What else the adapters' bases name stays.
Statement on_top_of(const Statement& adapter, const Statement& model);
// privacy.json of a training that is not private, on a model that has a statement.
nlohmann::json plain_statement(const Statement& base);
// What a person must know before such a training.
std::string plain_warning(const Statement& base);

}  // namespace veil::privacy
