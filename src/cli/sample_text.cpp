// veil sample, of a language model: texts that continue prompts.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/outputs.h"
#include "base/quantity.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/sample.h"
#include "cli/terminal.h"
#include "run/inference.h"
#include "run/ranks.h"
#include "run/special_tokens.h"
#include "run/text_data.h"

namespace veil {
namespace {

// A .jsonl file has one object with a "prompt" per line; of any other file each line is a prompt.
std::vector<std::string> prompts_of_file(const std::string& path) {
  const std::string content = read_file(path);
  const bool json = path.ends_with(".jsonl");
  std::vector<std::string> prompts;
  size_t begin = 0;
  for (int64_t line = 1; begin < content.size(); ++line) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    std::string text = content.substr(begin, end - begin);
    begin = end + 1;
    if (text.ends_with('\r')) text.pop_back();
    if (text.empty()) continue;
    if (!json) {
      prompts.push_back(std::move(text));
      continue;
    }
    const auto object = try_json(text);
    if (!object.is_object() || !object.contains("prompt") || !object["prompt"].is_string())
      user_error("--prompts {}:{}: a line must be an object with a \"prompt\"", path, line);
    prompts.push_back(object["prompt"].get<std::string>());
  }
  if (prompts.empty()) user_error("--prompts {}: the file has no prompt", path);
  return prompts;
}

// With what the tokenizer's template puts in front of a text, and without what it puts behind it: a
// prompt continues.
std::vector<int32_t> prompt_tokens(const data::Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<int32_t> whole = tokenizer.encode(prompt, /*add_special=*/true);
  const std::vector<int32_t> own = tokenizer.encode(prompt, /*add_special=*/false);
  const auto found = std::search(whole.begin(), whole.end(), own.begin(), own.end());
  if (found != whole.end() && !own.empty()) whole.erase(found + std::ssize(own), whole.end());
  return whole;
}

// The prompts of a data set with replies: a record's tokens up to the first that is trained on.
std::vector<std::vector<int32_t>> prompts_of_data(const RunConfig& given, int64_t most,
                                                  int64_t new_tokens) {
  RunConfig config = given;
  config.data.held_out = 0;
  config.data.samples = data::SampleKind::document;
  ModelSource source = model_source(config);
  config.model.seq_length = std::max<int64_t>(1, source.config->positions - new_tokens);
  const TextData text = load_text(config, source);
  const data::Samples& samples = *text.samples;
  std::vector<int64_t> inputs(static_cast<size_t>(samples.length())), targets(inputs.size());
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t s = 0; s < samples.count() && std::ssize(prompts) < most; ++s) {
    samples.fill(s, inputs.data(), targets.data());
    const auto trained = std::find_if(targets.begin(), targets.end(), [](int64_t target) {
      return target != data::kIgnoredTarget;
    });
    // The first position that predicts a trained token ends the prompt.
    const auto size = trained - targets.begin() + 1;
    if (trained != targets.end() && size > 1)
      prompts.emplace_back(inputs.begin(), inputs.begin() + size);
  }
  if (prompts.empty())
    user_error("--data {}: no record has a prompt; chat, completion or instruction data does",
               config.data.path);
  return prompts;
}

// What the model made behind a prompt. Decoders may treat the beginning of a text in a special way,
// so the whole is decoded and the prompt's part is taken off.
std::string continuation(const data::Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                         std::vector<int32_t> made, bool ended) {
  if (ended) made.pop_back();
  // Models may have more rows than the tokenizer has tokens; the others mean nothing.
  std::erase_if(made, [&](int32_t token) { return token >= tokenizer.identity().vocabulary_size; });
  std::vector<int32_t> whole = prompt;
  whole.insert(whole.end(), made.begin(), made.end());
  const std::string before = tokenizer.decode(prompt), all = tokenizer.decode(whole);
  return all.starts_with(before) ? all.substr(before.size()) : tokenizer.decode(made);
}

}  // namespace

