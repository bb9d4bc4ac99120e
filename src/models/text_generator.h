// Texts continued by a language model, several at a time, with a cache of keys and values.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/token_mass.h"
#include "models/shape.h"

namespace veil {

struct GenerateOptions {
  int64_t new_tokens = 128;  // at most, for each text
  DrawRule rule;
  uint64_t seed = 0;
  std::vector<int64_t> end_tokens;  // a text ends with the first of them
  // Whether steps are captured in a CUDA graph, if there is a GPU.
  bool graph = true;
  // Called now and then with the tokens made for each text so far.
  std::function<void(int64_t done)> on_tokens;
};

struct GeneratedText {
  std::vector<int32_t> tokens;  // new ones, the end token included
  bool ended = false;           // by an end token, not by the limit
};

class TextGenerator {
 public:
  // `model`: a causal language model whose blocks can decode; UserError otherwise. It and `params`
  // must outlive the generator. `positions`: the longest text that the model can hold.
  TextGenerator(const Model& model, const Params& params, int64_t positions, DType compute,
                Device device);
  ~TextGenerator();

  // Text i depends on its prompt, the options and its number first_text + i, not on its neighbours
  // (in exact arithmetic). UserError for an empty prompt, a token that the model does not have, and
  // a text that would become longer than the model's positions.
  std::vector<GeneratedText> run(const std::vector<std::vector<int32_t>>& prompts,
                                 const GenerateOptions& options, int64_t first_text = 0);

  // Logits after each prompt: [prompts, vocabulary]. For tests.
  Tensor logits_after(const std::vector<std::vector<int32_t>>& prompts);

 private:
  struct State;
  Tensor prefill(const std::vector<std::vector<int32_t>>& prompts, int64_t capacity);
  Tensor decode_logits();
  void take_token(const Tensor& logits, const GenerateOptions& options);

  const Model& model_;
  const Params& params_;
  int64_t positions_;
  DType compute_;
  Device device_;
  std::unique_ptr<State> state_;
};

}  // namespace veil
