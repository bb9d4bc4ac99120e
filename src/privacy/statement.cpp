#include "privacy/statement.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/units.h"

namespace veil::privacy {
namespace {

using Json = nlohmann::json;

constexpr int kLongestChain = 1000;

// The part that says what is protected. Earlier versions wrote "packed sequence of 64 tokens; a
// document spans up to 9", of which the rest was a number of the data.
std::string unit_kind(const std::string& unit_text) {
  return unit_text.substr(0, unit_text.find(';'));
}

std::string why_apart(const StatedTraining& before, PrivacyUnit unit, SamplerKind sampler,
                      const std::string& unit_text) {
  if (!before.is_private) return "an earlier training was not private";
  for (const LedgerEvent& event : before.ledger.events) {
    if (event.unit != unit)
      return fmt::format("one protects a {}, the other a {}", name_of(event.unit), name_of(unit));
    if (event.relation != relation_of(sampler))
      return fmt::format("one has {} neighbours, the other {}", name_of(event.relation),
                         name_of(relation_of(sampler)));
  }
  // A document is one, however much of it is read; a sequence of another length is another unit.
  const bool by_length = unit == PrivacyUnit::sample;
  if (by_length && unit_kind(before.unit_text) != unit_kind(unit_text))
    return fmt::format("one protects a {}, the other a {}", unit_kind(before.unit_text),
                       unit_kind(unit_text));
  return "";
}

// The trainings that are apart from the last one, those with one figure as one.
std::vector<StatedTraining> figures_apart(const Statement& base, const Together& how) {
  std::vector<StatedTraining> list;
  for (const size_t place : how.apart) {
    const StatedTraining& training = base.trainings[place];
    const auto same = std::find_if(list.begin(), list.end(), [&](const StatedTraining& other) {
      if (!training.is_private || !other.is_private) return training.is_private == other.is_private;
      const LedgerEvent& event = other.ledger.events[0];
      return why_apart(training, event.unit, event.sampler, other.unit_text).empty();
    });
    if (same == list.end()) {
      list.push_back(training);
    } else {
      std::copy(training.ledger.events.begin(), training.ledger.events.end(),
                std::back_inserter(same->ledger.events));
    }
  }
  return list;
}

Json figure_of(const StatedTraining& training, AccountantKind accountant, double delta) {
  if (!training.is_private) return {{"private", false}};
  Json result = guarantee_json(training.ledger, accountant, delta);
  for (const char* key : {"events", "schema", "covers", "WARNING"}) result.erase(key);
  if (!training.unit_text.empty()) result["unit_is"] = training.unit_text;
  return result;
}

void collect_trainings(const Json& json, const std::string& where, int depth,
                       std::vector<StatedTraining>& list) {
  if (!json.is_object() || depth > kLongestChain || json.value("schema", Json()) != 1)
    throw UserError("it is not of this version");
  if (json.contains("base")) collect_trainings(json["base"], where, depth + 1, list);
  StatedTraining training;
  training.is_private = json.value("private", true);
  training.unit_text = json.value("unit_is", std::string());
  if (training.is_private) {
    if (!json.contains("events") || !json["events"].is_array() || json["events"].empty())
      throw UserError("it lists no accounting events");
    training.ledger = ledger_from_json(json["events"], where);
  }
  list.push_back(std::move(training));
}

constexpr const char* kNoSingleFigure =
    "no single epsilon covers a person whose data is in both trainings";

}  // namespace

std::optional<Statement> read_statement(const std::string& folder) {
  const std::string path = join_path(folder, kStatementFile);
  std::error_code ignored;
  if (folder.empty() || !std::filesystem::exists(path, ignored)) return {};
  return statement_from_json(try_json(read_file(path)), path);
}

Statement statement_from_json(const Json& json, const std::string& where) {
  const char* const advice = "restore it from the model's source, or train from other weights";
  Statement statement;
  statement.json = json;
  try {
    collect_trainings(json, where, 0, statement.trainings);
  } catch (const Json::exception&) {
    user_error("{}: the model's statement of privacy is damaged; {}", where, advice);
  } catch (const UserError& error) {
    user_error("{}: the model's statement of privacy is damaged: {}; {}", where, error.what(),
               advice);
  }
  return statement;
}

Together together(const Statement& base, PrivacyUnit unit, SamplerKind sampler,
                  const std::string& unit_text) {
  Together result;
  for (size_t i = 0; i < base.trainings.size(); ++i) {
    const StatedTraining& training = base.trainings[i];
    const std::string why = why_apart(training, unit, sampler, unit_text);
    if (why.empty()) {
      for (const BasePhase& phase : training.ledger.phases()) result.phases.push_back(phase);
      continue;
    }
    if (result.apart.empty()) result.why_apart = why;
    result.apart.push_back(i);
  }
  return result;
}

Json with_base(Json own, const Statement& base, const Together& how, AccountantKind accountant,
               double delta) {
  for (const StatedTraining& training : base.trainings) {
    if (!own.contains("WARNING") && has_insecure_noise(training.ledger))
      add_warning(own, kInsecureNoise);
  }
  own["base"] = base.json;
  if (how.one_figure()) {
    own["epsilon_covers"] = "this training and all before it, which base lists";
    return own;
  }
  add_warning(own, fmt::format("{}: {}", kNoSingleFigure, how.why_apart));
  Json last;
  for (const char* key : {"epsilon", "epsilon_error", "delta", "accountant", "steps", "unit",
                          "relation", "sampler", "unit_is"}) {
    if (own.contains(key)) last[key] = own[key];
  }
  Json figures = Json::array({last});
  for (const StatedTraining& training : figures_apart(base, how))
    figures.push_back(figure_of(training, accountant, delta));
  own["figures"] = figures;
  own["epsilon"] = nullptr;
  own.erase("epsilon_error");
  return own;
}

std::string line_with_base(const std::string& own, const Statement& base, const Together& how,
                           AccountantKind accountant, double delta) {
  const size_t counted = base.trainings.size() - how.apart.size();
  std::string line = own;
  if (counted > 0)
    line += fmt::format("; this counts {} before this one as well",
                        quantity(static_cast<int64_t>(counted), "training"));
  if (how.one_figure()) return line;
  line = fmt::format("{}: {}. Of this training: {}", kNoSingleFigure, how.why_apart, line);
  for (const StatedTraining& training : figures_apart(base, how))
    line +=
        ". Before it: " + (training.is_private ? guarantee_line(training.ledger, accountant, delta)
                                               : std::string("training that was not private"));
  return line;
}

Statement on_top_of(const Statement& adapter, const Statement& model) {
  Statement both = adapter;
  Json* last = &both.json;
  while (last->contains("base")) {
    last = &(*last)["base"];
    if (*last == model.json) return adapter;
  }
  (*last)["base"] = model.json;
  both.trainings.insert(both.trainings.begin(), model.trainings.begin(), model.trainings.end());
  return both;
}

Json plain_statement(const Statement& base) {
  return {{"WARNING",
           "the last training was not private: the data it was trained on has no "
           "guarantee, and base states what was promised before it"},
          {"schema", 1},
          {"private", false},
          {"epsilon", nullptr},
          {"base", base.json}};
}

std::string plain_warning(const Statement& base) {
  const Json epsilon = base.json.value("epsilon", Json()), delta = base.json.value("delta", Json());
  return fmt::format(
      "the model was trained privately before{}, and this run is not private: the data that it "
      "trains on has no guarantee; pass `epsilon` and `delta` for one",
      epsilon.is_number() && delta.is_number()
          ? fmt::format(" (epsilon {}, delta {:g})", format_epsilon(epsilon.get<double>()),
                        delta.get<double>())
          : "");
}

}  // namespace veil::privacy
