// What holds for every picture of every suite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "report/suite_page.h"
#include "suite/suite.h"
#include "suite/test_random_records.h"

namespace veil::suite_plots_test {
namespace {

// Texts that a script sets apart from its points: axes, titles, the legend.
std::vector<std::string> texts_of(const std::string& script) {
  std::vector<std::string> texts;
  const std::regex label("set label '([^']*)'");
  for (std::sregex_iterator at(script.begin(), script.end(), label), end; at != end; ++at)
    texts.push_back((*at)[1]);
  return texts;
}

TEST(SuitePlots, EveryPictureNamesTheUnitOfItsAxis) {
  const std::regex unit(
      "(^|[ (/])(ms|GiB|MiB|KiB|B|%|tokens/s|per second|seconds|times|plain)($|[ ,)])");
  for (const SuitePage& page : suite_pages()) {
    int pictures = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      verdict_claims::Chance chance(seed);
      const auto records = verdict_claims::random_records(chance, page.suite);
      for (const Plot& plot : make_plots(records, page)) {
        ++pictures;
        const std::vector<std::string> texts = texts_of(plot.script);
        EXPECT_TRUE(std::any_of(texts.begin(), texts.end(),
                                [&](const std::string& text) {
                                  // The title may name a unit too; it is in no SVG.
                                  return text != plot.title && std::regex_search(text, unit);
                                }))
            << page.suite << " " << plot.name << ": " << ::testing::PrintToString(texts);
      }
    }
    EXPECT_GE(pictures, 40) << page.suite;  // one of each set at least
  }
}

}  // namespace
}  // namespace veil::suite_plots_test
