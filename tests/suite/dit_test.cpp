#include "suite/dit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace veil {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Modes at these image sizes with patches of 8: time in proportion to the square of T, memory to T.
std::vector<Record> dit_images(const std::vector<int64_t>& images,
                               const std::vector<std::string>& attentions) {
  std::vector<Record> records;
  for (const char* mode : {"no_dp", "flash"}) {
    for (const int64_t image : images) {
      for (const std::string& attention : attentions) {
        const auto tokens = static_cast<double>((image / 8) * (image / 8));
        const bool math = attention == "math", plain = mode == std::string("no_dp");
        Record r;
        r.suite = "dit-dp";
        r.mode = mode;
        r.title = (plain ? "vanilla img" : "flash_clip img") + std::to_string(image) +
                  (attentions.size() > 1 ? " " + attention + "-attention" : "");
        r.label = r.title;
        r.outcome = "ok";
        r.attention = math ? "math" : "flash";
        r.config = {{"model", "dit-l/8"}, {"image-size", image}, {"attention", attention}};
        r.seq_length = (image / 8) * (image / 8);
        r.batch_size = 2;
        r.world = 1;
        r.device = "cuda";
        r.avg_time_ms = (plain ? 1.0 : 1.5) * (math ? 2 : 1) * tokens * tokens / 10000;
        r.std_time_ms = 0.001;
        r.times_ms = {1, 2, 3};
        r.peak_memory_bytes = (math ? 2.0 : 1.0) * 1048576 * tokens;
        records.push_back(r);
      }
    }
  }
  return records;
}

std::vector<std::string> names_of(const std::vector<Experiment>& plan) {
  std::vector<std::string> names;
  for (const Experiment& experiment : plan) names.push_back(experiment.name);
  return names;
}

TEST(DitSuite, HasTheSeedsNamesAndAuto) {
  EXPECT_EQ(names_of(dit_experiments({}, {})),
            (std::vector<std::string>{"vanilla", "ghost", "flash_clip", "bookkeeping",
                                      "flash_clip_bookkeeping", "auto"}));
}

TEST(DitSuite, EveryListMultipliesAndOnlyWhatDiffersIsNamed) {
  DitGrid grid;
  grid.modes = {Mode::ghost};
  grid.models = {"dit-l/8", "dit-xl/8"};
  grid.patch_sizes = {8};
  grid.attentions = {AttentionKind::automatic, AttentionKind::math};
  const std::vector<Experiment> plan = dit_experiments(grid, {"--batch-size", "2"});
  EXPECT_EQ(names_of(plan),
            (std::vector<std::string>{"ghost_dit-l-8_auto", "ghost_dit-l-8_math",
                                      "ghost_dit-xl-8_auto", "ghost_dit-xl-8_math"}));
  EXPECT_EQ(plan[3].arguments,
            (std::vector<std::string>{"--mode", "ghost", "--model", "dit-xl/8", "--patch-size", "8",
                                      "--attention", "math", "--batch-size", "2"}));
}

TEST(DitSuite, AValueThatStandsTwiceIsRefused) {
  DitGrid grid;
  grid.image_sizes = {64, 64};
  EXPECT_THROW(dit_experiments(grid, {}), UserError);
}

TEST(DitVerdict, FourImageSizesTellTheLawOfGrowth) {
  const RecordFolder folder{"", dit_images({128, 192, 256, 512}, {"auto"}), {}};
  const Verdict verdict = dit_verdict(folder);
  EXPECT_EQ(verdict.headline, "flash_clip img512 takes 2517 ms per step and 4.00 GiB at its peak.");
  EXPECT_THAT(verdict.findings,
              Contains("Growth of flash_clip: time grows faster than linearly with T from 256 to "
                       "4096: at T = 4096 0 ms plus 0 ms by T and 2517 ms by T^2, within "
                       "0.0%; memory grows in proportion to T from 256 to 4096: 1000.00 MiB per "
                       "1000 tokens, within 0.0%."));
  EXPECT_THAT(verdict.findings,
              Contains("Set-ups are compared at T = 4096, the largest images that a private "
                       "experiment finished."));
  EXPECT_THAT(verdict.caveats, Not(Contains(HasSubstr("cannot tell"))));
}

