// A run that is continued with other ranks, another strategy, other micro-batches or on another
// device: the weights are those of the undisturbed run but for rounding, a private run counts every
// step that was begun, and its noise is fresh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cli/training.h"
#include "comm/communicator.h"
#include "privacy/accountant.h"
#include "tensor/device.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

struct Elsewhere {
  const char *begun, *continued;
};

// Of twelve samples in a logical batch; both directions of each change.
const Elsewhere kElsewhere[] = {
    {"--batch-size 12", "--batch-size 1"},
    {"--batch-size 12", "--batch-size 2 --ranks 2 --strategy zero3"},
    {"--batch-size 3 --ranks 2 --strategy zero3", "--batch-size 4"},
    {"--batch-size 2 --ranks 2 --strategy zero2", "--batch-size 2 --ranks 3 --strategy ddp"},
    {"--batch-size 4 --ranks 3 --strategy ddp", "--batch-size 1 --ranks 2 --strategy zero3"}};

constexpr int kDone = 2, kAll = 4;  // steps before the change, and all
constexpr double kRate = 0.003;

class ProgramElsewhere : public TrainingTest {
 protected:
  std::string line(const std::string& more) const {
    return "train --model llama-tiny --from-scratch --data '" + source_root() +
           "/examples/text' --seq-length 16 --device cpu --held-out 0 --compute fp64 --storage "
           "fp64 --reduce fp64 --schedule constant --warmup-steps 0 --learning-rate " +
           fmt::format("{} --steps {} --checkpoint-every {} --total-batch-size 12 ", kRate, kAll,
                       kDone) +
           more;
  }
  // The run `name` as `place` begins it, with its last two steps lost.
  void begin(const std::string& name, const std::string& place) const {
    fs::create_directory(work() / name);
    const Answer answer = veil(line(place + " --resume " + name));
    ASSERT_EQ(answer.code, kExitDone) << answer.err;
    fs::remove_all(work() / name / "checkpoints" / "step_00000004");
  }
  Answer go_on(const std::string& place, const std::string& more) const {
    const bool ranks = place.find("--ranks") != std::string::npos;
    return veil(line(place + (ranks ? " " : " --ranks 1 --strategy ddp ") + more));
  }

  // Six steps, two of them at each of three places; a private run has then begun 6 + 4 + 2.
  static constexpr int kPlaces = 3, kWandered = 2 * kPlaces, kBegun = 6 + 4 + 2;
  struct Wandered {
    std::vector<std::string> nonces;  // one of each place, of a private run
    std::string last;                 // what the last one printed
  };
  std::string wandering(const std::string& more) const {
    return "train --model llama-tiny --from-scratch --seq-length 16 --held-out 0 --compute fp64 "
           "--storage fp64 --reduce fp64 --schedule constant --warmup-steps 0 --strategy ddp "
           "--keep-checkpoints 9 --checkpoint-every 2 " +
           fmt::format("--learning-rate {} --steps {} ", kRate, kWandered) + more;
  }
  Wandered wander(const std::string& run, const std::string& more,
                  const std::vector<std::string>& places) const {
    Wandered found;
    fs::create_directory(work() / run);
    for (int i = 0; i < kPlaces; ++i) {
      const bool last = i == kPlaces - 1;
      const Answer answer =
          veil(wandering(more + " " + places[static_cast<size_t>(i)] + " --resume " + run +
                         (last ? " --export " + run + "_model" : "")));
      EXPECT_EQ(answer.code, kExitDone) << answer.err;
      if (answer.code != kExitDone) return found;
      const fs::path ledger = work() / run / "ledger.json";
      if (fs::exists(ledger)) found.nonces.push_back(read(ledger)["nonce"].get<std::string>());
      found.last = answer.out;
      // All that the next place is to do is lost.
      for (int step = 2 * i + 4; !last && step <= kWandered; step += 2)
        fs::remove_all(work() / run / "checkpoints" / fmt::format("step_{:08}", step));
    }
    EXPECT_THAT(found.last, HasSubstr("resumed   after step 4"));
    return found;
  }
  // As derived below, for the steps after the first place.
  static double wandered_bound() {
    return (kWandered - 2) * kRate * (2 * 0x1p12 * 0x1p-53 / 1e-8 + 0x1p-22) + 0x1p-23;
  }
  std::string text_data() const { return "--data '" + source_root() + "/examples/text' "; }

