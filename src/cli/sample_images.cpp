// veil sample, of a diffusion model: a picture of images drawn from it.
#include "base/outputs.h"
#include "base/quantity.h"
#include "cli/sample.h"
#include "data/image_source.h"
#include "models/whole_params.h"
#include "run/ranks.h"

namespace veil {

void add_image_options(Options& options, ImageSampling& s) {
  options.section("images");
  options.add(
      "classes", s.classes,
      {.aliases = {"labels"}, .help = "classes to draw, one row each; by default all, at most 16"});
  options.add("each", s.each, {.help = "images per class", .minimum = 1, .maximum = 1024});
  options.add("sampler", s.sampler.kind,
              {.help = "ddpm adds fresh noise at each step, ddim does not"});
  options.add("steps", s.sampler.steps,
              {.aliases = {"num_steps"}, .help = "sampling steps", .minimum = 1});
  options.add(
      "guidance", s.sampler.guidance,
      {.aliases = {"cfg_scale", "guidance_scale"},
       .help = "how far to go from no class towards the class and beyond; 1: the class as it is",
       .minimum = 0,
       .maximum = 100});
  options.add("scale", s.scale,
              {.help = "size of one image pixel in the picture", .minimum = 1, .maximum = 64});
}

int sample_images(const RunConfig& config, const ModelSource& source, ImageSampling s,
                  std::string output, int64_t batch, bool overwrite) {
  const std::string& model_name = config.model.name;
  if (output.empty()) output = "samples.png";
  if (!source.diffusion || !source.has_weights())
    user_error(
        "--model {}: a folder with a diffusion model's config.json and model.safetensors is "
        "needed, as `veil train "
        "--export` writes it",
        model_name);
  const DitConfig& dit = *source.diffusion;
  if (dit.channels != 1 && dit.channels != 3)
    user_error("--model {}: {} channels make no picture; 1 or 3 do", model_name, dit.channels);
  if (s.classes.empty()) {
    for (int64_t i = 0; i < std::min<int64_t>(dit.classes, 16); ++i) s.classes.push_back(i);
  }
  check_sampling(dit, s.classes, s.sampler);
  check_output_file(output, overwrite);
  SamplerOptions sampler = s.sampler;
  sampler.seed = static_cast<uint64_t>(config.seed);
  const Device device = choose_device(config, {});
  const DType compute = dtype_of(config.step.compute);
  const Model model = dit_model(dit, config.model.attention);
  const InitialWeights weights = initial_weights(source, model);
  fmt::print("weights   {}\n", weights_text(source, weights));
  const WholeParams params(model.params, compute, device, weights.fill);

  const int64_t size = dit.image_size, plane = size * size;
  std::vector<float> images;  // [classes * each, 3, size, size]
  std::vector<int64_t> labels;
  for (const int64_t label : s.classes)
    labels.insert(labels.end(), static_cast<size_t>(s.each), label);
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
      data::picture_grid(images.data(), static_cast<int64_t>(labels.size()), size, s.each);
  data::write_png(output, data::enlarged(grid, s.scale));
  fmt::print("{}\n", output);
  return kExitDone;
}

}  // namespace veil