TEST(DitVerdict, FewerSizesSayThatTheyCannotTell) {
  EXPECT_THAT(dit_verdict({"", dit_images({256}, {"auto"}), {}}).caveats,
              Contains("One image size cannot tell how time and memory grow with the tokens: give "
                       "--image-sizes four of them."));
  EXPECT_THAT(dit_verdict({"", dit_images({256, 512}, {"auto"}), {}}).caveats,
              Contains(HasSubstr("Two image sizes cannot tell")));
  EXPECT_THAT(dit_verdict({"", dit_images({128, 256, 512}, {"auto"}), {}}).findings,
              Contains(AllOf(HasSubstr("Growth of flash_clip"),
                             HasSubstr("3 lengths cannot tell the law"))));
}

TEST(DitVerdict, FlashIsJudgedAgainstMathAttentionModeByMode) {
  const Verdict verdict = dit_verdict({"", dit_images({256, 512}, {"auto", "math"}), {}});
  EXPECT_THAT(verdict.findings,
              Contains("Flash against math attention, 4 pairs: flash is faster in 4 and slower in "
                       "0, and needs less memory in 4 and more in 0. Take flash (--attention "
                       "auto)."));
  EXPECT_THAT(verdict.findings,
              Contains("Flash attention in flash_clip: T = 1024 50% less time and 1.00 GiB less "
                       "memory than math; T = 4096 50% less time and 4.00 GiB less memory than "
                       "math."));
  // A private step is divided by the plain one with its own attention.
  EXPECT_THAT(verdict.findings, Contains("Beside vanilla img512 math-attention, which protects "
                                         "nobody: flash_clip img512 math-attention 1.50 times the "
                                         "time, 1.00 times the memory."));
  EXPECT_THAT(dit_verdict({"", dit_images({256}, {"auto"}), {}}).caveats,
              Contains("All experiments use flash attention: --attentions auto,math compares flash "
                       "with math."));
}

TEST(DitVerdict, SizesThatNoPrivateExperimentFinishedAreNotTheOnesThatAreCompared) {
  std::vector<Record> records = dit_images({256, 512}, {"auto"});
  for (Record& r : records) {
    if (r.mode == "no_dp" || r.seq_length != 4096) continue;
    r.outcome = "oom";
    r.avg_time_ms.reset();
    r.peak_memory_bytes.reset();
  }
  const Verdict verdict = dit_verdict({"", records, {}});
  EXPECT_EQ(verdict.headline, "flash_clip img256 takes 157 ms per step and 1.00 GiB at its peak.");
  EXPECT_THAT(verdict.findings, Contains("flash_clip: T = 1024 50% more time and about the same "
                                         "memory compared with vanilla; T = 4096 out of memory."));
}

TEST(DitVerdict, GrowthAndAttentionAreTablesAndPicturesOfSeveralSizesOnly) {
  EXPECT_THAT(dit_growth_plots(dit_images({256}, {"auto"})), IsEmpty());
  EXPECT_THAT(dit_tables(dit_images({256}, {"auto"})), IsEmpty());
  const std::vector<Record> records = dit_images({128, 192, 256, 512}, {"auto", "math"});
  const std::vector<Plot> plots = dit_growth_plots(records);
  ASSERT_EQ(plots.size(), 2u);
  EXPECT_EQ(plots[0].name, "time_scaling");
  EXPECT_EQ(plots[1].name, "memory_scaling");
  for (const char* words : {"'flash attention'", "'math attention'", "tokens in an image (T)"})
    EXPECT_THAT(plots[0].script, HasSubstr(words));
  EXPECT_THAT(plots[1].script, HasSubstr("GiB at the peak"));
  const std::vector<PageTable> tables = dit_tables(records);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_THAT(tables[0].table.csv(), HasSubstr("\"flash_clip, math attention\""));
  EXPECT_EQ(tables[1].table.rows(), 8u);
}

}  // namespace
}  // namespace veil