  void expect_same_weights_elsewhere(const std::vector<std::string>& places) const {
    const std::string plainly = text_data() + "--total-batch-size 12 ";
    // It begins as the other does: a GPU's own initial values have other last bits.
    ASSERT_EQ(veil(wandering(plainly + places.front() + " --output-dir runs --export alone")).code,
              kExitDone);
    wander("run", plainly, places);
    EXPECT_LE(largest_difference(work() / "alone", work() / "run_model"), wandered_bound());
  }

  // Without noise, and with every sample in every batch, a private step is the same wherever it
  // runs and whatever its nonce is, but for rounding.
  void expect_same_clipped_weights_elsewhere(const std::vector<std::string>& places) const {
    std::ofstream lines(work() / "data.jsonl");
    for (int i = 0; i < 12; ++i) lines << Json{{"text", fmt::format("document {}", i)}} << "\n";
    lines.close();
    const std::string privately =
        "--data data.jsonl --samples document --sigma 0 --delta 1e-5 --accountant rdp "
        "--clip-norm 0.1 --total-batch-size 12 ";
    ASSERT_EQ(
        veil(wandering(privately + places.front() + " --output-dir runs --export alone")).code,
        kExitDone);
    const Wandered found = wander("run", privately, places);
    EXPECT_EQ(std::set<std::string>(found.nonces.begin(), found.nonces.end()).size(), 3u);
    EXPECT_LE(largest_difference(work() / "alone", work() / "run_model"), wandered_bound());
  }

  void expect_counted_elsewhere(const std::vector<std::string>& places) const {
    const Wandered found = wander("run",
                                  text_data() +
                                      "--sigma 1 --delta 1e-5 --accountant rdp --samples packed "
                                      "--total-batch-size 12 ",
                                  places);
    EXPECT_EQ(std::set<std::string>(found.nonces.begin(), found.nonces.end()).size(), 3u);
    EXPECT_THAT(found.last, HasSubstr("fresh nonce, for "));
    EXPECT_THAT(found.last, Not(HasSubstr("exact replay")));
    const Json statement = read(work() / "run_model" / "privacy.json");
    EXPECT_EQ(statement["steps"].get<int64_t>(), kBegun);
    const privacy::Phase phase{
        .sigma = 1, .q = statement["events"][0]["q"].get<double>(), .steps = kBegun};
    EXPECT_NEAR(
        statement["epsilon"].get<double>(),
        privacy::make_accountant(privacy::AccountantKind::rdp)->epsilon({phase}, 1e-5).epsilon,
        1e-12);
  }
};

// What rounding may change. No chain of additions behind an element of a gradient is longer than
// n = 2^12 (tokens, widths and the vocabulary, forward and backward), and their terms are below 1:
// in another order it differs by at most 2 n u, u = 2^-53. AdamW divides by at least its epsilon of
// 1e-8, so a step moves a weight by at most rate x 2 n u / 1e-8 more or less. The export then
// rounds weights, which are below 2, to fp32: at most 2^-23 more; moments are kept in fp32, which
// moves a step by 2^-22 of the rate. A step that is lost, or optimizer state that is not there,
// moves weights by about the rate, thousands of times more.
TEST_F(ProgramElsewhere, ThePlainRunsWeightsAreThoseOfTheUndisturbedOne) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const double n = 0x1p12, unit = 0x1p-53;
  const double bound = (kAll - kDone) * kRate * (2 * n * unit / 1e-8 + 0x1p-22) + 0x1p-23;
  ASSERT_EQ(veil(line("--batch-size 12 --output-dir runs --export alone")).code, kExitDone);
  int number = 0;
  for (const Elsewhere& change : kElsewhere) {
    SCOPED_TRACE(std::string(change.begun) + ", then " + change.continued);
    const std::string run = fmt::format("run{}", number), model = fmt::format("model{}", number++);
    begin(run, change.begun);
    const Answer answer = go_on(change.continued, "--resume " + run + " --export " + model);
    ASSERT_EQ(answer.code, kExitDone) << answer.err;
    EXPECT_THAT(answer.out, HasSubstr("resumed   after step 2"));
    EXPECT_LE(largest_difference(work() / "alone", work() / model), bound);
  }
}

