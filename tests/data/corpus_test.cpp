#include "data/corpus.h"

#include <gmock/gmock.h>

#include "data/test_folder.h"

namespace veil::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class CorpusTest : public FolderTest {
 protected:
  std::vector<Document> documents(CorpusOptions options = {}) {
    Corpus corpus(folder_, options);
    std::vector<Document> result;
    while (auto document = corpus.next()) result.push_back(*document);
    counts_ = corpus.counts();
    bad_ = corpus.bad_lines();
    EXPECT_EQ(counts_.documents, static_cast<int64_t>(result.size()));
    return result;
  }
  std::vector<std::string> texts(CorpusOptions options = {}) {
    std::vector<std::string> result;
    for (const Document& document : documents(options)) result.push_back(document.text);
    return result;
  }
  // Where the only file's first bad line is, and how many there are beside good ones.
  std::string first_bad(const std::string& name, const std::string& content) {
    const std::string file = write(name, content);
    const std::string said = complaint([&] { texts(); });
    EXPECT_THAT(said, HasSubstr("skip_bad"));
    texts({.skip_bad = true});
    EXPECT_EQ(said, bad_.at(0).message() + "; `skip_bad` leaves such lines out");
    return said.substr(file.size());
  }
  CorpusCounts counts_;
  std::vector<BadLine> bad_;
};

TEST_F(CorpusTest, EveryKindOfFileBelowTheFolderIsReadInTheOrderOfPaths) {
  write("b/two.jsonl",
        "{\"text\": \"line one\"}\r\n\n{\"text\": \"line \\u00e9\\u0000\", \"other\": [1]}");
  write("a.txt", "\xEF\xBB\xBFwhole file\nof two lines\n");
  write("c.json", "{\"text\": \"one object\"}");
  write("d.JSON",
        "[\n {\"text\": \"first ] of list\"},\n {\"text\": \"second \\\" of {list\"}\n]\n");
  write("e.json", "{\"text\": \"after\"}\n{\"text\": \"another\"}\n");
  write("f.json", "[]");
  write("empty.txt", "");
  write("g.csv", "n,text\n1,\"a row, in quotes\"\n");
  write("h.tsv", "text\tn\nanother row\t2\n");
  write("ignored.md", "no");
  EXPECT_THAT(texts(),
              ElementsAre("whole file\nof two lines\n", "line one", std::string("line \u00e9\0", 8),
                          "one object", "first ] of list", "second \" of {list", "after", "another",
                          "a row, in quotes", "another row"));
  EXPECT_EQ(counts_.files, 9);
  EXPECT_EQ(counts_.empty, 1);
  EXPECT_EQ(counts_.bad, 0);
  const auto found = documents();
  EXPECT_THAT(found[2].file, EndsWith("b/two.jsonl"));
  EXPECT_EQ(found[2].line, 3);
  EXPECT_EQ(found[5].line, 3);
}

TEST_F(CorpusTest, AnotherKeyCanHoldTheTextAndAnotherTheLabel) {
  write("a.jsonl", "{\"body\": \"x\", \"label\": 2}\n{\"body\": \"y\", \"label\": \"good\"}\n");
  const auto found =
      documents({.text_key = "body", .label_key = "label", .label_names = {"bad", "good"}});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].label, 2);
  EXPECT_EQ(found[1].label, 1);
  EXPECT_EQ(documents({.text_key = "body"})[0].label, std::nullopt);
}

TEST_F(CorpusTest, ALabelsSpellingIsLookedUpInTheNamesBeforeItCountsAsANumber) {
  const CorpusOptions stars = {.label_key = "label", .label_names = {"1", "2", "3"}};
  const auto labels = [&](const CorpusOptions& options) {
    std::vector<int32_t> found;
    for (const Document& document : documents(options)) found.push_back(*document.label);
    return found;
  };
  write("a.csv", "text,label\nx,1\ny,3\n");
  write("b.jsonl", "{\"text\": \"x\", \"label\": 2}\n{\"text\": \"y\", \"label\": \"3\"}\n");
  EXPECT_THAT(labels(stars), ElementsAre(0, 2, 1, 2));
  EXPECT_THAT(labels({.label_key = "label"}), ElementsAre(1, 3, 2, 3));
  EXPECT_THAT(labels({.label_key = "label", .label_names = {"bad", "good"}}),
              ElementsAre(1, 3, 2, 3));
  // It counts from 1 elsewhere: 0 is no class here.
  for (const char* line :
       {"{\"text\": \"x\", \"label\": 0}", "{\"text\": \"x\", \"label\": \"0\"}"}) {
    write("b.jsonl", line);
    EXPECT_THAT(complaint([&] { texts(stars); }), HasSubstr("is unknown: allowed are 1, 2, 3;"))
        << line;
  }
}

