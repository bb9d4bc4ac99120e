#include "models/text_generator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "kernels/token_draw.h"
#include "nn/decode.h"
#include "nn/lm_head.h"
#include "tensor/stream.h"

namespace veil {
namespace {

// Texts are looked at for their ends only so often: reading the device stops it.
constexpr int64_t kLookEvery = 32;

const Decodes& decoding(const Block& block) {
  const auto* found = dynamic_cast<const Decodes*>(&block);
  if (!found) user_error("this model generates no text: it is not a causal language model");
  return *found;
}

Tensor on_device(const std::vector<int64_t>& values, Device device) {
  Tensor host = empty_tensor({static_cast<int64_t>(values.size())}, at::kLong, cpu_device());
  std::copy(values.begin(), values.end(), host.data_ptr<int64_t>());
  return host.to(device);
}

}  // namespace

// Buffers of one shape of work, used again while batch, capacity and rule stay the same.
struct TextGenerator::State {
  int64_t batch = 0, capacity = 0, vocabulary = 0;
  std::vector<LayerCache> caches;
  DecodeStep step;
  Tensor tokens;   // int64 [batch]: the newest
  Tensor samples;  // int64 [batch]: the texts' numbers
  Tensor places;   // int64 [batch]: how many tokens were made
  Tensor made;     // int64 [batch, new tokens]
  Tensor ended;    // bool [batch]
  Tensor seen;     // bytes [batch, vocabulary], with a repetition penalty
  Stream stream;
  std::optional<Graph> graph;
  GenerateOptions captured;  // what the graph was captured for

