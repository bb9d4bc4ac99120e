// veil sample: a picture of images drawn from a trained diffusion model.
#include "base/outputs.h"
#include "base/quantity.h"
#include "cli/command.h"
#include "cli/run_options.h"
#include "data/image_source.h"
#include "models/image_sampler.h"
#include "models/load.h"
#include "models/whole_params.h"
#include "run/ranks.h"

namespace veil {

int run_sample(const CommandCall& call) {
  RunConfig config;
  SamplerOptions sampler;
  std::string model_name, output = "samples.png";
  std::vector<int64_t> classes;
  int64_t each = 8, scale = 1, batch = 64, seed = 0;
  bool overwrite = false;
  Options options("sample",
                  "draws images from a trained diffusion model into one PNG, one row per class");
  options.add(
      "model", model_name,
      {.help = "folder that `veil train --export` wrote", .required = true, .value = "DIR"});
  options.add("output", output, {.help = "the picture", .value = "FILE"});
  add_overwrite_option(options, overwrite);
  options.add(
      "classes", classes,
      {.aliases = {"labels"}, .help = "classes to draw, one row each; by default all, at most 16"});
  options.add("each", each, {.help = "images per class", .minimum = 1, .maximum = 1024});
  options.add("sampler", sampler.kind,
              {.help = "ddpm adds fresh noise at each step, ddim does not"});
  options.add("steps", sampler.steps,
              {.aliases = {"num_steps"}, .help = "sampling steps", .minimum = 1});
  options.add(
      "guidance", sampler.guidance,
      {.aliases = {"cfg_scale", "guidance_scale"},
       .help = "how far to go from no class towards the class and beyond; 1: the class as it is",
       .minimum = 0,
       .maximum = 100});
  options.add("scale", scale,
              {.help = "size of one image pixel in the picture", .minimum = 1, .maximum = 64});
  options.add("batch-size", batch, {.help = "images per batch", .minimum = 1});
  options.add("seed", seed, {.help = "random seed of the noise", .minimum = 0});
  add_compute_option(options, config);
  add_attention_option(options, config);
  add_device_option(options, config);
  if (!options.parse_call(call)) return kExitDone;

  const ModelSource source = find_model(model_name, "");
  if (!source.diffusion || !source.has_weights())
    user_error(
        "--model {}: a folder with a diffusion model's config.json and model.safetensors is "
        "needed, as `veil train "
        "--export` writes it",
        model_name);
  const DitConfig& dit = *source.diffusion;
  if (dit.channels != 1 && dit.channels != 3)
    user_error("--model {}: {} channels make no picture; 1 or 3 do", model_name, dit.channels);
  if (classes.empty()) {
    for (int64_t i = 0; i < std::min<int64_t>(dit.classes, 16); ++i) classes.push_back(i);
  }
  check_sampling(dit, classes, sampler);
  check_output_file(output, overwrite);
  sampler.seed = static_cast<uint64_t>(seed);
  const Device device = choose_device(config, {});
  const DType compute = dtype_of(config.step.compute);
  const Model model = dit_model(dit, config.model.attention);
  const InitialWeights weights = load_weights(source.folder, model.params);
  fmt::print("weights   {}\n", weights_text(source, weights));
  const WholeParams params(model.params, compute, device, weights.fill);

  const int64_t size = dit.image_size, plane = size * size;
  std::vector<float> images;  // [classes * each, 3, size, size]
  std::vector<int64_t> labels;
  for (const int64_t label : classes) labels.insert(labels.end(), static_cast<size_t>(each), label);
  const uint64_t first_seed = sampler.seed;
  for (size_t begin = 0; begin < labels.size(); begin += static_cast<size_t>(batch)) {
    const size_t end = std::min(labels.size(), begin + static_cast<size_t>(batch));
    sampler.seed = first_seed * 1'000'003 + begin;  // batches do not share their noise
    const Tensor drawn = sample_images(model, dit, params, compute, device,
                                       {labels.begin() + static_cast<int64_t>(begin),
                                        labels.begin() + static_cast<int64_t>(end)},
                                       sampler)
                             .cpu()
                             .contiguous();
    const float* pixels = drawn.data_ptr<float>();
    for (int64_t i = 0; i < drawn.size(0); ++i) {
      for (int64_t c = 0; c < 3; ++c) {
        const float* from = pixels + (i * dit.channels + std::min(c, dit.channels - 1)) * plane;
        images.insert(images.end(), from, from + plane);
      }
    }
    fmt::print("{} of {}\n", end, quantity(std::ssize(labels), "image"));
    std::fflush(stdout);
  }
  data::Picture grid =
      data::picture_grid(images.data(), static_cast<int64_t>(labels.size()), size, each);
  data::write_png(output, data::enlarged(grid, scale));
  fmt::print("{}\n", output);
  return kExitDone;
}

}  // namespace veil
