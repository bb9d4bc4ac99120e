// The completion scripts, read and asked by real shells.
#include "cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/program.h"

namespace veil {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ProgramCompletion : public ProgramTest {
 protected:
  // Runs a line of the shell in work() and answers what it prints; its exit code must be 0.
  std::string shell(const std::string& program, const std::string& line) const {
    std::ofstream(work() / "line") << line;
    const std::string command = "cd '" + work().string() + "' && " + program + " line >out 2>&1";
    const int status = std::system(command.c_str());
    const std::string out = text(work() / "out");
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << out;
    return out;
  }
  static bool has(const char* program) {
    return std::system((std::string("command -v ") + program + " >/dev/null 2>&1").c_str()) == 0;
  }
  void write_script(const char* name) const {
    const Answer answer = veil(std::string("completion ") + name);
    ASSERT_EQ(answer.code, kExitDone) << answer.err;
    std::ofstream(work() / "script") << answer.out;
  }
  // What bash offers for the last of these words.
  std::string offered(const std::string& words, int last) const {
    return shell("bash --norc",
                 "source ./script\ncomplete -p veil >/dev/null || exit 9\nCOMP_WORDS=(" + words +
                     ")\nCOMP_CWORD=" + std::to_string(last) +
                     "\n_veil\necho \" ${COMPREPLY[*]} \"\n");
  }
};

TEST_F(ProgramCompletion, BashReadsItAndCompletesCommandsOptionsAndValues) {
  write_script("bash");
  EXPECT_EQ(shell("bash -n", text(work() / "script")), "");
  EXPECT_EQ(offered("veil tr", 1), " train \n");
  EXPECT_EQ(offered("veil train --learn", 2), " --learning-rate \n");
  EXPECT_EQ(offered("veil train --optimizer ''", 3), " sgd sgd-momentum adamw \n");
  EXPECT_EQ(offered("veil train --optimizer = ad", 4), " adamw \n");
  EXPECT_EQ(offered("veil train --help pri", 3), " privacy \n");
  EXPECT_EQ(offered("veil privacy ''", 2), " epsilon sigma explore \n");
  EXPECT_EQ(offered("veil privacy sigma --accountant g", 4), " gdp \n");
  EXPECT_THAT(offered("veil suite ''", 2), HasSubstr(" llama3-dp "));
  EXPECT_THAT(offered("veil suite linear --", 3), HasSubstr(" --timeout "));
  EXPECT_EQ(offered("veil completion z", 2), " zsh \n");
  EXPECT_EQ(offered("veil help verif", 2), " verify \n");
}

TEST_F(ProgramCompletion, ZshAndFishReadTheirsWhereTheyAreInstalled) {
  for (const char* name : {"zsh", "fish"}) {
    write_script(name);
    const std::string script = text(work() / "script");
    EXPECT_THAT(script, HasSubstr("optimizer")) << name;
    EXPECT_THAT(script, HasSubstr("sgd sgd-momentum adamw")) << name;
    EXPECT_THAT(script, HasSubstr("llama3-dp")) << name;
    if (has(name)) {
      EXPECT_EQ(shell(std::string(name) + " -n", script), "") << name;
    }
  }
}

TEST_F(ProgramCompletion, AShellThatIsNotKnownIsNamedWithTheOnesThatAre) {
  const Answer answer = veil("completion tcsh");
  EXPECT_EQ(answer.code, kExitUsage);
  EXPECT_THAT(answer.err, HasSubstr("bash, zsh, fish"));
}

TEST_F(ProgramCompletion, TheManPageNamesEveryCommandAndIsReadByMan) {
  const Answer answer = veil("man");
  ASSERT_EQ(answer.code, kExitDone);
  for (const Command& command : commands()) {
    const std::string name = command.name;
    const std::string title = name == "find-batch" ? "find\\-batch" : name;
    EXPECT_NE(answer.out.find(".SS veil " + title), std::string::npos) << name;
  }
  EXPECT_NE(answer.out.find("\\-\\-learning\\-rate"), std::string::npos);
  EXPECT_EQ(answer.out.find("\n'"), std::string::npos) << "a text is taken for a request";
  if (!has("groff")) return;
  std::ofstream(work() / "page") << answer.out;
  const std::string shown =
      shell("sh",
            "groff -man -Tascii -rLL=200n page >shown 2>warnings; cat warnings; grep -q -e "
            "--learning-rate shown || echo lost");
  EXPECT_EQ(shown, "");
}

}  // namespace
}  // namespace veil
