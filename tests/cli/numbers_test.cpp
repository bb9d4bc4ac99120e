// Every numeric option of every command, taken from the option table itself, with numbers that
// nobody means. Whatever is given, the program ends with a documented exit code and one line; there
// is no internal error, no signal and no memory taken for a size that cannot be.
//
// Each case is the whole program in a process forked from this one, so that LibTorch is loaded
// once. It has a limit of address space and starts no program of its own. A case that still works
// at its deadline was accepted: a million steps is a wish, not a mistake.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/test_paths.h"
#include "base/text.h"
#include "cli/command.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

// Whole numbers at the edges of types, fractions at the edges of theirs, and what is no number.
const Words kNumbers = {"0",
                        "-1",
                        "1",
                        "3",
                        "0.5",
                        "1000000",
                        "2147483647",
                        "2147483648",
                        "4611686018427387904",
                        "9223372036854775807",
                        "9223372036854775808",
                        "18446744073709551616",
                        "-9223372036854775808",
                        "1e308",
                        "-1e308",
                        "1e-308",
                        "5e-324",
                        "nan",
                        "inf",
                        "",
                        "ten",
                        "0x10"};

// A command that works in a moment, as the option to be tried needs it.
struct NumberCall {
  Words command;
  std::vector<std::pair<std::string, std::string>> options;  // a flag has the value "true"
  Words behind = {};
};

std::vector<NumberCall> calls_of(const std::string& command) {
  const NumberCall train = {{"train"},
                            {{"model", "llama-tiny"},
                             {"from-scratch", "true"},
                             {"data", "texts"},
                             {"device", "cpu"},
                             {"seq-length", "16"},
                             {"batch-size", "2"},
                             {"steps", "1"},
                             {"held-out", "0"},
                             {"output-dir", "runs"}}};
  const auto with = [](NumberCall call,
                       const std::vector<std::pair<std::string, std::string>>& more) {
    for (const auto& [name, value] : more) {
      std::erase_if(call.options, [&, n = name](const auto& pair) { return pair.first == n; });
      if (!value.empty()) call.options.emplace_back(name, value);
    }
    return call;
  };
  const auto as = [](NumberCall call, const Words& words) {
    call.command = words;
    return call;
  };
  if (command == "train") {
    return {
        train, with(train, {{"sigma", "1"}, {"delta", "1e-6"}, {"privacy-unit", "sample"}}),
        with(train,
             {{"model", "dit-tiny"}, {"data", "shapes"}, {"shapes", "32"}, {"seq-length", ""}})};
  }
  const NumberCall step = {{command},
                           {{"model", "llama-tiny"},
                            {"device", "cpu"},
                            {"seq-length", "16"},
                            {"batch-size", "2"},
                            {"mode", "ghost"}}};
  const NumberCall images = with(step, {{"model", "dit-tiny"}, {"seq-length", ""}});
  const NumberCall stack = with(
      step, {{"model", "linear-stack"}, {"seq-length", ""}, {"input-size", "16"}, {"layers", "2"}});
  if (command == "plan")
    return {with(step, {{"memory", "true"}}), with(images, {{"memory", "true"}}),
            with(stack, {{"memory", "true"}})};
  if (command == "profile") {
    std::vector<NumberCall> calls;
    for (const NumberCall& call : {step, images, stack})
      calls.push_back(with(call, {{"warmup", "0"}, {"iterations", "1"}}));
    return calls;
  }
  if (command == "find-batch")
    return {with(step, {{"batch-size", ""}, {"max-batch", "2"}}),
            with(images, {{"batch-size", ""}, {"max-batch", "2"}})};
  if (command == "verify")
    return {with(step, {{"batch-size", ""}, {"mode", ""}}),
            with(images, {{"batch-size", ""}, {"mode", ""}})};
  if (command == "audit mechanism" || command == "audit canary") {
    NumberCall call = {{"audit", command.substr(6)}, {{"output-dir", "audits"}}};
    if (command == "audit canary") call.options.emplace_back("pairs", "20");
    call.behind = {"--",
                   "--model",
                   "llama-tiny",
                   "--from-scratch",
                   "--data",
                   "texts",
                   "--device",
                   "cpu",
                   "--seq-length",
                   "16",
                   "--steps",
                   "2",
                   "--sigma",
                   "1",
                   "--delta",
                   "1e-6",
                   "--held-out",
                   "0",
                   "--batch-size",
                   "2",
                   "--privacy-unit",
                   "sample"};
    return {call};
  }
  if (command == "sample")
    return {{{"sample"},
             {{"model", "llama-tiny"},
              {"from-scratch", "true"},
              {"prompt", "a"},
              {"max-new-tokens", "2"},
              {"device", "cpu"}}},
            {{"sample"},
             {{"model", "dit-tiny"},
              {"from-scratch", "true"},
              {"steps", "2"},
              {"each", "1"},
              {"output", "drawn.png"},
              {"overwrite", "true"},
              {"device", "cpu"}}}};
  if (command == "evaluate")
    return {{{"evaluate"},
             {{"model", "exported"},
              {"data", "texts"},
              {"device", "cpu"},
              {"seq-length", "16"},
              {"max-samples", "2"}}}};
  if (command == "data") return {{{"data"}, {{"data", "texts"}, {"seq-length", "16"}}}};
  if (command == "tokenize")
    return {{{"tokenize"}, {{"data", "texts"}, {"output", "t.tokens"}, {"overwrite", "true"}}}};
  if (command == "doctor") return {{{"doctor"}, {}}};
  if (command == "privacy epsilon")
    return {{{"privacy", "epsilon"},
             {{"sigma", "1"}, {"q", "0.01"}, {"steps", "10"}, {"delta", "1e-5"}}},
            {{"privacy", "epsilon"},
             {{"sigma", "1"},
              {"batch", "10"},
              {"data-size", "1000"},
              {"epochs", "1"},
              {"delta", "1e-5"}}}};
  if (command == "privacy sigma")
    return {{{"privacy", "sigma"},
             {{"epsilon", "4"}, {"q", "0.01"}, {"steps", "10"}, {"delta", "1e-5"}}}};
  if (command == "privacy explore")
    return {{{"privacy", "explore"},
             {{"data-size", "1000"},
              {"epsilon", "4"},
              {"delta", "1e-5"},
              {"batch", "10"},
              {"epochs", "1"}}}};
  if (command.starts_with("suite ")) {
    const NumberCall dry = with(
        as(step, {"suite", command.substr(6)}),
        {{"dry-run", "true"}, {"batch-size", ""}, {"mode", ""}, {"model", ""}, {"seq-length", ""}});
    return {dry};
  }
  return {};
}

