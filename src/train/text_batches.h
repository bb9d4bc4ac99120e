// Tokens as a trainer's feed.
#pragma once

#include "train/feed.h"

namespace veil {

std::shared_ptr<const Feed> make_text_feed(std::shared_ptr<const data::Samples> samples);

// The samples as a model takes them: inputs [rows, tokens], targets [rows, tokens] or [rows] labels; on CPU.
Batch batch_tensors(const data::Batch& batch);

}  // namespace veil
