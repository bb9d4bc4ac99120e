// The two kinds of samples that `veil sample` draws.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/run_options.h"
#include "models/image_sampler.h"
#include "models/text_generator.h"

namespace veil {

struct ImageSampling {
  SamplerOptions sampler;
  std::vector<int64_t> classes;
  int64_t each = 8, scale = 1;
};
void add_image_options(Options& options, ImageSampling& sampling);
int sample_images(const RunConfig& config, const ModelSource& source, ImageSampling sampling,
                  std::string output, int64_t batch, bool overwrite);

enum class TextFormat { text, jsonl };
const NameTable<TextFormat>& names(TextFormat);
struct TextSampling {
  std::vector<std::string> prompts;
  std::string prompt_file;
  int64_t most_prompts = 16;  // of the data's own
  int64_t count = 1;
  int64_t new_tokens = 128;
  double temperature = 1, top_p = 1, repetition_penalty = 1;
  int64_t top_k = 0;
  bool greedy = false, ignore_end = false;
  TextFormat format = TextFormat::text;
};
void add_text_options(Options& options, TextSampling& sampling, RunConfig& config);
int sample_text(const RunConfig& config, const TextSampling& sampling, const std::string& output,
                int64_t batch, bool overwrite);

}  // namespace veil
