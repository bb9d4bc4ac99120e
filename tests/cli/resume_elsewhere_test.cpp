// A run that is continued with other ranks, another strategy or other micro-batches: the weights
// are those of the undisturbed run but for rounding, a private run counts every step that was
// begun, and its noise is fresh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/training.h"
#include "comm/communicator.h"
#include "privacy/accountant.h"

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

}  // namespace
}  // namespace veil
