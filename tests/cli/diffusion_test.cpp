// veil train for diffusion transformers, and veil sample, as a person uses them.
#include <filesystem>

#include "base/files.h"
#include "cli/program.h"
#include "comm/communicator.h"
#include "data/content_hash.h"
#include "data/image_file.h"
#include "data/samples.h"
#include "models/weights.h"

namespace veil {
namespace {

class ProgramDiffusion : public ProgramTest {
 protected:
  static std::string words(const std::string& more) {
    return "train --model dit-tiny --from-scratch --device cpu --batch-size 8 --shapes 64 "
           "--learning-rate 0.003 " +
           more;
  }
  std::vector<Json> evaluations(const std::string& more) const;
  void expect_refused(const std::string& line, const std::string& part) const {
    const Answer answer = veil(line);
    EXPECT_EQ(answer.code, 2) << line << "\n" << answer.err;
    EXPECT_EQ(answer.complaints(), 1) << answer.err;
    EXPECT_NE(answer.err.find(part), std::string::npos) << answer.err;
  }
};

TEST_F(ProgramDiffusion, LearnsAndDrawsAPicture) {
  const Answer trained = veil(words("--steps 6 --export model --held-out 0 --json"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::vector<Json> lines = trained.objects();
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_LT(lines.back().at("loss").get<double>(), lines.front().at("loss").get<double>());
  if (!data::built_with_images()) GTEST_SKIP() << "no libpng or libjpeg";
  for (const char* sampler : {"ddim --guidance 1", "ddpm --guidance 2.5"}) {
    const Answer drawn = veil(
        std::string("sample --model model --each 3 --steps 4 --scale 2 --device cpu --overwrite "
                    "--sampler ") +
        sampler);
    ASSERT_EQ(drawn.code, 0) << drawn.err;
    const data::Picture picture = data::read_picture((work() / "samples.png").string());
    EXPECT_EQ(picture.width, 2 * (3 * 18 + 2));
    EXPECT_EQ(picture.height, 2 * (4 * 18 + 2));
  }
  // Said before the first image is drawn.
  for (const char* label : {"9", "0,9", "-1"}) {
    const Answer refused = veil(
        std::string("sample --model model --batch-size 8 --device cpu --overwrite --classes=") +
        label);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_NE(refused.err.find("the model has classes 0 to 3"), std::string::npos) << refused.err;
    EXPECT_EQ(refused.out, "");
  }
  expect_refused("sample --model model --steps 1001 --device cpu --overwrite",
                 "1001 sampling steps: allowed is 1 to 1000");
  expect_refused("sample --model model --output model --device cpu",
                 "cannot write 'model': it is a folder");
  expect_refused("sample --model dit-tiny --device cpu --overwrite",
                 "a folder with a diffusion model's config.json");
}

TEST_F(ProgramDiffusion, AResumedRunIsTheUninterruptedOne) {
  ASSERT_EQ(veil(words("--steps 6 --export whole --output-dir one")).code, 0);
  ASSERT_EQ(veil(words("--steps 3 --output-dir two")).code, 0);
  const Answer resumed = veil(words("--steps 6 --export parts --output-dir two --resume"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("step      8 images on 1 CPU rank, "), std::string::npos)
      << resumed.out;
  EXPECT_NE(resumed.out.find(" images/s "), std::string::npos) << resumed.out;
  EXPECT_EQ(read_file((work() / "whole/model.safetensors").string()),
            read_file((work() / "parts/model.safetensors").string()));
}

TEST_F(ProgramDiffusion, APrivateRunThatIsTakenBackIsReplayedBitForBitAndCountsOnce) {
  const std::string line = words(
      "--epsilon 8 --delta 1e-4 --total-batch-size 16 --steps 6 --checkpoint-every 2 "
      "--keep-checkpoints 9 --json "
      "--output-dir runs ");
  const Answer whole = veil(line + "--export whole");
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Json privacy = read(work() / "whole/privacy.json");
  EXPECT_LE(privacy.at("epsilon").get<double>(), 8);
  EXPECT_GT(privacy.at("epsilon").get<double>(), 7);
  // As if a crash had come after the second step's checkpoint.
  std::filesystem::path run;
  for (const auto& entry : std::filesystem::directory_iterator(work() / "runs")) run = entry.path();
  for (const char* lost : {"step_00000004", "step_00000006"})
    ASSERT_GT(std::filesystem::remove_all(run / "checkpoints" / lost), 0u);
  const Answer again = veil(line + "--export again --resume");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_file((work() / "whole/model.safetensors").string()),
            read_file((work() / "again/model.safetensors").string()));
  EXPECT_EQ(read(work() / "again/privacy.json").at("epsilon"), privacy.at("epsilon"));
  expect_refused(line + "--ema 0.5 --resume", "--ema 0.5: the run in");
}

// The evaluations' lines of a run with --json.
std::vector<ProgramDiffusion::Json> ProgramDiffusion::evaluations(const std::string& more) const {
  const Answer answer = veil(
      "train --model dit-tiny --from-scratch --device cpu --shapes 64 --held-out 0.25 --json " +
      more);
  EXPECT_EQ(answer.code, 0) << answer.err;
  std::vector<Json> found;
  for (const Json& line : answer.objects()) {
    if (line.contains("held_out_loss")) found.push_back(line);
  }
  return found;
}

TEST_F(ProgramDiffusion, HeldOutImagesAreEvaluatedAlikeOnEveryWorld) {
  const std::string line = "--steps 4 --evaluate-every 2 --learning-rate 0.003 ";
  const std::vector<Json> alone = evaluations(line + "--batch-size 8");
  ASSERT_EQ(alone.size(), 2u);
  EXPECT_EQ(alone[0].at("step").get<int64_t>(), 2);
  EXPECT_LT(alone[1].at("held_out_loss").get<double>(), alone[0].at("held_out_loss").get<double>());
  EXPECT_NEAR(alone[1].at("held_out_samples").get<double>(), 16, 10);
  EXPECT_EQ(alone[1].at("held_out_weights").get<std::string>(), "average");
  EXPECT_FALSE(alone[1].contains("held_out_perplexity"));
  EXPECT_FALSE(alone[1].contains("not_private"));
  // Steps that learn nothing: what the images draw is the same each time.
  const std::vector<Json> still =
      evaluations("--steps 2 --evaluate-every 1 --learning-rate 0 --batch-size 8 --ema 0");
  ASSERT_EQ(still.size(), 2u);
  EXPECT_EQ(still[0].at("held_out_loss"), still[1].at("held_out_loss"));
  EXPECT_FALSE(still[0].contains("held_out_weights"));
  if (!built_with_mpi()) GTEST_SKIP() << "no MPI";
  const std::vector<Json> ranks = evaluations(line + "--batch-size 4 --ranks 2 --strategy zero3");
  ASSERT_EQ(ranks.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(ranks[i].at("held_out_loss").get<double>(),
                alone[i].at("held_out_loss").get<double>(), 1e-4);
    EXPECT_EQ(ranks[i].at("held_out_samples"), alone[i].at("held_out_samples"));
  }
}

TEST_F(ProgramDiffusion, APrivateRunsHeldOutImagesAreNoneOfItsOwnAndTheirFiguresAreMarked) {
  std::filesystem::create_directory(work() / "run");
  const std::vector<Json> lines =
      evaluations("--batch-size 8 --steps 2 --sigma 1 --delta 1e-4 --resume run --export model");
  ASSERT_EQ(lines.size(), 1u);
  const auto marked = lines[0].at("not_private").get<std::vector<std::string>>();
  for (const std::string key : {"held_out_loss", "held_out_samples"})
    EXPECT_NE(std::find(marked.begin(), marked.end(), key), marked.end()) << key;
  const Json events =
      read(work() / "run/checkpoints/step_00000002/state.json").at("privacy").at("events");
  EXPECT_EQ(
      events.at(0).at("data_size").get<int64_t>() + lines[0].at("held_out_samples").get<int64_t>(),
      64);
}

TEST_F(ProgramDiffusion, AnAverageIsNotTheWeightsAndZeroKeepsNone) {
  ASSERT_EQ(veil(words("--steps 4 --ema 0.99 --export average")).code, 0);
  ASSERT_EQ(veil(words("--steps 4 --ema 0 --export last")).code, 0);
  EXPECT_NE(read_file((work() / "average/model.safetensors").string()),
            read_file((work() / "last/model.safetensors").string()));
}

TEST_F(ProgramDiffusion, ModesOfClippingAreComparedByComponentEachInItsOwnProcess) {
  const Answer answer = veil("suite dit-dp --preset tiny --device cpu --iterations 1 --warmup 0");
  ASSERT_EQ(answer.code, 0) << answer.err << answer.out;
  std::filesystem::path run;
  for (const auto& entry : std::filesystem::directory_iterator(work() / "memory_profiling_results"))
    run = entry.path();
  EXPECT_TRUE(run.filename().string().starts_with("run_"));
  int64_t booked_bytes = -1;
  for (const std::string name :
       {"vanilla", "ghost", "flash_clip", "bookkeeping", "flash_clip_bookkeeping", "auto"}) {
    const Json record = read(run / (name + "_result.json"));
    ASSERT_EQ(record.at("outcome").get<std::string>(), "ok") << name;
    EXPECT_EQ(record.at("experiment").get<std::string>(), name);
    EXPECT_EQ(record.at("config").at("image-size").get<int64_t>(), 16);
    EXPECT_GT(record.at("avg_time_ms").get<double>(), 0);
    int64_t sum = 0;
    for (const auto& [part, bytes] : record.at("breakdown").items()) sum += bytes.get<int64_t>();
    EXPECT_EQ(sum, record.at("peak_memory_bytes").get<int64_t>()) << name;
    EXPECT_EQ(sum, record.at("estimated_peak_bytes").get<int64_t>()) << name;
    EXPECT_EQ(record.at("breakdown").contains("norms"), name != "vanilla") << name;
    if (name == "bookkeeping")
      booked_bytes = record.at("breakdown").value("clip_records", int64_t{0});
    std::vector<std::string> stages;
    for (const Json& snapshot : record.at("snapshots"))
      stages.push_back(snapshot.at("stage").get<std::string>());
    for (const char* stage : {"after model creation", "step: forward", "step: loss"})
      EXPECT_NE(std::find(stages.begin(), stages.end(), stage), stages.end())
          << name << " " << stage;
  }
  EXPECT_GT(booked_bytes, 0);
  // A step that protects nobody is what the others are measured against, and never the advice.
  EXPECT_NE(answer.out.find("Beside vanilla, which protects nobody: ghost "), std::string::npos)
      << answer.out;
  EXPECT_EQ(answer.out.find("Take vanilla"), std::string::npos) << answer.out;
  EXPECT_TRUE(std::filesystem::exists(run / "visualizations/summary.txt"));
  for (const char* plot :
       {"memory_breakdown_comparison", "memory_timeline", "performance_tradeoff"})
    EXPECT_TRUE(std::filesystem::exists(run / "visualizations" / (std::string(plot) + ".gp")))
        << plot;
  expect_refused("suite dit-dp --model llama-tiny --device cpu",
                 "this suite measures diffusion transformers");
  expect_refused("suite dit-dp --preset tiny --device cpu --patch-sizes 4,5",
                 "image size 16 is not a multiple of the patch 5");
}

TEST_F(ProgramDiffusion, TheSuiteRunsOnRanksAndInASimulatedWorld) {
  std::vector<std::string> settings = {"--simulate-world 2 --modes auto --accumulations 1,2"};
  if (built_with_mpi()) settings.push_back("--ranks 2 --modes no_dp,flash");
  for (const std::string& setting : settings) {
    const std::string folder = "suite" + std::to_string(&setting - settings.data());
    const Answer answer =
        veil("suite dit-dp --preset tiny --device cpu --iterations 1 --warmup 0 --output-dir " +
             folder + " " + setting);
    ASSERT_EQ(answer.code, 0) << answer.err << answer.out;
    std::filesystem::path run;
    for (const auto& entry : std::filesystem::directory_iterator(work() / folder))
      run = entry.path();
    int records = 0;
    for (const auto& entry : std::filesystem::directory_iterator(run)) {
      if (!entry.path().string().ends_with("_result.json")) continue;
      const Json record = read(entry.path());
      ++records;
      ASSERT_EQ(record.at("outcome").get<std::string>(), "ok") << entry.path();
      EXPECT_EQ(record.at("world").get<int>(), 2) << entry.path();
      int64_t sum = 0;
      for (const auto& [part, bytes] : record.at("breakdown").items()) sum += bytes.get<int64_t>();
      EXPECT_EQ(sum, record.at("peak_memory_bytes").get<int64_t>()) << entry.path();
      EXPECT_EQ(sum, record.at("estimated_peak_bytes").get<int64_t>()) << entry.path();
      for (const Json& rank : record.at("ranks"))
        EXPECT_EQ(rank.at("peak_memory_bytes").get<int64_t>(), sum);
      EXPECT_EQ(record.at("ranks").size(), setting.starts_with("--ranks") ? 2u : 1u);
    }
    EXPECT_EQ(records, 2) << setting;
    EXPECT_TRUE(std::filesystem::exists(run / "visualizations/summary.txt"));
  }
}

TEST_F(ProgramDiffusion, IsProfiledAndPlanned) {
  const Json record =
      record_of("--model dit-tiny --device cpu --strategy ddp --warmup 1 --iterations 2");
  EXPECT_EQ(record.at("outcome").get<std::string>(), "ok");
  EXPECT_EQ(record.at("parameters").get<int64_t>(), 53'072);
  EXPECT_EQ(record.at("batch_size").get<int64_t>(), 2);
  const Answer planned = veil("plan --memory --table --model DiT-L/8 --world 1 --strategy ddp");
  EXPECT_EQ(planned.code, 0) << planned.err;
  EXPECT_NE(planned.out.find("blocks.23"), std::string::npos);
}

TEST_F(ProgramDiffusion, BadInputIsOneLine) {
  expect_refused(words("--image-size 18 --steps 1"),
                 "image size 18 is not a multiple of the patch 4");
  expect_refused(words("--classes 2 --steps 1"), "pass --classes 4");
  expect_refused(words("--channels 2 --steps 1"), "--channels 2");
  expect_refused(words("--seq-length 8 --steps 1"), "--seq-length: it belongs to a language model");
  expect_refused("train --model llama-tiny --from-scratch --data . --image-size 8 --device cpu",
                 "--image-size 8: it belongs to a diffusion transformer");
  expect_refused(words("--epsilon 8 --steps 1"), "--delta is missing");
  if (!data::built_with_images()) GTEST_SKIP() << "no libpng or libjpeg";
  std::filesystem::create_directories(work() / "images/a");
  expect_refused(words("--steps 1 --data images"), "holds no images");
  write_file_atomically((work() / "images/a/bad.png").string(), "no image");
  expect_refused(words("--steps 1 --data images"),
                 "images/a/bad.png: neither a PNG nor a JPEG file");
  for (int i = 0; i < 8; ++i) {
    const data::Picture picture{2, 2, std::vector<uint8_t>(12, static_cast<uint8_t>(i))};
    data::write_png((work() / ("images/a/" + std::to_string(i) + ".png")).string(), picture);
  }
  std::filesystem::remove(work() / "images/a/bad.png");
  // 60000 x 60000: PNG's signature, a head with its checksum, and the begin of an empty IDAT.
  const unsigned char huge[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n', 0,    0, 0,    13,
                                'I',  'H', 'D', 'R', 0,    0,    0xEA, 0x60, 0,    0, 0xEA, 0x60,
                                8,    2,   0,   0,   0,    0x0F, 0xB0, 0xE2, 0x15, 0, 0,    0,
                                0,    'I', 'D', 'A', 'T',  0x35, 0xAF, 0x06, 0x1E};
  write_file_atomically((work() / "images/a/huge.png").string(),
                        std::string(reinterpret_cast<const char*>(huge), sizeof huge));
  expect_refused(words("--steps 1 --data images"),
                 "images/a/huge.png: 60000 x 60000 pixels are more than");
  write_file_atomically((work() / "images/a/bad.png").string(), "no image");
  const Answer skipped = veil(words("--steps 1 --data images --skip-bad --held-out 0"));
  EXPECT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_NE(skipped.err.find("left out: 2 images; used: 8"), std::string::npos) << skipped.err;
  for (const char* left : {"bad", "huge"})
    std::filesystem::remove(work() / "images/a" / (std::string(left) + ".png"));
  expect_refused(
      words("--steps 1 --data images --held-out 0.0001"),
      "images has no image in the held-out part (of 8, with a held-out fraction of 0.0001)");
  // A break behind the head of a held-out file is found before the first step, not in an evaluation
  // at the run's end.
  for (int i = 0; i < 8; ++i) {
    const std::string sound =
        read_file((work() / ("images/a/" + std::to_string(i) + ".png")).string());
    const std::string cut = sound.substr(0, sound.size() - 20);
    if (!data::is_held_out(data::content_hash(cut), 0.5)) continue;
    write_file_atomically((work() / "images/a/cut.png").string(), cut);
    break;
  }
  expect_refused(words("--steps 1 --data images --held-out 0.5"),
                 "images/a/cut.png: not a sound PNG file");
}

}  // namespace
}  // namespace veil