TEST_F(CorpusTest, ABadLineIsNamedByFileAndLine) {
  EXPECT_THAT(first_bad("a.jsonl", "{\"text\": \"x\"}\n\n{\"text\": \n{\"text\": \"y\"}\n"),
              AllOf(HasSubstr(":3: "), HasSubstr("not JSON")));
  EXPECT_EQ(counts_.bad, 1);
  EXPECT_EQ(counts_.documents, 2);
  EXPECT_THAT(first_bad("a.jsonl", "[\"text\"]"),
              HasSubstr(":1: this is no object with the key 'text'"));
  EXPECT_THAT(first_bad("a.jsonl", "{\"txt\": \"x\"}"),
              HasSubstr(":1: there is no key 'text'; `text_key`"));
  EXPECT_THAT(first_bad("a.jsonl", "{\"text\": 7}"), HasSubstr("'text' is no text"));
  EXPECT_THAT(first_bad("a.jsonl", "{\"text\": \"x\"}\n{\"text\": \"\xFF\"}"),
              HasSubstr(":2: byte 0xFF is not UTF-8"));
  EXPECT_THAT(first_bad("a.jsonl", "{\"text\": \"\\ud800\"}"), HasSubstr(":1: this is not JSON"));
  EXPECT_THAT(first_bad("a.jsonl", std::string(100000, '[')), HasSubstr(":1: this is not JSON"));
}

TEST_F(CorpusTest, ABadPlaceInAJsonListIsNamedByItsLine) {
  EXPECT_THAT(first_bad("a.json", "[\n{\"text\": \"x\"},\n{\"txt\": \"y\"},\n{\"text\": \"z\"}]"),
              HasSubstr(":3: there is no key"));
  EXPECT_EQ(counts_.documents, 2);
  EXPECT_THAT(first_bad("a.json", "[{\"text\": \"x\"},\n{\"text\":\n \"y\n\"}]"),
              HasSubstr(":3: this is not JSON"));
  EXPECT_THAT(first_bad("a.json", "[{\"text\": \"x\"}\n"), HasSubstr(":2: the list is not closed"));
  EXPECT_THAT(first_bad("a.json", "[{\"text\": \"x\"},\n]"),
              HasSubstr(":2: a comma before the list's end"));
  EXPECT_THAT(first_bad("a.json", "[{\"text\": \"x\"}\n\n {\"text\": \"y\"}]"),
              HasSubstr(":3: a comma is missing"));
  EXPECT_THAT(first_bad("a.json", "[{\"text\": \"x\"}]]"), HasSubstr(":1: unexpected ']'"));
  EXPECT_THAT(first_bad("a.json", "nonsense"), HasSubstr(":1: this is not JSON"));
  EXPECT_THAT(first_bad("a.json", "{\"text\": \"x\""), HasSubstr(":1: this is not JSON"));
}

TEST_F(CorpusTest, ATextThatIsNotUtf8IsBadAtItsLine) {
  write("good.jsonl", "{\"text\": \"x\"}");
  EXPECT_THAT(first_bad("bad.txt", "fine\nfine\nnot \xE9t\xE9\n"),
              HasSubstr(":3: byte 0xE9 is not UTF-8"));
  EXPECT_EQ(counts_.documents, 1);
}

TEST_F(CorpusTest, LabelsThatAreNoneAreBad) {
  for (const char* line :
       {"{\"text\": \"x\"}", "{\"text\": \"x\", \"label\": -1}",
        "{\"text\": \"x\", \"label\": 1.5}", "{\"text\": \"x\", \"label\": \"good\"}",
        "{\"text\": \"x\", \"label\": 99999999999999999999}",
        "{\"text\": \"x\", \"label\": 1048576}", "{\"text\": \"x\", \"label\": \"1048576\"}",
        "{\"text\": \"x\", \"label\": \"\"}", "{\"text\": \"x\", \"label\": true}"}) {
    write("a.jsonl", line);
    EXPECT_THAT(complaint([&] { texts({.label_key = "label"}); }), HasSubstr("a.jsonl:1: "))
        << line;
  }
  write("a.jsonl", "{\"text\": \"x\", \"stars\": 2}");
  EXPECT_THAT(complaint([&] { texts({.label_key = "label"}); }),
              HasSubstr("there is no label 'label': the record has stars, text; pass `label_key`"));
}

TEST_F(CorpusTest, AColumnThatIsThereTwiceIsNamedInOneLineWhateverItsName) {
  write("a.csv", "\"te\nxt\",\"te\nxt\"\n1,2\n");
  const std::string said = complaint([&] { texts(); });
  EXPECT_THAT(said, HasSubstr("a.csv:1: the first row names the column"));
  EXPECT_EQ(said.find('\n'), std::string::npos);
}

TEST_F(CorpusTest, AFolderWithoutDataIsAComplaint) {
  EXPECT_THAT(complaint([&] { texts(); }),
              HasSubstr("holds no .txt, .json, .jsonl, .csv or .tsv file"));
  EXPECT_THAT(complaint([&] { Corpus(path("nowhere"), {}); }), HasSubstr("no such folder or file"));
  EXPECT_THAT(complaint([&] { Corpus(write("a.md", "x"), {}); }), HasSubstr("is no data"));
  // data that was meant to be there
  std::filesystem::create_symlink(path("nowhere"), path("gone.txt"));
  EXPECT_THAT(complaint([&] { texts(); }), HasSubstr("gone.txt': No such file"));
}

TEST_F(CorpusTest, OnlyTheFirstTwentyBadLinesAreKeptAndAllAreCounted) {
  std::string lines;
  for (int count = 0; count < 50; ++count) lines += "{\n";
  write("a.jsonl", lines);
  EXPECT_TRUE(texts({.skip_bad = true}).empty());
  EXPECT_EQ(counts_.bad, 50);
  EXPECT_EQ(bad_.size(), 20u);
}

}  // namespace
}  // namespace veil::data
