// What diffusion training is made of: the noise and what it depends on, the weights' average, and
// sampling.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/test_run.h"
#include "models/image_sampler.h"
#include "models/test_diffusion_golden.h"
#include "models/whole_params.h"
#include "train/checkpoint.h"
#include "train/noised_batch.h"
#include "train/weight_average.h"

namespace veil {
namespace {

TEST(NoiseScheduleGolden, NoisedImagesAreTheReferences) {
  for (const DiffusionGolden& golden : diffusion_goldens()) {
    const NoiseSchedule schedule = noise_schedule(golden.config);
    for (int64_t i = 0; i < golden.timesteps.size(0); ++i) {
      const int64_t t = golden.timesteps[i].item<int64_t>();
      const Tensor noised =
          golden.clean[i] * schedule.signal(t) + golden.batch.targets[i] * schedule.noise(t);
      // the file has it in fp32
      EXPECT_LE(largest_difference(noised, golden.batch.inputs[i]), 1e-6) << golden.name;
    }
  }
}

Batch noised(const std::vector<int64_t>& samples, int64_t step, double label_drop = 0.5) {
  const DitConfig config = dit_preset("dit-tiny").value();
  const std::vector<float> pixels(samples.size() * 3 * 16 * 16, 0.25F);
  const std::vector<int64_t> labels(samples.size(), 2);
  return noised_batch(config, noise_schedule(config), pixels, samples, labels,
                      /*sample_count=*/1000, step, {.seed = 9, .label_drop = label_drop},
                      at::kFloat, cpu_device());
}

TEST(NoisedBatch, DependsOnSampleAndStepAlone) {
  const Batch all = noised({5, 900, 17}, 3), one = noised({17}, 3), later = noised({17}, 4);
  EXPECT_TRUE(at::equal(all.inputs[2], one.inputs[0]));
  EXPECT_TRUE(at::equal(all.targets[2], one.targets[0]));
  EXPECT_TRUE(at::equal(all.conditions[2], one.conditions[0]));
  EXPECT_FALSE(at::equal(later.targets, one.targets));
  EXPECT_FALSE(at::equal(all.targets[0], all.targets[1]));
}

TEST(NoisedBatch, TimestepsAreUniformAndLabelsAreHiddenAsOftenAsAsked) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < 1000; ++i) samples.push_back(i);
  const DitConfig config = dit_preset("dit-tiny").value();
  const Batch batch = noised(samples, 1, 0.25);
  double steps = 0, hidden = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t code = batch.conditions[i].item<int64_t>(), label = code % config.labels();
    EXPECT_TRUE(label == 2 || label == config.classes);
    hidden += label == config.classes ? 1 : 0;
    steps += static_cast<double>(code / config.labels());
  }
  EXPECT_NEAR(hidden / 1000, 0.25, 0.06);  // four deviations
  EXPECT_NEAR(steps / 1000, 499.5, 37);
  EXPECT_NEAR(batch.targets.mean().item<double>(), 0, 0.005);
  EXPECT_NEAR(batch.targets.std().item<double>(), 1, 0.005);
}

TEST(WeightAverage, IsTheMovingMeanOverEveryPartOfTheModel) {
  TestCase test;
  test.model = "dit-tiny";
  test.step = TestCase::all_of(at::kDouble);
  TestRun run(test, {});
  // above what the first step takes, below the second's
  WeightAverage average(*run.executor, 0.15);
  const Tensor start = run.executor->parameter(1).clone();
  run.steps(1);
  const Tensor first = run.executor->parameter(1).clone();
  average.update();
  run.steps(1);
  const Tensor second = run.executor->parameter(1).clone();
  average.update();
  const double early = std::min(0.15, 2.0 / 11);
  const Tensor expected = (start * early + first * (1 - early)) * 0.15 + second * 0.85;
  EXPECT_LE(largest_difference(average.parameter(1), expected), 1e-12);

  const std::string folder = (std::filesystem::temp_directory_path() / "veil_average").string();
  save_checkpoint(folder, *run.executor,
                  {{"steps", run.executor->steps()}, {"position", {{"epoch", 0}, {"step", 2}}}}, 1,
                  &average);
  WeightAverage again(*run.executor, 0.15);
  load_average(newest_checkpoint(folder).value(), again);
  EXPECT_EQ(again.updates(), 2);
  for (size_t p = 0; p < run.model.params.size(); ++p)
    EXPECT_EQ(largest_difference(average.parameter(static_cast<ParamId>(p)),
                                 again.parameter(static_cast<ParamId>(p))),
              0);
  std::filesystem::remove_all(folder);
}

TEST(WeightAverage, OfAFrozenParameterIsTheParameterToTheBit) {
  TestCase test;
  test.model = "dit-tiny";
  test.step = TestCase::all_of(at::kFloat);
  test.frozen = {"blocks.0.*"};
  TestRun run(test, {});
  WeightAverage average(*run.executor, 0.999);
  for (int step = 0; step < 30; ++step) {
    run.steps(1);
    average.update();
  }
  for (size_t p = 0; p < run.model.params.size(); ++p) {
    const auto id = static_cast<ParamId>(p);
    EXPECT_EQ(largest_difference(average.parameter(id), run.executor->parameter(id)) == 0,
              run.model.params[p].frozen)
        << run.model.params[p].name;
  }
}

TEST(ImageSampler, GuidanceOfOneIsNoGuidanceAndSeedsAreKept) {
  for (const DiffusionGolden& golden : diffusion_goldens()) {
    const Model model = dit_model(golden.config);
    const FlatParams params = golden.params(model, at::kFloat, cpu_device());
    auto draw = [&](SamplerKind kind, double guidance, const std::vector<int64_t>& labels,
                    uint64_t seed) {
      return sample_images(
          model, golden.config, params, at::kFloat, cpu_device(), labels,
          {.kind = kind, .steps = 5, .guidance = guidance, .seed = seed, .on_step = {}});
    };
    for (const SamplerKind kind : {SamplerKind::ddpm, SamplerKind::ddim}) {
      const Tensor images = draw(kind, 1, {0, 1}, 4);
      EXPECT_TRUE(at::equal(images, draw(kind, 1, {0, 1}, 4)));
      EXPECT_FALSE(at::equal(images, draw(kind, 1, {0, 1}, 5)));
      EXPECT_LE(images.abs().max().item<double>(),
                1.0 + 1e-5);  // the last step gives the clean image, which is cut to this
      // Without a class, guidance has nothing to go away from.
      const int64_t none = golden.config.classes;
      EXPECT_LE(largest_difference(draw(kind, 1, {none}, 4), draw(kind, 3, {none}, 4)), 1e-4);
    }
    EXPECT_FALSE(at::equal(draw(SamplerKind::ddim, 1, {0}, 4), draw(SamplerKind::ddpm, 1, {0}, 4)));
    EXPECT_THROW(draw(SamplerKind::ddim, 1, {golden.config.classes + 1}, 4), UserError);
  }
}

}  // namespace
}  // namespace veil
