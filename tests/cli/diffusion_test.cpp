// veil train for diffusion transformers, and veil sample, as a person uses them.
#include <filesystem>

#include "base/files.h"
#include "cli/program.h"
#include "data/image_file.h"
#include "models/weights.h"

namespace veil {
namespace {

class ProgramDiffusion : public ProgramTest {
 protected:
  static std::string words(const std::string& more) {
    return "train --model dit-tiny --device cpu --batch-size 8 --shapes 64 --learning-rate 0.003 " + more;
  }
  void expect_refused(const std::string& line, const std::string& part) const {
    const Answer answer = veil(line);
    EXPECT_EQ(answer.code, 2) << line << "\n" << answer.err;
    EXPECT_EQ(answer.complaints(), 1) << answer.err;
    EXPECT_NE(answer.err.find(part), std::string::npos) << answer.err;
  }
};

TEST_F(ProgramDiffusion, LearnsAndDrawsAPicture) {
  const Answer trained = veil(words("--steps 6 --export model --json"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::vector<Json> lines = trained.objects();
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_LT(lines.back().at("loss").get<double>(), lines.front().at("loss").get<double>());
  if (!data::built_with_images()) GTEST_SKIP() << "no libpng or libjpeg";
  for (const char* sampler : {"ddim --guidance 1", "ddpm --guidance 2.5"}) {
    const Answer drawn =
        veil(std::string("sample --model model --each 3 --steps 4 --scale 2 --device cpu --sampler ") + sampler);
    ASSERT_EQ(drawn.code, 0) << drawn.err;
    const data::Picture picture = data::read_picture((work() / "samples.png").string());
    EXPECT_EQ(picture.width, 2 * (3 * 18 + 2));
    EXPECT_EQ(picture.height, 2 * (4 * 18 + 2));
  }
  expect_refused("sample --model model --classes 9 --device cpu", "label 9: the model has classes 0 to 3");
  expect_refused("sample --model dit-tiny --device cpu", "a folder with a diffusion model's config.json");
}

TEST_F(ProgramDiffusion, AResumedRunIsTheUninterruptedOne) {
  ASSERT_EQ(veil(words("--steps 6 --export whole --output-dir one")).code, 0);
  ASSERT_EQ(veil(words("--steps 3 --output-dir two")).code, 0);
  const Answer resumed = veil(words("--steps 6 --export parts --output-dir two --resume"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(read_file((work() / "whole/model.safetensors").string()),
            read_file((work() / "parts/model.safetensors").string()));
}

TEST_F(ProgramDiffusion, IsProfiledAndPlanned) {
  const Json record = record_of("--model dit-tiny --device cpu --strategy ddp --warmup 1 --iterations 2");
  EXPECT_EQ(record.at("outcome").get<std::string>(), "ok");
  EXPECT_EQ(record.at("parameters").get<int64_t>(), 53'072);
  EXPECT_EQ(record.at("batch_size").get<int64_t>(), 2);
  const Answer planned = veil("plan --memory --model DiT-L/8 --world 1 --strategy ddp");
  EXPECT_EQ(planned.code, 0) << planned.err;
  EXPECT_NE(planned.out.find("blocks.23"), std::string::npos);
}

TEST_F(ProgramDiffusion, BadInputIsOneLine) {
  expect_refused(words("--image-size 18 --steps 1"), "image size 18 is not a multiple of the patch 4");
  expect_refused(words("--classes 2 --steps 1"), "pass --classes 4");
  expect_refused(words("--channels 2 --steps 1"), "--channels 2");
  expect_refused(words("--epsilon 8 --steps 1"), "--epsilon: diffusion transformers are not trained privately yet");
  if (!data::built_with_images()) GTEST_SKIP() << "no libpng or libjpeg";
  std::filesystem::create_directories(work() / "images/a");
  expect_refused(words("--steps 1 --data images"), "holds no images");
  write_file_atomically((work() / "images/a/bad.png").string(), "no image");
  expect_refused(words("--steps 1 --data images"), "images/a/bad.png: neither a PNG nor a JPEG file");
  for (int i = 0; i < 8; ++i) {
    const data::Picture picture{2, 2, std::vector<uint8_t>(12, static_cast<uint8_t>(i))};
    data::write_png((work() / ("images/a/" + std::to_string(i) + ".png")).string(), picture);
  }
  const Answer skipped = veil(words("--steps 1 --data images --skip-bad"));
  EXPECT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_NE(skipped.err.find("1 images were left out, 8 are used"), std::string::npos) << skipped.err;
}

}  // namespace
}  // namespace veil
