// Two processes that only know what torch.distributed.launch tells them: MASTER_ADDR, MASTER_PORT,
// RANK, WORLD_SIZE and LOCAL_RANK. Any launcher that sets these five starts ranks.
#include <fmt/core.h>

#include "cli/program.h"
#include "estimate/skewed_prices.h"

namespace veil {
namespace {

class ProgramLaunchEnvironment : public ProgramTest {
 protected:
  // `veil WORDS` as ranks 0 and 1, without a launcher's other variables. Exit codes of both.
  // `environment`: what else the process of rank $R knows.
  std::pair<int, int> two_ranks(const std::string& words,
                                const std::string& environment = "HOME=\"$HOME\"") const {
    const int port = 20000 + static_cast<int>(getpid()) % 12000;
    std::string line = fmt::format("cd '{}' || exit 255; ", work().string());
    for (int rank = 0; rank < 2; ++rank)
      line += fmt::format(
          "R={0}; env -i PATH=\"$PATH\" "
          // what a machine's BLAS cannot do without (docs/troubleshooting.md)
          "${{NVPL_BLAS_DEBUG_CPU_TYPE:+NVPL_BLAS_DEBUG_CPU_TYPE=$NVPL_BLAS_DEBUG_CPU_TYPE}} "
          "{4} OMP_NUM_THREADS=1 MASTER_ADDR=127.0.0.1 "
          "MASTER_PORT={1} WORLD_SIZE=2 RANK={0} LOCAL_RANK={0} '{2}' {3} > out.{0} 2> err.{0} & "
          "p{0}=$!; ",
          rank, port, veil_program(), words, environment);
    line += "wait $p0; a=$?; wait $p1; b=$?; exit $((16 * a + b))";
    const int status = std::system(line.c_str());
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return {code / 16, code % 16};
  }
};

TEST_F(ProgramLaunchEnvironment, FiveVariablesMakeTwoRanksOfOneRun) {
  const std::string words =
      "--model llama-tiny --task sequence-classification --device cpu --strategy zero3 "
      "--mode flash --batch-size 4 --seq-length 16 --iterations 2 --warmup 0";
  ASSERT_EQ(two_ranks("profile " + words + " --output launched.json"), std::pair(0, 0))
      << text(work() / "err.0") << text(work() / "err.1");
  const Json launched = read(work() / "launched.json");
  EXPECT_EQ(launched["world"].get<int>(), 2);
  EXPECT_EQ(launched["ranks"].size(), 2u);
  // Rank 1 prints its memory, and nothing that rank 0 says for both.
  std::istringstream lines(text(work() / "out.1"));
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(Json::parse(line)["rank"], 1);
  // The same ranks, started by the program itself.
  const Json local = record_of(words + " --ranks 2");
  EXPECT_EQ(launched["losses"], local["losses"]);
  EXPECT_EQ(launched["peak_memory_bytes"], local["peak_memory_bytes"]);
  EXPECT_EQ(launched["communication"]["gather"]["bytes"],
            local["communication"]["gather"]["bytes"]);
}

TEST_F(ProgramLaunchEnvironment, FiveVariablesTrainOnTwoRanks) {
  std::ofstream(work() / "text.txt") << std::string(4000, 'a') << " and so on";
  const std::string words =
      "train --model llama-tiny --from-scratch --data text.txt --tokenizer byte --device cpu "
      "--strategy zero2 --batch-size 2 --seq-length 16 --steps 3";
  ASSERT_EQ(two_ranks(words + " --output-dir launched"), std::pair(0, 0))
      << text(work() / "err.0") << text(work() / "err.1");
  ASSERT_EQ(veil(words + " --output-dir local --ranks 2").code, 0);
  const auto losses = [&](const char* folder) {
    std::vector<double> found;
    const auto run = std::filesystem::directory_iterator(work() / folder)->path();
    std::istringstream lines(text(run / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json metrics = Json::parse(line);
      if (metrics.contains("loss")) found.push_back(metrics["loss"].get<double>());
    }
    return found;
  };
  EXPECT_EQ(losses("launched").size(), 3u);
  EXPECT_EQ(losses("launched"), losses("local"));
}

// Each rank's machine may have been calibrated, or not, with other prices.
TEST_F(ProgramLaunchEnvironment, RanksWithOtherPricesTakeRank0sPlan) {
  const auto price = [&](int rank, bool keeping_pays) {
    write_skewed_prices((work() / fmt::format("home{}/.cache/veil/prices.json", rank)).string(),
                        keeping_pays);
  };
  {
    std::ofstream file(work() / "text.jsonl");
    for (int i = 0; i < 40; ++i) file << Json{{"text", fmt::format("document {}", i)}} << "\n";
  }
  const std::string environment = "HOME=\"" + (work() / "home$R").string() +
                                  "\" VEIL_JOB_TOKEN=0123456789abcdef0123456789abcdef";
  for (const bool keeping_pays : {true, false}) {
    SCOPED_TRACE(keeping_pays);
    price(0, keeping_pays);
    price(1, !keeping_pays);
    ASSERT_EQ(two_ranks("profile --model llama-tiny --device cpu --mode auto --batch-size 4 "
                        "--seq-length 16 --iterations 1 --warmup 0 --overwrite --output plan.json "
                        "--collective-timeout 60",
                        environment),
              std::pair(0, 0))
        << text(work() / "err.0") << text(work() / "err.1");
    EXPECT_EQ(read(work() / "plan.json")["clip"]["pass_plan"] == "keep", keeping_pays);
    const std::string folder = keeping_pays ? "kept" : "other";
    ASSERT_EQ(two_ranks("train --model llama-tiny --from-scratch --data text.jsonl --device cpu "
                        "--tokenizer bytes --held-out 0 --sigma 1 --delta 1e-4 --accountant rdp "
                        "--seq-length 16 --total-batch-size 8 --batch-size 2 --steps 2 "
                        "--collective-timeout 60 --output-dir " +
                            folder,
                        environment),
              std::pair(0, 0))
        << text(work() / "err.0") << text(work() / "err.1");
    EXPECT_EQ(text(work() / "out.0").find("keep (mode auto)") != std::string::npos, keeping_pays)
        << text(work() / "out.0");
  }
}

}  // namespace
}  // namespace veil
