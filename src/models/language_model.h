// Llama, Qwen2 and GPT-2 as a list of blocks, for sequences of a given length. Parameters carry the names of the published checkpoints.
#pragma once

#include "models/config.h"
#include "models/shape.h"
#include "nn/attention.h"

namespace veil {

struct LanguageModelOptions {
  int64_t tokens = 1024;  // in a sequence; samples are padded to it on the right
  AttentionKind attention = AttentionKind::automatic;
  int64_t logit_piece_bytes = 0;  // LmHead::Layers::piece_bytes
};

// Throws UserError where the sequence is longer than the model's positions.
Model language_model(const LanguageConfig& config, const LanguageModelOptions& options);

}  // namespace veil
