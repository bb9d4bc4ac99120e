#include "data/token_store.h"

#include <gmock/gmock.h>

#include <cstring>

#include "data/content_hash.h"
#include "data/encode.h"
#include "data/test_folder.h"

namespace veil::data {
namespace {

using ::testing::HasSubstr;

StoreHeader header_of(int64_t vocabulary, bool labelled = false) {
  return {.tokenizer = {.name = "mine",
                        .hash = "00ff",
                        .vocabulary_size = vocabulary,
                        .begin_of_text = {},
                        .end_of_text = 3,
                        .padding = {}},
          .special_added = true,
          .labelled = labelled};
}

std::vector<EncodedDocument> some_documents(bool labelled) {
  std::vector<EncodedDocument> result;
  for (const std::vector<int32_t>& tokens :
       {std::vector<int32_t>{1, 2, 999}, {}, {7}, {5, 4, 3, 2, 1}}) {
    result.push_back({.tokens = tokens,
                      .hash = content_hash(fmt::format("x{}", result.size())),
                      .text_bytes = 10,
                      .label = {}});
    if (labelled) result.back().label = static_cast<int32_t>(result.size());
  }
  return result;
}

void expect_holds(const TokenStore& store, const std::vector<EncodedDocument>& documents) {
  ASSERT_EQ(store.header().documents, static_cast<int64_t>(documents.size()));
  for (size_t index = 0; index < documents.size(); ++index) {
    const auto document = static_cast<int64_t>(index);
    const std::vector<int32_t>& tokens = documents[index].tokens;
    ASSERT_EQ(store.size(document), static_cast<int64_t>(tokens.size()));
    std::vector<int64_t> copied(tokens.size());
    store.copy(document, 0, store.size(document), copied.data());
    EXPECT_EQ(copied, std::vector<int64_t>(tokens.begin(), tokens.end()));
    EXPECT_EQ(store.hash(document), documents[index].hash);
    if (documents[index].label) {
      EXPECT_EQ(store.label(document), *documents[index].label);
    }
  }
}

class TokenStoreTest : public FolderTest {
 protected:
  std::string written(int64_t vocabulary, bool labelled) {
    StoreFile file(path("a.tokens"), header_of(vocabulary, labelled));
    for (const auto& document : some_documents(labelled)) file.append(document);
    file.finish();
    return path("a.tokens");
  }
};

TEST_F(TokenStoreTest, WhatIsWrittenIsReadInMemoryAndFromAFileOfEitherWidth) {
  for (const int64_t vocabulary :
       {int64_t{1000}, int64_t{65536}, int64_t{65537}, int64_t{200000}}) {
    for (const bool labelled : {false, true}) {
      const TokenStore store = TokenStore::open(written(vocabulary, labelled));
      expect_holds(store, some_documents(labelled));
      EXPECT_EQ(store.header().tokens, 9);
      EXPECT_EQ(store.header().text_bytes, 40);
      EXPECT_EQ(store.header().tokenizer.name, "mine");
      EXPECT_EQ(store.header().tokenizer.end_of_text, 3);
      EXPECT_EQ(store.header().tokenizer.padding, std::nullopt);
      EXPECT_TRUE(store.header().special_added);
      EXPECT_EQ(store.label_count(), labelled ? 5 : 0);
      StoreInMemory memory(header_of(vocabulary, labelled));
      for (const auto& document : some_documents(labelled)) memory.append(document);
      expect_holds(memory.finish(), some_documents(labelled));
    }
  }
  // Tokens of a small vocabulary take two bytes.
  EXPECT_EQ(read_file(written(65537, false)).size() - read_file(written(65536, false)).size(), 16u);
}

TEST_F(TokenStoreTest, AFileThatIsNotFinishedIsNotThere) {
  {
    StoreFile file(path("b.tokens"), header_of(1000));
    file.append(some_documents(false)[0]);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(TokenStoreTest, EveryShorterOrLongerFileIsRefused) {
  const std::string whole = read_file(written(1000, true));
  for (size_t size = 0; size < whole.size(); size += size < 4096 ? 512 : 1) {
    const std::string cut = write("cut.tokens", whole.substr(0, size));
    EXPECT_THAT(complaint([&] { TokenStore::open(cut); }),
                HasSubstr("is no token store that can be used"))
        << size;
  }
  write("cut.tokens", whole + "x");
  EXPECT_THAT(complaint([&] { TokenStore::open(path("cut.tokens")); }),
              HasSubstr("where its header asks for"));
  EXPECT_THAT(complaint([&] { TokenStore::open(path("nowhere")); }), HasSubstr("cannot read"));
  EXPECT_THAT(complaint([&] { TokenStore::open(folder_); }), HasSubstr("is no token store"));
}

// To read what was cut off would end the process by SIGBUS.
TEST_F(TokenStoreTest, AFileThatIsCutWhileItIsReadIsAComplaint) {
  const std::string file = written(1000, false);
  const TokenStore store = TokenStore::open(file);
  int64_t tokens[3];
  store.copy(0, 0, 3, tokens);
  std::filesystem::resize_file(file, 100);
  EXPECT_THAT(complaint([&] { store.copy(0, 0, 3, tokens); }), HasSubstr("has 100 bytes now"));
  EXPECT_THAT(complaint([&] { store.size(0); }), HasSubstr("it was changed while it was read"));
  EXPECT_THAT(complaint([&] { store.check_tokens(); }), HasSubstr(file));
  EXPECT_THAT(complaint([&] { store.digest(); }), HasSubstr(file));
}

TEST_F(TokenStoreTest, AHeaderThatLiesIsRefused) {
  const std::string whole = read_file(written(1000, true));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = whole;
    const size_t place = changed.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    changed.replace(place, from.size(), to);
    if (to.size() != from.size() && place < 4096) {  // keep the header's length and the file's size
      const auto length = static_cast<uint32_t>(changed.find('\0', 16) - 16);
      std::memcpy(changed.data() + 12, &length, 4);
      if (to.size() > from.size()) {
        changed.erase(4095, to.size() - from.size());
      } else {
        changed.insert(4000, from.size() - to.size(), '\0');
      }
    }
    write("lie.tokens", changed);
    return complaint([&] { TokenStore::open(path("lie.tokens")); });
  };
  const std::string no_store = "is no token store that can be used";
  EXPECT_THAT(with("VEILTOKS", "VEILTOKX"), HasSubstr("does not begin as one"));
  EXPECT_THAT(with("\"documents\":4", "\"documents\":5"), HasSubstr(no_store));
  EXPECT_THAT(with("\"documents\":4", "\"documents\":9223372036854775807"),
              HasSubstr("counts are impossible"));
  EXPECT_THAT(with("\"documents\":4", "\"documents\":1e300"), HasSubstr("no whole number"));
  EXPECT_THAT(with("\"tokens\":9", "\"tokens\":-1"), HasSubstr(no_store));
  // padded to the same size
  EXPECT_THAT(with("\"tokens\":9", "\"tokens\":10"), HasSubstr("do not follow each other"));
  EXPECT_THAT(with("\"vocabulary_size\":1000", "\"vocabulary_size\":0"), HasSubstr(no_store));
  EXPECT_THAT(with("\"vocabulary_size\":1000", "\"vocabulary_size\":99999"),
              HasSubstr("of another size"));
  EXPECT_THAT(with("\"end_of_text\":3", "\"end_of_text\":1000"),
              HasSubstr("end_of_text is beyond"));
  EXPECT_THAT(with("\"labelled\":true", "\"labelled\":7"), HasSubstr("header cannot be read"));
  EXPECT_THAT(with("{", "["), HasSubstr("header cannot be read"));
  std::string version = whole;
  version[8] = 9;
  write("lie.tokens", version);
  EXPECT_THAT(complaint([&] { TokenStore::open(path("lie.tokens")); }), HasSubstr("version is 9"));
}

TEST_F(TokenStoreTest, AnIndexThatLiesIsRefused) {
  const std::string whole = read_file(written(1000, true));
  const size_t index = 4096 + 24;  // nine tokens of two bytes, up to the next multiple of eight
  const auto with = [&](size_t place, uint64_t value, size_t bytes) {
    std::string changed = whole;
    std::memcpy(changed.data() + place, &value, bytes);
    write("lie.tokens", changed);
    return complaint([&] { TokenStore::open(path("lie.tokens")); });
  };
  for (const uint64_t offset : {uint64_t{4}, uint64_t{1} << 60, ~uint64_t{0}}) {
    EXPECT_THAT(with(index + 8, offset, 8), HasSubstr("do not follow each other")) << offset;
  }
  EXPECT_THAT(with(index, 1, 8), HasSubstr("do not follow each other"));
  EXPECT_THAT(with(whole.size() - 4, ~uint64_t{0}, 4), HasSubstr("negative label"));
}

TEST_F(TokenStoreTest, ATokenBeyondTheVocabularyIsAComplaintWhereItIsRead) {
  std::string changed = read_file(written(1000, false));
  const uint16_t beyond = 1000;
  std::memcpy(changed.data() + 4096 + 2 * 3, &beyond, 2);  // the fourth token: document 2
  write("beyond.tokens", changed);
  const TokenStore store = TokenStore::open(path("beyond.tokens"));
  int64_t tokens[3];
  store.copy(0, 0, 3, tokens);
  EXPECT_EQ(tokens[2], 999);
  EXPECT_THAT(complaint([&] { store.copy(2, 0, 1, tokens); }),
              HasSubstr("token 1000 of document 2"));
  EXPECT_THAT(complaint([&] { store.require_vocabulary(999); }),
              HasSubstr("beyond the model's vocabulary of 999"));
  store.require_vocabulary(1000);
}

TEST_F(TokenStoreTest, AScanNamesTheFirstTokenBeyondTheVocabularyAndItsPlace) {
  for (const int64_t vocabulary : {int64_t{1000}, int64_t{70000}}) {
    std::string changed = read_file(written(vocabulary, false));
    const size_t bytes = vocabulary == 1000 ? 2 : 4;
    const auto beyond = static_cast<uint32_t>(vocabulary);
    EXPECT_EQ(complaint([&] { TokenStore::open(path("a.tokens")).check_tokens(); }),
              "nothing is wrong");
    std::memcpy(changed.data() + 4096 + bytes * 8, &beyond, bytes);
    write("beyond.tokens", changed);
    EXPECT_THAT(complaint([&] { TokenStore::open(path("beyond.tokens")).check_tokens(); }),
                HasSubstr(fmt::format("beyond.tokens' is no token store that can be used: token "
                                      "{0} at position 8 (document 3) is beyond the vocabulary of "
                                      "{0}",
                                      vocabulary)));
  }
}

TEST_F(TokenStoreTest, ADigestIsOfTheBytesAsTheyAreAndNotOfHashesThatTheFileClaims) {
  const std::string whole = read_file(written(1000, true));
  const Sha256Digest digest = TokenStore::open(path("a.tokens")).digest();
  EXPECT_EQ(TokenStore::open(path("a.tokens")).digest(), digest);
  // A token, a document's begin, a hash that decides the split, a label; the header.
  const size_t index = 4096 + 24, documents = 4;
  for (const size_t place : {size_t{4096 + 2}, index + 8, index + 8 * (documents + 1),
                             index + 8 * (2 * documents + 1)}) {
    std::string changed = whole;
    changed[place] ^= 1;
    write("changed.tokens", changed);
    EXPECT_NE(TokenStore::open(path("changed.tokens")).digest(), digest) << place;
  }
}

TEST_F(TokenStoreTest, ADigestInMemoryIsAlsoOfTheTextsAndTheirOrder) {
  const auto digest_with = [](std::vector<std::string> texts) {
    StoreInMemory memory(header_of(1000));
    for (const std::string& text : texts) {
      EncodedDocument document{.tokens = {1, 2}, .hash = 7, .text_bytes = 3, .label = {}};
      document.text_digest = sha256(text);
      memory.append(document);
    }
    return memory.finish().digest();
  };
  const Sha256Digest digest = digest_with({"one", "two"});
  EXPECT_EQ(digest_with({"one", "two"}), digest);
  EXPECT_NE(digest_with({"one", "twa"}), digest) << "equal tokens and hashes";
  EXPECT_NE(digest_with({"two", "one"}), digest);
}

TEST_F(TokenStoreTest, AStoreKnowsItsTokenizer) {
  const TokenStore store = TokenStore::open(written(1000, false));
  EXPECT_THAT(complaint([&] { store.require_tokenizer(byte_tokenizer()->identity()); }),
              HasSubstr("was written with the tokenizer 'mine'"));
  store.require_tokenizer(header_of(1000).tokenizer);
}

class EncodeTest : public FolderTest {
 protected:
  void write_many(int documents) {
    std::string lines;
    for (int index = 0; index < documents; ++index) {
      const std::string text(static_cast<size_t>(1000 + 37 * (index % 100)),
                             static_cast<char>('a' + index % 26));
      lines += fmt::format("{{\"text\": \"{}\"}}\n", text);
    }
    write("data/many.jsonl", lines);
  }
};

TEST_F(EncodeTest, TheStoreIsTheSameForEveryNumberOfThreads) {
  write_many(1200);  // about 3 MB: a dozen chunks
  const auto tokenizer = byte_tokenizer();
  std::vector<std::string> stores;
  for (const int threads : {1, 2, 7}) {
    Corpus corpus(path("data"), {});
    const EncodeOptions options{.threads = threads};
    StoreFile file(path("a.tokens"), store_header(*tokenizer, {}, options));
    int64_t calls = 0, last = 0;
    encode_corpus(corpus, *tokenizer, options, file, [&](const EncodeProgress& now) {
      ++calls;
      EXPECT_GE(now.read_bytes, last);
      last = now.read_bytes;
    });
    EXPECT_GT(calls, 5);
    EXPECT_EQ(file.finish().documents, 1200);
    stores.push_back(read_file(path("a.tokens")));
  }
  EXPECT_EQ(stores[0], stores[1]);
  EXPECT_EQ(stores[0], stores[2]);
}

TEST_F(EncodeTest, AFolderAndItsStoreHoldTheSame) {
  write_many(30);
  const auto tokenizer = byte_tokenizer();
  const auto memory = load_data(path("data"), tokenizer.get(), {}, {});
  Corpus corpus(path("data"), {});
  StoreFile file(path("a.tokens"), store_header(*tokenizer, {}, {}));
  encode_corpus(corpus, *tokenizer, {}, file);
  file.finish();
  const auto mapped = load_data(path("a.tokens"), tokenizer.get(), {}, {});
  EXPECT_NO_THROW(load_data(path("a.tokens"), nullptr, {}, {}));
  ASSERT_EQ(memory->header().documents, 30);
  for (int64_t document = 0; document < 30; ++document) {
    ASSERT_EQ(memory->size(document), mapped->size(document));
    EXPECT_EQ(memory->hash(document), mapped->hash(document));
    std::vector<int64_t> a(static_cast<size_t>(memory->size(document))), b = a;
    memory->copy(document, 0, memory->size(document), a.data());
    mapped->copy(document, 0, memory->size(document), b.data());
    EXPECT_EQ(a, b);
  }
  EXPECT_THAT(complaint([&] { load_data(path("data"), nullptr, {}, {}); }),
              HasSubstr("tokenizer is missing"));
  EXPECT_THAT(complaint([&] { load_data(path("a.tokens"), nullptr, {.label_key = "label"}, {}); }),
              HasSubstr("has no labels"));
}

TEST_F(EncodeTest, ABadLineLateInALongFileStopsAllThreads) {
  write_many(3000);
  write("data/z.jsonl", "{\"text\": \"fine\"}\n{\"text\": }\n");
  const auto tokenizer = byte_tokenizer();
  EXPECT_THAT(complaint([&] { load_data(path("data"), tokenizer.get(), {}, {.threads = 3}); }),
              HasSubstr("z.jsonl:2: "));
  int64_t bad = 0;
  const auto store = load_data(path("data"), tokenizer.get(), {.skip_bad = true}, {.threads = 3},
                               [&](const Corpus& corpus) { bad = corpus.counts().bad; });
  EXPECT_EQ(store->header().documents, 3001);
  EXPECT_EQ(bad, 1);
}

TEST_F(EncodeTest, AFolderWithoutTextIsAComplaint) {
  write("data/a.txt", "");
  const auto tokenizer = byte_tokenizer();
  EXPECT_THAT(complaint([&] { load_data(path("data"), tokenizer.get(), {}, {}); }),
              HasSubstr("holds no document with text"));
  write("bad/a.jsonl", "{\"text\": 1}\n{\n");
  EXPECT_THAT(complaint([&] { load_data(path("bad"), tokenizer.get(), {.skip_bad = true}, {}); }),
              HasSubstr("holds no document with text: 2 bad lines left out"));
}

}  // namespace
}  // namespace veil::data