const NameTable<TextFormat>& names(TextFormat) {
  static const NameTable<TextFormat> table = {{TextFormat::text, "text"},
                                              {TextFormat::jsonl, "jsonl", {"json"}}};
  return table;
}

void add_text_options(Options& options, TextSampling& s, RunConfig& config) {
  options.section("text");
  options.add("prompt", s.prompts,
              {.help = "text to continue; may be given several times. Without any prompt a text "
                       "starts from the tokenizer's begin or end token",
               .repeated = true});
  options.add("prompts", s.prompt_file,
              {.help = "file with one prompt per line; .jsonl: objects with a \"prompt\"",
               .value = "FILE"});
  options.add("data", config.data.path,
              {.help = "take the prompts of chat, completion or instruction data, as `veil train "
                       "--data` reads it: each record up to its first reply",
               .value = "PATH"});
  add_chat_template_option(options, config.data.corpus);
  options.add("max-prompts", s.most_prompts,
              {.help = "with --data: how many records, from the first on", .minimum = 1});
  options.add("count", s.count,
              {.aliases = {"num_return_sequences"}, .help = "texts per prompt", .minimum = 1});
  options.add("max-new-tokens", s.new_tokens,
              {.aliases = {"max_length"}, .help = "tokens to generate at most", .minimum = 1});
  options.add("temperature", s.temperature,
              {.help = "divides the logits; below 1 makes likely tokens more likely, 0 always "
                       "takes the most likely one",
               .minimum = 0,
               .maximum = 1000});
  options.add("top-k", s.top_k,
              {.help = "draw from the K most likely tokens only; 0: from all", .minimum = 0});
  options.add("top-p", s.top_p,
              {.help = "draw from the fewest most likely tokens that together have this "
                       "probability; 1: from all",
               .minimum = 0,
               .maximum = 1});
  options.add("repetition-penalty", s.repetition_penalty,
              {.help = "above 1 makes tokens of the text so far less likely",
               .minimum = 0.01,
               .maximum = 100});
  options.add("greedy", s.greedy, {.help = "the same as --temperature 0"});
  options.add("ignore-end", s.ignore_end, {.help = "do not stop a text at the model's end token"});
  options.add("format", s.format,
              {.help = "text, or one JSON object per line with prompt, text, tokens and whether "
                       "the text ended"});
  options.add("tokenizer", config.data.tokenizer,
              {.help = "a tokenizer.json, a folder that holds one, or bytes; by default the "
                       "model's own",
               .value = "PATH"});
}