struct NumberCase {
  Words words;  // of the whole call
  std::string option, value;
};

// The call with the option set to the value, in its place if the call has it.
NumberCase with_number(const NumberCall& call, const OptionRow& row, const std::string& value) {
  NumberCase result{call.command, row.name, value};
  const auto is_it = [&](const std::string& name) {
    return name == row.name ||
           std::find(row.aliases.begin(), row.aliases.end(), name) != row.aliases.end();
  };
  for (const auto& [name, text] : call.options) {
    if (!is_it(name)) result.words.push_back("--" + name + "=" + text);
  }
  result.words.push_back("--" + row.name + "=" + value);
  result.words.insert(result.words.end(), call.behind.begin(), call.behind.end());
  return result;
}

enum class Ended { done, refused, no_memory, working, badly };

constexpr int kNotStarted = 127;  // what launchers answer where a program cannot be started

struct NumberAnswer {
  Ended how = Ended::badly;
  std::string words;
};

class ProgramNumbers : public ::testing::Test {
 protected:
  ProgramNumbers() : folder_(fs::temp_directory_path() / fmt::format("veil_numbers_{}", getpid())) {
    fs::create_directories(folder_ / "texts");
    std::ofstream text(folder_ / "texts" / "a.txt");
    for (int i = 0; i < 400; ++i) text << "a line of text with the number " << i << "\n";
  }
  void SetUp() override {
    const NumberAnswer answer =
        answer_to({"train", "--model", "llama-tiny", "--from-scratch", "--data", "texts",
                   "--device", "cpu", "--seq-length", "16", "--steps", "1", "--export", "exported"},
                  60);
    ASSERT_EQ(answer.how, Ended::done) << answer.words;
  }
  ~ProgramNumbers() override { fs::remove_all(folder_); }

