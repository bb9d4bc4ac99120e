// veil privacy epsilon: what a run spends. veil privacy sigma: the noise that a budget asks for.
// veil privacy explore: which batch and how many epochs to spend it on.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/files.h"
#include "base/outputs.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/run_options.h"
#include "privacy/accountant.h"
#include "privacy/explore.h"
#include "privacy/mechanism.h"
#include "report/drawing.h"

namespace veil {
namespace {

using privacy::Accountant;
using privacy::AccountantKind;
using privacy::Phase;
using privacy::Spent;

enum class AccountantChoice { pld, rdp, gdp, all };
const NameTable<AccountantChoice>& names(AccountantChoice) {
  static const NameTable<AccountantChoice> table = {{AccountantChoice::pld, "pld", {"prv"}},
                                                    {AccountantChoice::rdp, "rdp"},
                                                    {AccountantChoice::gdp, "gdp"},
                                                    {AccountantChoice::all, "all"}};
  return table;
}

struct PrivacyOptions {
  std::optional<double> sigma, epsilon, q, batch, epochs, delta;
  std::optional<int64_t> data_size, steps;
  std::vector<std::string> phases;
  AccountantChoice accountant = AccountantChoice::pld;
  std::string json, plot;
  bool overwrite = false;
};

// The options of both commands. Ranges are checked where the values are used, in privacy/.
void add_common(Options& options, PrivacyOptions& wanted) {
  options.add(
      "q", wanted.q,
      {.aliases = {"sample-rate"}, .help = "sampling rate: each record is in a step with q"});
  options.add("batch", wanted.batch,
              {.aliases = {"batch-size"},
               .help = "expected samples per logical batch: q = batch / data-size"});
  options.add("data-size", wanted.data_size,
              {.aliases = {"dataset-size"}, .help = "records in the data set"});
  options.add("steps", wanted.steps, {.help = "noisy updates"});
  options.add("epochs", wanted.epochs,
              {.help = "instead of steps: steps = epochs / q, rounded up"});
  options.add("delta", wanted.delta, {.help = "delta of the guarantee", .required = true});
  options.add("accountant", wanted.accountant, {.help = "what computes epsilon"});
  options.add(
      "json", wanted.json,
      {.help = "write it all as JSON, to stdout without a FILE", .bare = "-", .value = "FILE"});
  options.add("plot", wanted.plot, {.help = "draw epsilon over steps as PNG", .value = "FILE"});
  add_overwrite_option(options, wanted.overwrite);
}

void check_outputs(const PrivacyOptions& wanted) {
  if (!wanted.json.empty() && wanted.json != "-") check_output_file(wanted.json, wanted.overwrite);
  if (!wanted.plot.empty()) check_png(wanted.plot, wanted.overwrite);
}

double sampling_rate(const PrivacyOptions& wanted) {
  if (wanted.q) {
    if (wanted.batch || wanted.data_size)
      user_error("--q is given with --batch or --data-size: allowed is one way");
    return *wanted.q;
  }
  if (!wanted.batch && !wanted.data_size)
    user_error("--q is missing: give it, or --batch and --data-size");
  if (!wanted.batch) user_error("--batch is missing: q = batch / data-size");
  if (!wanted.data_size) user_error("--data-size is missing: q = batch / data-size");
  if (*wanted.data_size <= 0) user_error("--data-size {}: allowed is 1 or more", *wanted.data_size);
  if (!(*wanted.batch >= 0)) user_error("--batch {}: allowed is 0 or more", *wanted.batch);
  if (*wanted.batch > static_cast<double>(*wanted.data_size)) {
    user_error("--batch {}: the data set has {} records; allowed is no more than that",
               *wanted.batch, *wanted.data_size);
  }
  return *wanted.batch / static_cast<double>(*wanted.data_size);
}

int64_t step_count(const PrivacyOptions& wanted, double q) {
  if (wanted.steps && wanted.epochs)
    user_error("--steps and --epochs are given: allowed is one of them");
  if (wanted.steps) return *wanted.steps;
  if (!wanted.epochs) user_error("--steps is missing: give it, or --epochs");
  return privacy::steps_of_epochs(*wanted.epochs, q);
}

// "sigma,q,steps"
Phase read_phase(const std::string& text) {
  const std::vector<std::string> parts = split(text, ',');
  Phase phase;
  const bool good = parts.size() == 3 && option_values::read(parts[0], {}, phase.sigma).empty() &&
                    option_values::read(parts[1], {}, phase.q).empty() &&
                    option_values::read(parts[2], {}, phase.steps).empty();
  if (!good) user_error("--phase {}: allowed is sigma,q,steps, as in 1.0,0.01,500", text);
  return phase;
}

std::vector<Phase> run_phases(const PrivacyOptions& wanted) {
  std::vector<Phase> phases;
  for (const std::string& text : wanted.phases) phases.push_back(read_phase(text));
  const bool single =
      wanted.sigma || wanted.q || wanted.batch || wanted.data_size || wanted.steps || wanted.epochs;
  if (single && !phases.empty()) {
    user_error(
        "--phase is given with --sigma, --q, --batch, --data-size, --steps or --epochs: allowed is "
        "one way");
  }
  if (!phases.empty()) return phases;
  if (!wanted.sigma)
    user_error("--sigma is missing: the noise multiplier; or give --phase sigma,q,steps");
  Phase phase{.sigma = *wanted.sigma, .q = sampling_rate(wanted), .steps = 0};
  privacy::check_phases({phase});
  phase.steps = step_count(wanted, phase.q);
  return {phase};
}

std::vector<std::unique_ptr<Accountant>> accountants(AccountantChoice choice) {
  std::vector<std::unique_ptr<Accountant>> result;
  for (const auto& entry : names(AccountantKind{})) {
    if (choice == AccountantChoice::all || name_of(choice) == entry.name)
      result.push_back(make_accountant(entry.value));
  }
  return result;
}

nlohmann::json json_number(double value) {
  if (std::isinf(value)) return "inf";  // JSON has no infinity
  return value;
}

struct Row {
  std::string accountant, note;
  bool bound;
  std::optional<double> sigma;
  Spent spent;
};

Row make_row(const Accountant& accountant, const Spent& spent, std::optional<double> sigma = {}) {
  std::string note = accountant.note();
  if (spent.order) note += fmt::format(", order {:g}", *spent.order);
  return {name_of(accountant.kind()), note, accountant.is_bound(), sigma, spent};
}

std::string row_table(const std::vector<Row>& rows) {
  const bool sigma = rows[0].sigma.has_value();
  Table table(sigma ? std::vector<std::string>{"accountant", "sigma", "epsilon", "error", "note"}
                    : std::vector<std::string>{"accountant", "epsilon", "error", "note"});
  for (const Row& row : rows) {
    std::vector<std::string> cells{row.accountant};
    if (sigma) cells.push_back(fmt::format("{:.5f}", *row.sigma));
    cells.push_back(format_epsilon(row.spent.epsilon, 6));
    cells.push_back(row.spent.error ? fmt::format("{:.1e}", *row.spent.error) : "-");
    cells.push_back(row.note);
    table.row(cells);
  }
  return table.text();
}

nlohmann::json row_json(const Row& row) {
  nlohmann::json result = {{"accountant", row.accountant},
                           {"epsilon", json_number(row.spent.epsilon)},
                           {"bound", row.bound},
                           {"note", row.note}};
  if (row.sigma) result["sigma"] = *row.sigma;
  if (row.spent.error) result["error"] = *row.spent.error;
  if (row.spent.order) result["order"] = *row.spent.order;
  return result;
}

nlohmann::json phases_json(const std::vector<Phase>& phases) {
  nlohmann::json result = nlohmann::json::array();
  for (const Phase& phase : phases)
    result.push_back({{"sigma", phase.sigma}, {"q", phase.q}, {"steps", phase.steps}});
  return result;
}

// The run's first `steps` steps.
std::vector<Phase> beginning(const std::vector<Phase>& phases, int64_t steps) {
  std::vector<Phase> result;
  for (Phase phase : phases) {
    phase.steps = std::min(phase.steps, steps);
    steps -= phase.steps;
    result.push_back(phase);
  }
  return result;
}

void draw(const PrivacyOptions& wanted, const std::vector<std::vector<Phase>>& runs,
          const std::vector<std::unique_ptr<Accountant>>& used) {
  const double delta = *wanted.delta;
  constexpr int64_t kPoints = 24;
  LinePlot plot{.title = fmt::format("epsilon spent, delta = {}", delta),
                .x_label = "steps",
                .y_label = "epsilon",
                .curves = {}};
  for (size_t i = 0; i < used.size(); ++i) {
    int64_t total = 0;
    for (const Phase& phase : runs[i]) total += phase.steps;
    Curve curve{.name = name_of(used[i]->kind()), .points = {}};
    int64_t before = -1;
    for (int64_t point = 0; point <= kPoints; ++point) {
      const auto steps =
          static_cast<int64_t>(static_cast<double>(total) * static_cast<double>(point) / kPoints);
      if (steps == before) continue;
      curve.points.emplace_back(static_cast<double>(steps),
                                used[i]->epsilon(beginning(runs[i], steps), delta).epsilon);
      before = steps;
    }
    plot.curves.push_back(std::move(curve));
  }
  const std::string trouble = write_png(plot, wanted.plot, wanted.overwrite);
  fmt::print(stderr, "{}\n", trouble.empty() ? "plot: " + wanted.plot : trouble);
}

void show(const PrivacyOptions& wanted, const std::vector<Row>& rows, nlohmann::json record) {
  if (wanted.json != "-") fmt::print("{}", row_table(rows));
  if (wanted.json.empty()) return;
  for (const Row& row : rows) record["results"].push_back(row_json(row));
  record[kWrittenBy] = kWriter;
  record["delta"] = *wanted.delta;
  record["relation"] = name_of(privacy::Relation::add_remove);
  record["mechanism"] = "Poisson-sampled Gaussian";
  const std::string text = record.dump(2) + "\n";
  if (wanted.json == "-") {
    fmt::print("{}", text);
  } else {
    write_file_atomically(wanted.json, text);
  }
}

int run_epsilon(const CommandCall& call) {
  PrivacyOptions wanted;
  Options options("privacy epsilon",
                  "what a run of the Poisson-sampled Gaussian mechanism spends (add/remove-one)");
  options.add("sigma", wanted.sigma, {.aliases = {"noise-multiplier"}, .help = "noise multiplier"});
  add_common(options, wanted);
  options.add(
      "phase", wanted.phases,
      {.help = "a phase of the run, as often as it has phases; instead of --sigma, --q and --steps",
       .repeated = true,
       .value = "SIGMA,Q,STEPS"});
  if (!options.parse_call(call)) return kExitDone;
  check_outputs(wanted);
  privacy::check_delta(*wanted.delta);
  const std::vector<Phase> phases = run_phases(wanted);
  privacy::check_phases(phases);

  const auto used = accountants(wanted.accountant);
  std::vector<Row> rows;
  for (const auto& accountant : used)
    rows.push_back(make_row(*accountant, accountant->epsilon(phases, *wanted.delta)));
  show(wanted, rows, {{"phases", phases_json(phases)}});
  if (!wanted.plot.empty()) draw(wanted, std::vector(used.size(), phases), used);
  return kExitDone;
}

int run_sigma(const CommandCall& call) {
  PrivacyOptions wanted;
  Options options("privacy sigma",
                  "the smallest noise multiplier that keeps a run within a budget");
  options.add("epsilon", wanted.epsilon,
              {.aliases = {"target-epsilon"}, .help = "the budget", .required = true});
  add_common(options, wanted);
  if (!options.parse_call(call)) return kExitDone;
  check_outputs(wanted);
  const double q = sampling_rate(wanted);
  privacy::check_delta(*wanted.delta);
  privacy::check_phases({{.sigma = 1, .q = q, .steps = 0}});
  const int64_t steps = step_count(wanted, q);

  const auto used = accountants(wanted.accountant);
  std::vector<Row> rows;
  std::vector<std::vector<Phase>> runs;
  for (const auto& accountant : used) {
    const auto [sigma, spent] =
        privacy::calibrate_sigma(*accountant, *wanted.epsilon, *wanted.delta, q, steps);
    rows.push_back(make_row(*accountant, spent, sigma));
    runs.push_back({{.sigma = sigma, .q = q, .steps = steps}});
  }
  show(wanted, rows, {{"target_epsilon", *wanted.epsilon}, {"q", q}, {"steps", steps}});
  if (!wanted.plot.empty()) draw(wanted, runs, used);
  return kExitDone;
}

// Where a curve crosses a `doubling`, between two of its batches; nothing if it does not.
std::optional<std::pair<double, double>> crossing(const Curve& curve,
                                                  const std::vector<double>& doublings, double at) {
  for (size_t i = 0; i + 1 < doublings.size(); ++i) {
    if (doublings[i] < at || doublings[i + 1] >= at) continue;
    const double share = (doublings[i] - at) / (doublings[i] - doublings[i + 1]);
    const auto& [x, y] = curve.points[i];
    const auto& [next_x, next_y] = curve.points[i + 1];
    return std::pair{x + share * (next_x - x), y + share * (next_y - y)};
  }
  return {};
}

// A curve for each number of epochs, and the two borders of the sensible region across them.
void draw_explored(const std::vector<privacy::ExploredRun>& runs, const std::string& path,
                   bool overwrite) {
  LinePlot plot{.title = "noise-batch ratio",
                .x_label = "log10 of the expected batch",
                .y_label = "log10 of sigma / batch",
                .curves = {}};
  std::map<double, std::vector<privacy::ExploredRun>> by_epochs;
  for (const privacy::ExploredRun& run : runs) by_epochs[run.epochs].push_back(run);
  Curve pays{.name = "a larger batch pays up to here", .points = {}},
      saturated{.name = "saturated from here on", .points = {}};
  for (auto& [epochs, same] : by_epochs) {
    std::sort(same.begin(), same.end(),
              [](const auto& a, const auto& b) { return a.batch < b.batch; });
    Curve curve{.name = fmt::format("{:g} {}", epochs, epochs == 1 ? "epoch" : "epochs"),
                .points = {}};
    std::vector<double> doublings;
    for (const privacy::ExploredRun& run : same) {
      curve.points.emplace_back(std::log10(run.batch), std::log10(run.noise_batch_ratio));
      doublings.push_back(run.gain);
    }
    if (const auto point = crossing(curve, doublings, privacy::kNearlyAll))
      pays.points.push_back(*point);
    if (const auto point = crossing(curve, doublings, privacy::kHardlyAny))
      saturated.points.push_back(*point);
    plot.curves.push_back(std::move(curve));
  }
  for (const Curve& border : {pays, saturated}) {
    if (border.points.size() > 1) plot.curves.push_back(border);
  }
  const std::string trouble = write_png(plot, path, overwrite);
  fmt::print(stderr, "{}\n", trouble.empty() ? "plot: " + path : trouble);
}

int run_explore(const CommandCall& call) {
  privacy::ExploreRequest request;
  std::string json, plot;
  bool overwrite = false;
  Options options("privacy explore",
                  "noise over batch sizes and epochs for a budget, with the sensible region");
  options.add("data-size", request.data_size,
              {.aliases = {"dataset-size"}, .help = "records in the data set", .required = true});
  options.add("epsilon", request.epsilon,
              {.aliases = {"target-epsilon"}, .help = "the budget", .required = true});
  options.add("delta", request.delta, {.help = "delta of the guarantee", .required = true});
  options.add("batch", request.batches,
              {.aliases = {"batch-size", "batches"},
               .help = "expected samples per logical batch",
               .fallback = "64, 256, 1024, ... up to half of the data"});
  options.add("epochs", request.epochs, {.help = "epochs", .fallback = "1,3,10,30"});
  options.add(
      "json", json,
      {.help = "write it all as JSON, to stdout without a FILE", .bare = "-", .value = "FILE"});
  options.add("plot", plot,
              {.help = "draw the noise-batch ratio over the batch as PNG", .value = "FILE"});
  add_overwrite_option(options, overwrite);
  if (!options.parse_call(call)) return kExitDone;
  if (!json.empty() && json != "-") check_output_file(json, overwrite);
  if (!plot.empty()) check_png(plot, overwrite);

  const std::vector<privacy::ExploredRun> runs = privacy::explore(request);
  Table table({"batch", "epochs", "steps", "sigma", "sigma / batch", "doubling", "region"});
  nlohmann::json rows = nlohmann::json::array();
  for (const privacy::ExploredRun& run : runs) {
    table.row({fmt::format("{:g}", run.batch), fmt::format("{:g}", run.epochs),
               std::to_string(run.steps), fmt::format("{:.3g}", run.sigma),
               fmt::format("{:.2e}", run.noise_batch_ratio), fmt::format("{:.2f}", run.gain),
               run.advice == privacy::BatchAdvice::sensible ? "* sensible" : name_of(run.advice)});
    rows.push_back({{"batch", run.batch},
                    {"epochs", run.epochs},
                    {"steps", run.steps},
                    {"sigma", run.sigma},
                    {"noise_batch_ratio", run.noise_batch_ratio},
                    {"doubling", run.gain},
                    {"region", name_of(run.advice)}});
  }
  const nlohmann::json record = {{kWrittenBy, kWriter},
                                 {"data_size", request.data_size},
                                 {"epsilon", request.epsilon},
                                 {"delta", request.delta},
                                 {"relation", name_of(privacy::Relation::add_remove)},
                                 {"mechanism", "Poisson-sampled Gaussian"},
                                 {"runs", rows}};
  if (json == "-") {
    fmt::print("{}\n", record.dump(2));
  } else {
    fmt::print("{}", table.text());
    fmt::print(
        "\ndoubling: how much sigma / batch falls with twice the batch at the same steps, from 2 "
        "(more compute buys as much accuracy)\nto 1 (it buys none). sensible: {} to {}. sigma is "
        "an upper bound; `veil privacy sigma` is exact.\n",
        privacy::kHardlyAny, privacy::kNearlyAll);
    if (!json.empty()) write_file_atomically(json, record.dump(2) + "\n");
  }
  if (!plot.empty()) draw_explored(runs, plot, overwrite);
  return kExitDone;
}

}  // namespace

int run_privacy(const CommandCall& call) {
  const std::vector<std::string>& words = call.arguments;
  const std::string word = words.empty() ? "" : words[0];
  const CommandCall rest{.arguments = {words.begin() + (words.empty() ? 0 : 1), words.end()},
                         .describe = call.describe};
  if (word == "epsilon") return run_epsilon(rest);
  if (word == "sigma") return run_sigma(rest);
  if (word == "explore") return run_explore(rest);
  if (word == "--help" || word == "-h") {
    fmt::print(
        "usage: veil privacy epsilon|sigma|explore [options]\n\n{}\n`veil privacy epsilon --help` "
        "lists "
        "its options.\n",
        align_columns({{"epsilon", "what a run spends"},
                       {"sigma", "the noise that a budget asks for"},
                       {"explore", "noise over batch sizes and epochs for a budget"}},
                      2));
    return kExitDone;
  }
  user_error("privacy {}: allowed are epsilon, sigma and explore{}",
             word.empty() ? "without a word" : "'" + word + "'",
             option_values::did_you_mean(word, {"epsilon", "sigma", "explore"}));
}

}  // namespace veil