int sample_text(const RunConfig& given, const TextSampling& s, const std::string& output,
                int64_t batch, bool overwrite) {
  if (!s.prompts.empty() + !s.prompt_file.empty() + !given.data.path.empty() > 1)
    user_error("--prompt, --prompts and --data: allowed is one of them");
  if (s.greedy && s.count > 1)
    user_error("--count {}: with --greedy all texts of a prompt are the same", s.count);
  if (!output.empty()) check_output_file(output, overwrite);
  std::vector<std::string> prompts = s.prompts;
  if (!s.prompt_file.empty()) prompts = prompts_of_file(s.prompt_file);
  if (prompts.empty() && given.data.path.empty()) prompts.push_back("");

  RunConfig config = given;
  const Device device = choose_device(config, {});
  const ModelSource found = model_source(config);
  if (!found.is_language_model())
    user_error("--model {}: a language model or a diffusion model is needed", config.model.name);
  if (found.config->task == Task::sequence_classification)
    user_error("--{}: a classifier generates no text; `veil evaluate` measures it",
               found.adapter ? "adapter " + config.model.adapter : "model " + config.model.name);
  config.model.seq_length = 1;
  const InferenceModel model = load_inference_model(config, device);
  const auto tokenizer = inference_tokenizer(config.data.tokenizer, model.source);
  const SpecialTokens special =
      choose_special_tokens(model.source, /*own_tokenizer=*/config.data.tokenizer.empty(),
                            tokenizer->identity(), tokenizer.get(), config.data.end_token);
  std::FILE* const about = stderr;
  fmt::print(about, "weights   {}\n", weights_text(model.source, model.weights));
  fmt::print(about, "tokenizer {}{}\n", tokenizer->identity().name,
             special.ends.empty() ? "; no end token is known, texts run to --max-new-tokens" : "");

  std::vector<std::vector<int32_t>> tokens;
  for (const std::string& prompt : prompts) {
    tokens.push_back(prompt_tokens(*tokenizer, prompt));
    if (!tokens.back().empty()) continue;
    const auto& begin = special.begin ? special.begin : special.end;
    if (!begin)
      user_error("--prompt: empty, and the tokenizer has no begin or end token to start from");
    tokens.back().push_back(begin->id);
  }

  if (!config.data.path.empty()) {
    tokens = prompts_of_data(config, s.most_prompts, s.new_tokens);
    for (const auto& prompt : tokens) prompts.push_back(tokenizer->decode(prompt));
  }

  GenerateOptions options;
  options.new_tokens = s.new_tokens;
  options.seed = static_cast<uint64_t>(config.seed);
  options.rule = {.temperature = s.greedy ? 0.0f : static_cast<float>(s.temperature),
                  .top_k = s.top_k,
                  .top_p = s.top_p,
                  .repetition_penalty = static_cast<float>(s.repetition_penalty)};
  if (!s.ignore_end) options.end_tokens.assign(special.ends.begin(), special.ends.end());

  TextGenerator generator(model.model, *model.params, model.source.config->positions, model.compute,
                          device);
  const int64_t all = std::ssize(tokens) * s.count;
  std::string written;
  int64_t made = 0;
  Progress progress;
  const double begin_ms = steady_ms();
  for (int64_t first = 0; first < all; first += batch) {
    const int64_t end = std::min(all, first + batch);
    std::vector<std::vector<int32_t>> chosen;
    for (int64_t i = first; i < end; ++i)
      chosen.push_back(tokens[static_cast<size_t>(i / s.count)]);
    const auto texts = generator.run(chosen, options, first);
    for (int64_t i = first; i < end; ++i) {
      const GeneratedText& text = texts[static_cast<size_t>(i - first)];
      const std::string& prompt = prompts[static_cast<size_t>(i / s.count)];
      const std::string next =
          continuation(*tokenizer, chosen[static_cast<size_t>(i - first)], text.tokens, text.ended);
      made += std::ssize(text.tokens);
      std::string shown;
      if (s.format == TextFormat::jsonl) {
        shown = nlohmann::ordered_json{{"prompt", prompt},
                                       {"text", next},
                                       {"tokens", text.tokens.size()},
                                       {"ended", text.ended}}
                    .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
                "\n";
      } else {
        if (all > 1) shown = fmt::format("--- {} of {}\n", i + 1, all);
        shown += output.empty() ? colored(stdout, Color::bold, for_screen(stdout, prompt)) +
                                      for_screen(stdout, next)
                                : prompt + next;
        shown += "\n";
      }
      if (output.empty()) {
        progress.clear();
        fmt::print("{}", shown);
        std::fflush(stdout);
      } else {
        written += shown;
      }
    }
    if (end < all) progress.show(fmt::format("{} of {}", end, quantity(all, "text")), end, all);
  }
  progress.clear();
  const double seconds = (steady_ms() - begin_ms) / 1000;
  if (!output.empty()) {
    // Prompts of a data set are a part of it.
    write_listed_file(output, written, overwrite, /*owner_only=*/!config.data.path.empty());
    fmt::print("{}\n", output);
  }
  fmt::print(about, "{}, {} in {:.1f} s ({:.0f} tokens per second)\n", quantity(all, "text"),
             quantity(made, "token"), seconds, static_cast<double>(made) / seconds);
  return kExitDone;
}

}  // namespace veil
