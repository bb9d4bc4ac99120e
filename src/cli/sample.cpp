// veil sample: text from a language model, or images from a diffusion model.
#include "cli/sample.h"

#include "cli/command.h"
#include "cli/hub_environment.h"

namespace veil {

int run_sample(const CommandCall& call) {
  RunConfig config;
  config.model.name = "";
  ImageSampling images;
  TextSampling text;
  std::string output;
  std::optional<int64_t> batch;
  bool overwrite = false;
  Options options("sample",
                  "writes text with a language model, or draws images from a diffusion model");
  options.add("model", config.model.name,
              {.help = "folder that `veil train --export` wrote, or another model with weights",
               .required = true,
               .value = "DIR"});
  options.add("adapter", config.model.adapter,
              {.help = "a folder with adapters of the model (LoRA), as `veil train --lora` exports "
                       "and PEFT writes them",
               .value = "DIR"});
  options.add("from-scratch", config.model.from_scratch,
              {.help = "random weights, to measure the speed of a preset"});
  options.add("output", output,
              {.help = "the file: text goes to the terminal without it, images to samples.png",
               .value = "FILE"});
  add_overwrite_option(options, overwrite);
  options.add(
      "batch-size", batch,
      {.help = "texts or images at a time", .minimum = 1, .fallback = "32 texts or 64 images"});
  options.add("seed", config.seed, {.help = "random seed of the draws", .minimum = 0});
  add_text_options(options, text, config);
  add_image_options(options, images);
  options.section("how it runs");
  add_compute_option(options, config);
  add_attention_option(options, config);
  add_device_option(options, config);
  if (!options.parse_call(call)) return kExitDone;

  config.model.hub_cache = hub_cache_root(hub_variables_from_environment());
  const ModelSource source = find_model(config.model.name, config.model.hub_cache);
  const bool draws_images = source.diffusion.has_value();
  const std::vector<std::string> of_images{"classes", "each",     "sampler",
                                           "steps",   "guidance", "scale"},
      of_text{"adapter",    "data",   "max-prompts",        "prompt",
              "prompts",    "count",  "max-new-tokens",     "temperature",
              "top-k",      "top-p",  "repetition-penalty", "greedy",
              "ignore-end", "format", "tokenizer",          "chat-template"};
  for (const std::string& name : draws_images ? of_text : of_images) {
    if (options.given(name))
      user_error("--{}: {} is a {} model, for which it has no meaning", name, config.model.name,
                 draws_images ? "diffusion" : "language");
  }
  if (draws_images)
    return sample_images(config, source, images, output, batch.value_or(64), overwrite);
  // bf16 on a GPU unless another type was given
  if (!options.given("compute") && runs_on_gpu(config.placement))
    config.step.compute = Precision::bf16;
  return sample_text(config, text, output, batch.value_or(32), overwrite);
}

}  // namespace veil