  explicit State(Device device) : stream(Stream::create(device)) {}
};

TextGenerator::TextGenerator(const Model& model, const Params& params, int64_t positions,
                             DType compute, Device device)
    : model_(model),
      params_(params),
      positions_(positions),
      compute_(compute),
      device_(device),
      state_(std::make_unique<State>(device)) {
  for (const auto& block : model.blocks) decoding(*block);
  if (!dynamic_cast<const LmHead*>(model.loss.get()))
    user_error("this model generates no text: it has no language-model head");
  state_->vocabulary = model.input.classes;
}

TextGenerator::~TextGenerator() = default;

// Runs whole prompts, padded on the right, and keeps their keys and values. Logits after each.
Tensor TextGenerator::prefill(const std::vector<std::vector<int32_t>>& prompts, int64_t capacity) {
  State& s = *state_;
  const auto batch = static_cast<int64_t>(prompts.size());
  int64_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max<int64_t>(longest, std::ssize(prompt));
  if (s.batch != batch || s.capacity != capacity) {
    s.graph.reset();
    s.batch = batch;
    s.capacity = capacity;
    s.caches.clear();
    for (const auto& block : model_.blocks)
      s.caches.push_back(decoding(*block).make_cache(batch, capacity, compute_, device_));
    const at::TensorOptions whole = at::TensorOptions(device_).dtype(at::kLong);
    s.step.positions = at::zeros({batch}, whole);
    s.step.lengths = at::zeros({batch}, whole.dtype(at::kInt));
    s.step.starts = at::arange(batch + 1, whole.dtype(at::kInt));
    s.step.key_starts = at::arange(batch + 1, whole.dtype(at::kInt)).mul_(capacity);
    s.tokens = at::zeros({batch}, whole);
    s.samples = at::zeros({batch}, whole);
    s.places = at::zeros({batch}, whole);
    s.ended = at::zeros({batch}, whole.dtype(at::kBool));
  }
  Tensor ids = at::zeros({batch, longest}, at::TensorOptions(at::kCPU).dtype(at::kLong));
  std::vector<int64_t> last;
  bool equal = true;
  for (int64_t i = 0; i < batch; ++i) {
    const auto& prompt = prompts[static_cast<size_t>(i)];
    std::copy(prompt.begin(), prompt.end(), ids.data_ptr<int64_t>() + i * longest);
    last.push_back(std::ssize(prompt) - 1);
    equal = equal && std::ssize(prompt) == longest;
  }
  Flow flow{ids.to(device_)};
  for (size_t b = 0; b < model_.blocks.size(); ++b) {
    Tape tape;
    flow = model_.blocks[b]->forward(params_, flow, tape);
    decoding(*model_.blocks[b]).remember(params_, tape, s.caches[b]);
  }
  const Tensor at = on_device(last, device_);
  s.step.positions.copy_(at).add_(1);
  s.step.lengths.copy_(s.step.positions).add_(1);
  s.step.longest = device_.is_cuda() ? capacity : longest + 1;
  s.step.equal_lengths = equal;
  const int64_t width = flow.hidden.size(-1);
  const Tensor ends =
      flow.hidden.gather(1, at.view({-1, 1, 1}).expand({batch, 1, width})).contiguous();
  return dynamic_cast<const LmHead&>(*model_.loss)
      .logits(params_, {ends})
      .view({batch, s.vocabulary});
}

// Of the newest tokens, which join the caches.
Tensor TextGenerator::decode_logits() {
  State& s = *state_;
  Tensor hidden = s.tokens.view({-1, 1});
  for (size_t b = 0; b < model_.blocks.size(); ++b)
    hidden = decoding(*model_.blocks[b]).decode(params_, hidden, s.caches[b], s.step);
  s.step.positions.add_(1);
  s.step.lengths.add_(1);
  return dynamic_cast<const LmHead&>(*model_.loss)
      .logits(params_, {hidden})
      .view({s.batch, s.vocabulary});
}

// Draws each text's next token and notes it; a text that has ended repeats its last.
void TextGenerator::take_token(const Tensor& logits, const GenerateOptions& options) {
  State& s = *state_;
  const Tensor drawn = empty_tensor({s.batch}, at::kLong, device_);
  draw_tokens(logits, s.seen, options.rule, options.seed, s.samples, s.places, drawn);
  s.tokens.copy_(at::where(s.ended, s.tokens, drawn));
  s.made.scatter_(1, s.places.view({-1, 1}), s.tokens.view({-1, 1}));
  if (s.seen.defined()) s.seen.scatter_(1, s.tokens.view({-1, 1}), 1);
  for (const int64_t end : options.end_tokens) s.ended.logical_or_(s.tokens.eq(end));
  s.places.add_(1);
}

Tensor TextGenerator::logits_after(const std::vector<std::vector<int32_t>>& prompts) {
  StreamGuard guard(state_->stream);
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  return prefill(prompts, static_cast<int64_t>(longest) + 1).cpu();
}

std::vector<GeneratedText> TextGenerator::run(const std::vector<std::vector<int32_t>>& prompts,
                                              const GenerateOptions& options, int64_t first_text) {
  State& s = *state_;
  if (prompts.empty() || options.new_tokens < 1) return std::vector<GeneratedText>(prompts.size());
  int64_t longest = 0;
  for (const auto& prompt : prompts) {
    if (prompt.empty())
      user_error("a prompt has no tokens; the model needs at least one to go on from");
    for (const int32_t token : prompt) {
      if (token < 0 || token >= s.vocabulary)
        user_error("token {} in a prompt: the model has tokens 0 to {}", token, s.vocabulary - 1);
    }
    longest = std::max<int64_t>(longest, std::ssize(prompt));
  }
  // The last new token needs no position.
  if (longest + options.new_tokens - 1 > positions_)
    user_error(
        "a prompt of {} tokens and {} new ones: the model has positions for {}; shorten the prompt "
        "or lower --max-new-tokens",
        longest, options.new_tokens, positions_);
  StreamGuard guard(s.stream);
  constexpr int64_t kRound = 64;  // so that similar batches share a capacity, and a graph
  const int64_t capacity = (longest + options.new_tokens + kRound - 1) / kRound * kRound;
  const Tensor logits = prefill(prompts, capacity);
  const auto& before = s.captured;
  const bool same = before.new_tokens == options.new_tokens && before.seed == options.seed &&
                    before.end_tokens == options.end_tokens &&
                    before.rule.temperature == options.rule.temperature &&
                    before.rule.top_k == options.rule.top_k &&
                    before.rule.top_p == options.rule.top_p &&
                    before.rule.repetition_penalty == options.rule.repetition_penalty;
  if (!same) s.graph.reset();
  if (!s.graph) {
    s.made = at::zeros({s.batch, options.new_tokens}, s.tokens.options());
    s.seen = options.rule.repetition_penalty == 1
                 ? Tensor()
                 : at::zeros({s.batch, s.vocabulary}, s.tokens.options().dtype(at::kByte));
  }
  s.captured = options;
  s.samples.copy_(at::arange(first_text, first_text + s.batch, s.samples.options()));
  s.places.zero_();
  s.ended.zero_();
  if (s.seen.defined()) {
    s.seen.zero_();
    for (int64_t i = 0; i < s.batch; ++i) {
      const auto& prompt = prompts[static_cast<size_t>(i)];
      s.seen[i].index_fill_(0, on_device({prompt.begin(), prompt.end()}, device_), 1);
    }
  }
  take_token(logits, options);
  const bool graphed = options.graph && device_.is_cuda() && options.new_tokens > 4;
  for (int64_t done = 1; done < options.new_tokens; ++done) {
    const bool looks = done % kLookEvery == 0 || !device_.is_cuda();
    if (looks && !options.end_tokens.empty() && s.ended.all().item<bool>()) break;
    if (looks && options.on_tokens && done % kLookEvery == 0) options.on_tokens(done);
    if (!graphed || done == 1) {  // libraries set themselves up in the first step
      take_token(decode_logits(), options);
      if (!device_.is_cuda()) ++s.step.longest;
      continue;
    }
    if (!s.graph) s.graph = Graph::capture(device_, [&] { take_token(decode_logits(), options); });
    s.graph->replay();
  }
  synchronize(device_);
  if (options.on_tokens) options.on_tokens(options.new_tokens);
  const Tensor made = s.made.cpu(), places = s.places.cpu();
  std::vector<GeneratedText> texts(prompts.size());
  for (int64_t i = 0; i < s.batch; ++i) {
    GeneratedText& text = texts[static_cast<size_t>(i)];
    const int64_t* row = made.data_ptr<int64_t>() + i * options.new_tokens;
    const int64_t count = places.data_ptr<int64_t>()[i];
    for (int64_t t = 0; t < count && !text.ended; ++t) {
      text.tokens.push_back(static_cast<int32_t>(row[t]));
      text.ended = std::find(options.end_tokens.begin(), options.end_tokens.end(), row[t]) !=
                   options.end_tokens.end();
    }
  }
  return texts;
}

}  // namespace veil
