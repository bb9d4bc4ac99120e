// A loss on replies only, from the file to the batch.
#include <gmock/gmock.h>

#include "base/build_info.h"
#include "data/batches.h"
#include "data/encode.h"
#include "data/overview.h"
#include "data/test_folder.h"
#include "data/test_goldens.h"
#include "golden_folder.h"

namespace veil::data {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Replies : public FolderTest {
 protected:
  static RecognisedChat chatml() {
    return {named_chat_template(ChatFormat::chatml, {}), "", false};
  }
  std::shared_ptr<const TokenStore> load(const std::string& name, CorpusOptions corpus = {},
                                         bool digest = false) const {
    const auto tokenizer = byte_tokenizer();
    return load_data(path(name), tokenizer.get(), corpus,
                     {.digest_text = digest, .chat = chatml()});
  }
  static std::string trained_text(const TokenStore& store, int64_t document) {
    const int64_t size = store.size(document);
    std::vector<int64_t> tokens(static_cast<size_t>(size));
    std::vector<uint8_t> trained(static_cast<size_t>(size));
    store.copy(document, 0, size, tokens.data());
    store.copy_trained(document, 0, size, trained.data());
    std::string text;
    for (size_t at = 0; at < tokens.size(); ++at) {
      if (trained[at]) text += static_cast<char>(tokens[at]);
    }
    return text;
  }
  std::string write_conversations() const {
    return write("chat.jsonl",
                 R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", )"
                 R"("content": "Yes"}, {"role": "user", "content": "So"}, {"role": "assistant", )"
                 R"("content": "No"}], "who": "ann"})"
                 "\n"
                 R"({"messages": [{"role": "user", "content": "Only a question"}], "who": 7})"
                 "\n");
  }
};

TEST_F(Replies, TheMaskOfAStoreHasTheRepliesAndTheirEnds) {
  write_conversations();
  const auto store = load("chat.jsonl");
  EXPECT_TRUE(store->header().masked);
  EXPECT_TRUE(store->header().ended);
  EXPECT_EQ(store->header().format, "chat");
  EXPECT_EQ(store->header().chat_template, "chatml");
  EXPECT_EQ(trained_text(*store, 0), "Yes<|im_end|>No<|im_end|>");
  EXPECT_EQ(trained_text(*store, 1), "");

  write("more/a.jsonl", R"({"prompt": "2 + 2 =", "completion": " 4"})");
  const auto completion = load("more");
  EXPECT_EQ(trained_text(*completion, 0), " 4");
  // the end of text is added where samples are made, and is trained on
  EXPECT_FALSE(completion->header().ended);
  const Samples ended(completion, {.kind = SampleKind::document, .length = 16});
  EXPECT_EQ(ended.trained_tokens().tokens, 3);
  std::vector<int64_t> inputs(16), targets(16);
  EXPECT_EQ(ended.fill(0, inputs.data(), targets.data()), 9);
  EXPECT_EQ((std::vector<int64_t>(targets.begin() + 5, targets.begin() + 10)),
            (std::vector<int64_t>{kIgnoredTarget, ' ', '4', 256, kIgnoredTarget}));
  const auto all = load("chat.jsonl", {.loss_on = LossOn::all});
  EXPECT_FALSE(all->header().masked);
  EXPECT_TRUE(all->header().ended);  // the template has ended each, and no end is added
  EXPECT_EQ(all->size(0), store->size(0));
  EXPECT_THAT(complaint([&] { load("chat.jsonl", {.format = DataFormat::completion}); }),
              HasSubstr("chat.jsonl:1: there is no key 'prompt'"));
  write("kinds.jsonl", R"({"prompt": "a", "completion": "b"})"
                       "\n"
                       R"({"prompt": [{"role": "user", "content": "a"}], "completion": )"
                       R"([{"role": "assistant", "content": "b"}]})");
  for (const bool skip_bad : {false, true})
    EXPECT_THAT(complaint([&] { load("kinds.jsonl", {.skip_bad = skip_bad}); }),
                HasSubstr("kinds.jsonl:2: some records hold messages"));
  write("plain/a.txt", "text");
  EXPECT_THAT(complaint([&] { load("plain", {.loss_on = LossOn::replies}); }),
              HasSubstr("loss_on replies: plain text has no replies"));
  EXPECT_THAT(complaint([&] { load("plain", {.format = DataFormat::chat}); }),
              HasSubstr("a .txt file is plain text"));
}

TEST_F(Replies, OnlyTrainedTokensAreTargets) {
  write_conversations();
  const auto store = load("chat.jsonl");
  const int64_t length = store->size(0) + 3;
  const auto samples = std::make_shared<Samples>(
      store, SampleOptions{.kind = SampleKind::document, .length = length});
  const Batch batch = make_batch(*samples, {0, 1});
  ASSERT_EQ(std::ssize(batch.targets), 2 * length);
  std::string targets;
  for (int64_t at = 0; at < length; ++at) {
    const int64_t target = batch.targets[static_cast<size_t>(at)];
    if (target != kIgnoredTarget) {
      targets += static_cast<char>(target);
      // what is predicted is the next token
      EXPECT_EQ(target, batch.inputs[static_cast<size_t>(at + 1)]);
    }
    EXPECT_EQ(batch.targets[static_cast<size_t>(length + at)], kIgnoredTarget);
  }
  EXPECT_EQ(targets, "Yes<|im_end|>No<|im_end|>");
  EXPECT_EQ(batch.lengths[0], store->size(0) - 1);  // no end of text was added
  EXPECT_EQ(samples->trained_tokens().tokens, 25);
  EXPECT_EQ(samples->trained_tokens().without, 1);

  // Cut before the second reply's last mark ends.
  const Samples cut(store, {.kind = SampleKind::document, .length = store->size(0) - 5});
  std::vector<int64_t> inputs(static_cast<size_t>(cut.length())), wanted = inputs;
  cut.fill(0, inputs.data(), wanted.data());
  EXPECT_EQ(cut.length() - std::count(wanted.begin(), wanted.end(), kIgnoredTarget), 25 - 4 + 1);

  EXPECT_THAT(complaint([&] { Samples(store, {.kind = SampleKind::packed, .length = 8}); }),
              HasSubstr("samples packed: a loss on replies needs one conversation per sample"));
  const Samples packed(load("chat.jsonl", {.loss_on = LossOn::all}),
                       {.kind = SampleKind::packed, .length = 8});
  EXPECT_EQ(packed.count(), (store->size(0) + store->size(1) - 1) / 8);
}

TEST_F(Replies, AStoreOnDiskKeepsTheMask) {
  write_conversations();
  const auto tokenizer = byte_tokenizer();
  Corpus corpus(path("chat.jsonl"), {}, chatml());
  StoreFile file(path("a.tokens"), corpus_header(*tokenizer, corpus, {}, {}));
  encode_corpus(corpus, *tokenizer, {}, file);
  file.finish();
  const auto mapped = load("a.tokens"), memory = load("chat.jsonl");
  for (int64_t document = 0; document < 2; ++document)
    EXPECT_EQ(trained_text(*mapped, document), trained_text(*memory, document));
  EXPECT_EQ(mapped->digest(), memory->digest());
  EXPECT_TRUE(one_sample_a_record(path("a.tokens"), {}));
  EXPECT_TRUE(one_sample_a_record(path("chat.jsonl"), {}));
  EXPECT_THAT(complaint([&] { load("a.tokens", {.loss_on = LossOn::all}); }),
              HasSubstr("was written for replies"));
  EXPECT_THAT(complaint([&] { load("a.tokens", {.format = DataFormat::text}); }),
              HasSubstr("holds chat"));
  EXPECT_THAT(complaint([&] { load("a.tokens", {.chat_template = "phi3"}); }),
              HasSubstr("was written with chatml"));

  // A mask that is damaged is found out, and one bit of it is other data.
  std::string bytes = read_file(path("a.tokens"));
  bytes.back() = 2;
  EXPECT_THAT(complaint([&] { TokenStore::open(write("b.tokens", bytes)); }), HasSubstr("mask"));
  bytes.back() = 1;
  EXPECT_NE(TokenStore::open(write("b.tokens", bytes)).digest(), mapped->digest());
  EXPECT_THAT(complaint([&] { TokenStore::open(write("c.tokens", bytes + "x")); }),
              HasSubstr("its header asks for"));
}

TEST_F(Replies, TheDigestCoversMaskAndRendering) {
  write_conversations();
  const auto masked = load("chat.jsonl", {}, true)->digest(),
             all = load("chat.jsonl", {.loss_on = LossOn::all}, true)->digest();
  EXPECT_NE(masked, all);
  EXPECT_EQ(masked, load("chat.jsonl", {}, true)->digest());
  const auto tokenizer = byte_tokenizer();
  const auto other = load_data(
      path("chat.jsonl"), tokenizer.get(), {},
      {.digest_text = true, .chat = {named_chat_template(ChatFormat::phi3, {}), "", false}});
  EXPECT_NE(masked, other->digest());
}

TEST_F(Replies, UsersAreReadFromConversationsAndTables) {
  write_conversations();
  const auto tokenizer = byte_tokenizer();
  Owners owners;
  load_data(path("chat.jsonl"), tokenizer.get(), {.user_key = "who"}, {.chat = chatml()}, {},
            &owners);
  EXPECT_EQ(owners.items(), 2);
  EXPECT_NE(owners.user(0), owners.user(1));
  write("rows.csv", "prompt,completion,who\na,b,ann\nc,d,bob\n\"e\ng\",f,ann\n");
  Owners rows;
  const auto store =
      load_data(path("rows.csv"), tokenizer.get(), {.user_key = "who"}, {}, {}, &rows);
  EXPECT_EQ(rows.user(0), rows.user(2));
  EXPECT_NE(rows.user(0), rows.user(1));
  EXPECT_EQ(trained_text(*store, 2), "f");
}

TEST_F(Replies, TablesHaveLabelsAndPairs) {
  const auto tokenizer = byte_tokenizer();
  write("pairs.tsv", "sentence1\tsentence2\tlabel\nA \"b\tc\t2\nd\te\t0\n");
  const auto store = load("pairs.tsv", {.label_key = "label"});
  EXPECT_EQ(store->label(0), 2);
  EXPECT_EQ(store->label_count(), 3);
  std::vector<int64_t> tokens(static_cast<size_t>(store->size(0)));
  store->copy(0, 0, store->size(0), tokens.data());
  EXPECT_EQ(tokens, (std::vector<int64_t>{'A', ' ', '"', 'b', 256, 'c'}));
  EXPECT_FALSE(store->header().masked);

  const auto wrong = [&](const std::string& content) {
    write("bad.csv", content);
    return complaint([&] { load("bad.csv"); });
  };
  EXPECT_THAT(wrong("text,n\na\n"), HasSubstr("bad.csv:2: the row has 1 fields"));
  EXPECT_THAT(wrong("text,n\n\"a,2\n"), HasSubstr("bad.csv:2: a quote is not closed"));
  EXPECT_THAT(wrong("text,text\na,b\n"), HasSubstr("names the column 'text' twice"));
  EXPECT_THAT(wrong("body\na\n"), HasSubstr("there is no key 'text'"));
  EXPECT_THAT(wrong("text\n\xff\n"), HasSubstr("byte 0xFF is not UTF-8"));
}

// The rule of the goldens, token by token, with every tokenizer there is.
TEST_F(Replies, GoldenRangesDecideWhichTokensCount) {
  if (!build_info().unicode) GTEST_SKIP() << "this build has no PCRE2 and utf8proc";
  const auto root = goldens_with("chat/cases.jsonl");
  int64_t checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!entry.path().filename().string().starts_with("tokenizers")) continue;
    for (const auto& file : std::filesystem::directory_iterator(entry.path())) {
      if (file.path().extension() != ".json") continue;
      const auto tokenizer = load_tokenizer(file.path().string());
      for (const auto& row : json_lines(root / "chat/cases.jsonl")) {
        if (row["error"].get<bool>()) continue;
        Document document{.text = row["text"].get<std::string>(), .label = {}, .file = ""};
        document.whole = true;
        for (const auto& range : row["assistant_bytes"])
          document.replies.push_back({range[0].get<size_t>(), range[1].get<size_t>()});
        const EncodedDocument found = encode_document(document, *tokenizer, true, {});
        const EncodedText spans = tokenizer->encode_with_spans(document.text, false);
        ASSERT_EQ(found.tokens, spans.tokens);
        ASSERT_EQ(found.tokens, tokenizer->encode(document.text, false));
        for (size_t token = 0; token < found.tokens.size(); ++token) {
          const Span& span = spans.spans[token];
          bool counts = false;
          for (const Span& reply : document.replies) {
            const bool begins_inside = span.begin >= reply.begin && span.begin < reply.end;
            const bool covers_first = span.begin <= reply.begin && span.end > reply.begin;
            counts = counts || begins_inside || covers_first;
          }
          ASSERT_EQ(found.trained[token] != 0, counts) << file.path() << row << token;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 1000);
}

TEST_F(Replies, AnOverviewCountsAndMarks) {
  write_conversations();
  const auto tokenizer = byte_tokenizer();
  const DataOverview overview =
      data_overview(path("chat.jsonl"), tokenizer.get(), {}, {.chat = chatml()}, 60, 3);
  EXPECT_EQ(overview.counts.documents, 2);
  EXPECT_EQ(overview.format, "chat");
  EXPECT_EQ(overview.loss_on, "replies");
  EXPECT_EQ(overview.trained_tokens, 25);
  EXPECT_EQ(overview.untrained_documents, 1);
  EXPECT_EQ(overview.cut_documents, 1);
  EXPECT_EQ(overview.cut_tokens, overview.longest - 61);
  int64_t in_bins = 0;
  for (const LengthBin& bin : overview.lengths) in_bins += bin.documents;
  EXPECT_EQ(in_bins, 2);
  EXPECT_LE(overview.lengths.size(), 13u);
  ASSERT_EQ(overview.samples.size(), 2u);
  std::string all, trained, beyond;
  for (const MarkedText& part : overview.samples[0].text) {
    all += part.text;
    if (part.trained) trained += part.text;
    if (part.cut) beyond += part.text;
  }
  EXPECT_EQ(all,
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n<|im_start|>"
            "user\nSo<|im_end|>\n<|im_start|>assistant\nNo<|im_end|>\n");
  EXPECT_EQ(trained, "Yes<|im_e");
  EXPECT_EQ(beyond, all.substr(61));
}

}  // namespace
}  // namespace veil::data
