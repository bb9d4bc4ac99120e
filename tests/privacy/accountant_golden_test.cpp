// Every row of accountant.json, by its kind. Its README says which agreement to expect of each.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_paths.h"
#include "privacy/accountant.h"
#include "privacy/pld.h"
#include "privacy/rdp.h"

namespace veil::privacy {
namespace {

using nlohmann::json;

// $VEIL_GOLDENS, else the goldens next to the repository, else the copy in it.
json goldens() {
  const std::filesystem::path root = source_root();
  std::vector<std::filesystem::path> folders{root / "../shared/goldens", root / "tests/goldens"};
  if (const char* const given = std::getenv("VEIL_GOLDENS")) folders = {given};
  for (const auto& folder : folders) {
    std::ifstream file(folder / "accountant.json");
    if (file) return json::parse(file);
  }
  ADD_FAILURE() << "accountant.json is in none of the goldens' folders";
  return {};
}

double number(const json& value) {
  return value.is_string() && value == "inf" ? HUGE_VAL : value.get<double>();
}

std::vector<Phase> phases_of(const json& row) {
  const json list = row.contains("phases") ? row["phases"] : json::array({row});
  std::vector<Phase> result;
  for (const json& phase : list)
    result.push_back({.sigma = phase["sigma"], .q = phase["q"], .steps = phase["steps"]});
  return result;
}

void expect_pld(const json& row, const Spent& spent) {
  const double exact = number(row["epsilon"]), scale = std::max(1.0, exact);
  if (std::isinf(exact)) {
    EXPECT_EQ(spent.epsilon, exact);
    return;
  }
  ASSERT_TRUE(spent.error);
  EXPECT_LE(spent.epsilon, exact + 1e-3 * scale);
  EXPECT_GE(spent.epsilon, exact - 1e-8 * scale) << "an epsilon that is too low is a false promise";
  EXPECT_LE(spent.epsilon - *spent.error, exact + 1e-8 * scale)
      << "the stated error does not reach the truth";
  EXPECT_LE(*spent.error, 2e-3 * scale);
}

// Edges have only `epsilon`; the rows also say how far Opacus' bounds lie apart.
void expect_prv(const json& row, const Spent& spent) {
  const double upper = number(row["epsilon"]);
  if (!row.contains("epsilon_lower")) {
    EXPECT_EQ(spent.epsilon, upper);
    return;
  }
  EXPECT_GE(spent.epsilon, number(row["epsilon_lower"]));
  EXPECT_LE(spent.epsilon, upper);
  EXPECT_GE(spent.epsilon, number(row["epsilon_exact"]) - 1e-8);
}

void expect_row(const json& row) {
  SCOPED_TRACE(row.dump());
  const std::string kind = row["kind"];
  const double delta = row["delta"];
  const std::vector<Phase> phases = phases_of(row);
  if (kind == "rdp" || kind == "gdp") {
    const Spent spent = kind == "rdp" ? rdp_epsilon(phases, delta) : gdp_epsilon(phases, delta);
    const double expected = number(row["epsilon"]);
    if (std::isinf(expected)) {
      EXPECT_EQ(spent.epsilon, expected);
    } else {
      EXPECT_NEAR(spent.epsilon, expected, 1e-6);
    }
    if (row.contains("order")) {
      EXPECT_NEAR(spent.order.value(), row["order"].get<double>(), 1e-9);
    }
    if (row.contains("mu")) {
      EXPECT_NEAR(gdp_mu(phases), row["mu"].get<double>(), 1e-9);
    }
  } else if (kind == "pld") {
    expect_pld(row, pld_epsilon(phases, delta));
  } else if (kind == "prv") {
    expect_prv(row, pld_epsilon(phases, delta));
  } else {
    ADD_FAILURE() << "no accountant for this kind";
  }
}

void expect_all(const char* part) {
  const json rows = goldens()[part];
  ASSERT_FALSE(rows.empty());
  for (const json& row : rows) expect_row(row);
}

TEST(Accountant, EveryRowAgreesWithTheGoldens_golden) {
  expect_all("rows");
}

TEST(Accountant, EdgesAgreeWithTheGoldens_golden) {
  expect_all("edge");
}

TEST(Accountant, SeveralPhasesAgreeWithTheGoldens_golden) {
  expect_all("phases");
}

TEST(Accountant, CalibrationFindsTheSigmaOfTheGoldens_golden) {
  const json rows = goldens()["calibration"];
  ASSERT_FALSE(rows.empty());
  for (const json& row : rows) {
    SCOPED_TRACE(row.dump());
    AccountantKind kind{};
    ASSERT_TRUE(find_name(row["kind"].get<std::string>(), kind));
    const auto accountant = make_accountant(kind);
    const double target = row["target_epsilon"];
    const Calibration found =
        calibrate_sigma(*accountant, target, row["delta"], row["q"], row["steps"]);
    EXPECT_NEAR(found.sigma, row["sigma"].get<double>(), row["sigma_tolerance"].get<double>());
    EXPECT_LE(found.spent.epsilon, target);
  }
}

}  // namespace
}  // namespace veil::privacy