  // Programs cannot be started: the answer of execve is EACCES.
  static void forbid_programs() {
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_execve, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_execveat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {static_cast<unsigned short>(std::size(rules)), rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      _exit(99);
  }

  static rlim_t address_space() {
    std::ifstream file("/proc/self/statm");
    rlim_t pages = 0;
    file >> pages;
    return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  }

  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  NumberAnswer answer_to(const Words& words, unsigned deadline_s) const {
    const std::string out = (folder_ / "out").string(), err = (folder_ / "err").string();
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0);
      const rlim_t most = address_space() + (rlim_t{3} << 30);
      const rlimit space = {most, most};
      setrlimit(RLIMIT_AS, &space);
      forbid_programs();
      if (chdir(folder_.c_str()) != 0 || !std::freopen(out.c_str(), "w", stdout) ||
          !std::freopen(err.c_str(), "w", stderr))
        _exit(98);
      alarm(deadline_s);
      const int code = run_veil(words);
      std::fflush(nullptr);
      _exit(code);
    }
    int status = 0;
    waitpid(child, &status, 0);
    kill(-child, SIGKILL);  // whatever it started
    NumberAnswer answer{Ended::badly, text_of(err)};
    if (WIFSIGNALED(status)) {
      if (WTERMSIG(status) == SIGALRM) answer.how = Ended::working;
      if (answer.how == Ended::badly)
        answer.words = fmt::format("signal {}: {}", WTERMSIG(status), answer.words);
      return answer;
    }
    const int code = WEXITSTATUS(status);
    if (code == kNotStarted) {  // it went as far as starting others
      answer.how = Ended::working;
      return answer;
    }
    const bool internal = answer.words.find("internal error") != std::string::npos;
    // Other lines may tell what was read before the number was looked at.
    const std::vector<std::string> lines = split(answer.words, '\n');
    const auto complaints = std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
      return line.starts_with("veil: ");
    });
    if (internal || code > kExitMissing) {
      answer.words = fmt::format("exit {}: {}", code, answer.words);
    } else if (code == kExitDone) {
      answer.how = Ended::done;
    } else if (answer.words.empty() &&
               text_of(out).find("\nout of memory: ") != std::string::npos) {
      answer.how = Ended::no_memory;  // a result of `veil profile`
    } else if (complaints == 1 && lines.size() > 1 &&
               lines[lines.size() - 2].starts_with("veil: ")) {
      answer.how = answer.words.find("out of memory") != std::string::npos ? Ended::no_memory
                                                                           : Ended::refused;
    }
    return answer;
  }

  // Tries the cases and answers how many ended how; each that ends badly fails the test.
  std::map<Ended, int> expect_answered(const std::vector<NumberCase>& cases,
                                       unsigned deadline_s) const {
    std::map<Ended, int> counts;
    for (const NumberCase& one : cases) {
      const NumberAnswer answer = answer_to(one.words, deadline_s);
      ++counts[answer.how];
      EXPECT_NE(answer.how, Ended::badly)
          << "veil " << join(one.words, " ") << "\n  " << answer.words;
    }
    return counts;
  }

  // Of every call of every command all values of each numeric option: of these cases every
  // `stride`-th from the `first` on.
  static std::vector<NumberCase> cases_of(size_t stride, size_t first = 0) {
    std::vector<NumberCase> cases;
    size_t number = 0;
    for (const OptionTable& table : option_tables()) {
      for (const OptionRow& row : table.rows) {
        if (!row.number) continue;
        const std::vector<NumberCall> calls = calls_of(table.command);
        EXPECT_FALSE(calls.empty()) << "veil " << table.command << " --" << row.name
                                    << " is not tried: give the command a call in this test";
        for (const NumberCall& call : calls) {
          for (const std::string& value : kNumbers) {
            if (number++ % stride == first) cases.push_back(with_number(call, row, value));
          }
        }
      }
    }
    return cases;
  }

  fs::path folder_;
};

// A part of the campaign below that visits every option of every command: the stride is prime to
// the number of values, so that each option gets others.
TEST_F(ProgramNumbers, OfEveryCommandAreAnsweredInOneLine) {
  constexpr size_t kStride = 29;
  const std::vector<NumberCase> cases = cases_of(kStride);
  ASSERT_GT(cases.size(), 400U);
  expect_answered(cases, 1);
}

// All of them, a minute each: --gtest_also_run_disabled_tests.
constexpr int kSlices = 13;
class DISABLED_ProgramNumbersCampaign : public ProgramNumbers,
                                        public ::testing::WithParamInterface<int> {};

TEST_P(DISABLED_ProgramNumbersCampaign, OfEveryCommandAreAnsweredInOneLine) {
  const std::vector<NumberCase> cases = cases_of(kSlices, static_cast<size_t>(GetParam()));
  std::map<Ended, int> counts = expect_answered(cases, 2);
  fmt::print(
      "{} cases: {} done, {} refused in one line, {} out of memory in one line, {} at work at the "
      "deadline, {} badly\n",
      cases.size(), counts[Ended::done], counts[Ended::refused], counts[Ended::no_memory],
      counts[Ended::working], counts[Ended::badly]);
}
INSTANTIATE_TEST_SUITE_P(Slice, DISABLED_ProgramNumbersCampaign, ::testing::Range(0, kSlices));

}  // namespace
}  // namespace veil