TEST_F(ProgramElsewhere, APrivateRunCountsWhatWasBegunAndDrawsFreshNoise) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const std::string privately = " --sigma 1 --delta 1e-5 --accountant rdp --samples packed ";
  int number = 0;
  for (const Elsewhere& change : {kElsewhere[0], kElsewhere[1], kElsewhere[2]}) {
    SCOPED_TRACE(std::string(change.begun) + ", then " + change.continued);
    const std::string run = fmt::format("run{}", number), model = fmt::format("model{}", number++);
    begin(run, change.begun + privately);
    const std::string nonce = read(work() / run / "ledger.json")["nonce"].get<std::string>();
    const Answer answer =
        go_on(change.continued, privately + "--resume " + run + " --export " + model);
    ASSERT_EQ(answer.code, kExitDone) << answer.err;
    EXPECT_THAT(answer.out, HasSubstr("fresh nonce, for "));
    EXPECT_THAT(answer.out, HasSubstr("2 steps that were begun before stay counted"));
    EXPECT_THAT(answer.out, Not(HasSubstr("exact replay")));
    EXPECT_NE(read(work() / run / "ledger.json")["nonce"].get<std::string>(), nonce);
    const Json statement = read(work() / model / "privacy.json");
    EXPECT_EQ(statement["steps"].get<int64_t>(), kAll + (kAll - kDone));
    const privacy::Phase phase{
        .sigma = 1, .q = statement["events"][0]["q"].get<double>(), .steps = kAll + (kAll - kDone)};
    EXPECT_NEAR(
        statement["epsilon"].get<double>(),
        privacy::make_accountant(privacy::AccountantKind::rdp)->epsilon({phase}, 1e-5).epsilon,
        1e-12);
  }
}

// There and back, as the tests of devices below do it, with micro-batches in their place.
const std::vector<std::string> kThereAndBack = {
    "--device cpu --batch-size 12", "--device cpu --batch-size 4", "--device cpu --batch-size 12"};

TEST_F(ProgramElsewhere, APlainRunThatComesBackHasTheSameWeights) {
  expect_same_weights_elsewhere(kThereAndBack);
}

TEST_F(ProgramElsewhere, ClippedStepsOfAllSamplesHaveTheSameWeightsUnderAnyNonce) {
  expect_same_clipped_weights_elsewhere(kThereAndBack);
}

TEST_F(ProgramElsewhere, APrivateRunThatComesBackCountsWhatWasBegunAtEachPlace) {
  expect_counted_elsewhere(kThereAndBack);
}

// From a CPU to a GPU and back, and the other way round.
class GpuElsewhere : public ProgramElsewhere, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
    ProgramElsewhere::SetUp();
  }
  static std::vector<std::string> places() {
    const std::string cpu = "--device cpu --batch-size 12", gpu = "--device gpu --batch-size 12";
    return GetParam() ? std::vector{gpu, cpu, gpu} : std::vector{cpu, gpu, cpu};
  }
};

TEST_P(GpuElsewhere, APlainRunHasTheSameWeights) {
  expect_same_weights_elsewhere(places());
}

TEST_P(GpuElsewhere, ClippedStepsOfAllSamplesHaveTheSameWeights) {
  expect_same_clipped_weights_elsewhere(places());
}

TEST_P(GpuElsewhere, APrivateRunCountsWhatWasBegunAndDrawsFreshNoise) {
  expect_counted_elsewhere(places());
}

INSTANTIATE_TEST_SUITE_P(Begun, GpuElsewhere, ::testing::Bool(),
                         [](const auto& begun) { return begun.param ? "OnAGpu" : "OnACpu"; });

}  // namespace
}  // namespace veil
