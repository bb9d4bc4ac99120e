// veil evaluate: how well a model does on a folder of text, and what training changed.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/outputs.h"
#include "base/quantity.h"
#include "base/table.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/hub_environment.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "run/inference.h"
#include "run/ranks.h"
#include "run/text_data.h"

namespace veil {
namespace {

struct EvaluateOptions {
  RunConfig config;
  std::string before, json, losses;
  int64_t batch = 8, most = 0;
  bool exact_match = false, overwrite = false;
  std::optional<int64_t> length;
};

ModelQuality evaluate_one(const EvaluateOptions& wanted, const std::string& name, Device device,
                          bool with_adapter, bool show_left_out) {
  RunConfig config = wanted.config;
  config.model.name = name;
  if (!with_adapter) config.model.adapter.clear();
  ModelSource source = model_source(config);
  if (!source.is_language_model()) user_error("--model {}: a language model is needed", name);
  config.model.seq_length =
      wanted.length.value_or(std::min<int64_t>(source.config->positions, 1024));
  const TextData text = load_text(config, source, [&](const std::string& line) {
    if (show_left_out) fmt::print(stderr, "veil: left out: {}\n", printable(line));
  });
  if (wanted.exact_match && text.samples->store().header().format.empty())
    user_error(
        "--exact-match: the data is plain text; completions are compared of data with prompts "
        "(--format chat, completion or instruction)");
  const InferenceModel model = load_inference_model(config, device);
  fmt::print(stderr, "{}\n  weights  {}\n", name, weights_text(model.source, model.weights));
  // With a held-out part, only that part is looked at.
  const auto& samples = text.held_out ? *text.held_out : *text.samples;
  Progress progress;
  double shown_ms = steady_ms();
  const auto show = [&](int64_t done, int64_t of) {
    if (steady_ms() - shown_ms < (is_terminal(stderr) ? 200 : 10000)) return;
    shown_ms = steady_ms();
    progress.show(fmt::format("{} of {}", done, quantity(of, "sample")), done, of);
  };
  ModelQuality found = evaluate_samples(model, samples, wanted.batch, wanted.most, show);
  if (wanted.exact_match)
    found.exact_match = exact_matches(model, samples, wanted.batch, wanted.most, show);
  progress.clear();
  return found;
}

std::vector<std::string> quality_cells(const std::string& name, const ModelQuality& q) {
  std::vector<std::string> cells{name, std::to_string(q.samples), std::to_string(q.tokens),
                                 fmt::format("{:.4f}", q.loss)};
  if (q.perplexity) cells.push_back(fmt::format("{:.3f}", *q.perplexity));
  if (q.accuracy) cells.push_back(fmt::format("{:.2f} %", 100 * *q.accuracy));
  if (q.exact_match) cells.push_back(fmt::format("{:.2f} %", 100 * *q.exact_match));
  return cells;
}

nlohmann::ordered_json quality_json(const std::string& name, const ModelQuality& q) {
  nlohmann::ordered_json json{
      {"model", name}, {"samples", q.samples}, {"tokens", q.tokens}, {"loss", q.loss}};
  if (q.perplexity) json["perplexity"] = *q.perplexity;
  if (q.accuracy) json["accuracy"] = *q.accuracy;
  if (q.exact_match) json["exact_match"] = *q.exact_match;
  return json;
}

}  // namespace

int run_evaluate(const CommandCall& call) {
  EvaluateOptions wanted;
  RunConfig& config = wanted.config;
  config.data.held_out = 0;
  config.data.held_out_required = true;
  config.model.name = "";
  Options options("evaluate",
                  "measures a language model on text: perplexity, accuracy of a classifier, exact "
                  "matches of completions");
  options.add("model", config.model.name,
              {.help = "folder of the model to evaluate, or another model with weights",
               .required = true,
               .value = "DIR"});
  options.add("adapter", config.model.adapter,
              {.help = "a folder with adapters of the model (LoRA), as `veil train --lora` exports "
                       "and PEFT writes them",
               .value = "DIR"});
  options.add("before", wanted.before,
              {.help = "another model to compare with, without --adapter: the one that training "
                       "started from",
               .value = "DIR"});
  add_data_options(options, config);
  add_corpus_options(options, config.data.corpus, "label-names");
  options.add("held-out", config.data.held_out,
              {.help = "evaluate only the part that `veil train --held-out X` leaves out of "
                       "training; 0: everything",
               .minimum = 0,
               .maximum = 0.9});
  options.add("samples", config.data.samples,
              {.help = "how text is cut into samples: packed (documents one after the other) or "
                       "document (one sequence each)"});
  options.section("evaluation");
  options.add("seq-length", wanted.length,
              {.aliases = {"max_seq_length"},
               .help = "tokens of a sample at most (default 1024, or the model's positions)",
               .minimum = 1});
  options.add("batch-size", wanted.batch, {.help = "samples at a time", .minimum = 1});
  options.add("max-samples", wanted.most,
              {.help = "evaluate the first N samples only; 0: all", .minimum = 0});
  options.add("exact-match", wanted.exact_match,
              {.help = "also generate each sample's completion greedily and count those that are "
                       "equal token by token"});
  options.add("losses", wanted.losses,
              {.help = "write each sample's loss of --model, one JSON object per line; not private",
               .value = "FILE"});
  options.add("json", wanted.json,
              {.help = "write the figures as JSON, to stdout without a FILE",
               .bare = "-",
               .value = "FILE"});
  add_overwrite_option(options, wanted.overwrite);
  options.section("how it runs");
  add_compute_option(options, config);
  add_attention_option(options, config);
  add_device_option(options, config);
  if (!options.parse_call(call)) return kExitDone;
  if (config.data.path.empty())
    user_error("--data is missing; pass a folder of text or a token store");
  if (!wanted.json.empty() && wanted.json != "-") check_output_file(wanted.json, wanted.overwrite);
  if (!wanted.losses.empty()) check_output_file(wanted.losses, wanted.overwrite);
  config.model.hub_cache = hub_cache_root(hub_variables_from_environment());
  if (!options.given("compute") && runs_on_gpu(config.placement))
    config.step.compute = Precision::bf16;
  const Device device = choose_device(config, {});

  std::vector<std::pair<std::string, ModelQuality>> found;
  if (!wanted.before.empty())
    found.emplace_back(wanted.before, evaluate_one(wanted, wanted.before, device, false, false));
  const std::string adapter = config.model.adapter.empty() ? "" : " + " + config.model.adapter;
  found.emplace_back(config.model.name + adapter,
                     evaluate_one(wanted, config.model.name, device, true, true));
  const ModelQuality& last = found.back().second;
  if (!wanted.losses.empty()) {
    std::string lines;
    for (const ModelQuality::Sample& sample : last.each)
      lines +=
          nlohmann::ordered_json{{"loss", sample.loss}, {"tokens", sample.tokens}}.dump() + "\n";
    write_listed_file(wanted.losses, lines, wanted.overwrite, /*owner_only=*/true);
  }

  if (wanted.json != "-") {
    std::vector<std::string> header{"model", "samples", last.accuracy ? "labels" : "tokens",
                                    "loss"};
    if (last.perplexity) header.push_back("perplexity");
    if (last.accuracy) header.push_back("accuracy");
    if (last.exact_match) header.push_back("exact match");
    Table table(header);
    for (const auto& [name, quality] : found) table.row(quality_cells(name, quality));
    fmt::print("{}not private: these figures look at the data itself\n", table.text());
  }
  if (wanted.json.empty()) return kExitDone;
  nlohmann::ordered_json record{{kWrittenBy, kWriter},
                                {"command", options.command_line()},
                                {"data", config.data.path},
                                {"not_private", true},
                                {"models", nlohmann::ordered_json::array()}};
  for (const auto& [name, quality] : found) record["models"].push_back(quality_json(name, quality));
  if (wanted.json == "-") {
    fmt::print("{}\n", record.dump(2));
  } else {
    write_file_atomically(wanted.json, record.dump(2) + "\n", /*owner_only=*/true);
  }
  return kExitDone;
}

}  // namespace veil
