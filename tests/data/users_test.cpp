// Who owns what: how users are read, numbered and split, and what is refused.
#include "data/users.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "data/encode.h"
#include "data/image_users.h"
#include "data/samples.h"
#include "data/test_folder.h"

namespace veil::data {
namespace {

using ::testing::HasSubstr;

class UsersTest : public FolderTest {
 protected:
  std::string refused(const std::string& name, const std::string& content) {
    const std::string file = write(name, content);
    const std::string said = complaint([&] {
      Corpus corpus(folder_, {.user_key = "who"});
      while (corpus.next()) {
      }
    });
    std::filesystem::remove(file);
    return said;
  }
};

TEST(Owners, EqualNamesAreOneUserAndNumbersFollowTheFirstSample) {
  Owners owners;
  for (const char* name : {"b", "a", "b", "c", "a", "b"}) owners.add(name);
  std::vector<int64_t> users;
  for (int64_t item = 0; item < owners.items(); ++item) users.push_back(owners.user(item));
  EXPECT_EQ(users, (std::vector<int64_t>{0, 1, 0, 2, 1, 0}));
  EXPECT_EQ(owners.hash(0), owners.hash(5));
  EXPECT_NE(owners.hash(0), owners.hash(1));
  // samples 0 to 3 are made of items 1, 2, 4 and 5: user c has none
  const Users own(owners, {1, 2, 4, 5});
  EXPECT_EQ(own.count(), 2);
  EXPECT_EQ(own.samples(), 4);
  EXPECT_EQ(own.most(), 2);
  EXPECT_EQ((std::vector{own.sample(0, 0), own.sample(0, 1)}), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ((std::vector{own.sample(1, 0), own.sample(1, 1)}), (std::vector<int64_t>{0, 2}));
}

TEST_F(UsersTest, EveryDocumentHasOneUserOrIsNamedByFileAndLine) {
  const std::string good = "{\"text\": \"x\", \"who\": \"u1\"}\n";
  EXPECT_EQ(refused("a.jsonl", good + "{\"text\": \"y\", \"who\": 7}\n"), "nothing is wrong");
  EXPECT_THAT(refused("a.jsonl", good + "{\"text\": \"y\"}\n"),
              HasSubstr("a.jsonl:2: there is no"));
  EXPECT_THAT(refused("a.jsonl", good + good + "{\"text\": \"y\", \"who\": null}\n"),
              HasSubstr("a.jsonl:3: there is no user"));
  EXPECT_THAT(refused("a.jsonl", good + "{\"who\": \"a\", \"text\": \"y\", \"who\": \"b\"}\n"),
              HasSubstr("a.jsonl:2: the key 'who' is there 2 times"));
  EXPECT_THAT(refused("a.jsonl", "{\"text\": \"y\", \"who\": \"\"}\n"), HasSubstr(":1: the user"));
  EXPECT_THAT(refused("a.jsonl", "{\"text\": \"y\", \"who\": [\"a\", \"b\"]}\n"),
              HasSubstr("neither a text nor a whole number"));
  EXPECT_THAT(refused("a.json", "[\n{\"text\": \"y\", \"who\": 1},\n{\"text\": \"z\"}]"),
              HasSubstr("a.json:3: "));
  EXPECT_THAT(refused("a.txt", "free text"), HasSubstr("a.txt:1: a .txt file has no user"));
  // the key of an inner object is another one
  EXPECT_EQ(refused("a.jsonl", "{\"text\": \"y\", \"more\": {\"who\": 2}, \"who\": 3}\n"),
            "nothing is wrong");
}

TEST_F(UsersTest, AWholeNumberIsTheSameUserAsItsDigits) {
  write("a.jsonl",
        "{\"text\": \"one\", \"who\": 7}\n{\"text\": \"two\", \"who\": \"7\"}\n"
        "{\"text\": \"three\", \"who\": \"07\"}\n");
  Corpus corpus(folder_, {.user_key = "who"});
  std::vector<std::string> users;
  while (const auto document = corpus.next()) users.push_back(document->user);
  EXPECT_EQ(users, (std::vector<std::string>{"7", "7", "07"}));
}

// 400 documents by 60 users, whose texts' hashes would split every user.
TEST_F(UsersTest, HeldOutPartsTakeWholeUsersAndARemovedUserMovesNoOther) {
  const auto split = [&](int64_t without) {
    std::string lines;
    for (int64_t i = 0; i < 400; ++i) {
      if (i * i % 60 == without) continue;
      lines += fmt::format("{{\"text\": \"document {}\", \"who\": \"user {}\"}}\n", i, i * i % 60);
    }
    write("a.jsonl", lines);
    const auto tokenizer = load_tokenizer("byte");
    const auto owners = std::make_shared<Owners>();
    const auto store =
        load_data(folder_, tokenizer.get(), {.user_key = "who"}, {}, {}, owners.get());
    EXPECT_EQ(owners->items(), store->header().documents);
    std::set<uint64_t> parts[2];
    int64_t documents = 0;
    for (const Split part : {Split::train, Split::held_out}) {
      const Samples samples(store, {SampleKind::document, 32, part, 0.3, owners});
      const Users users(*owners, samples.documents());
      documents += samples.count();
      for (const int64_t document : samples.documents())
        parts[part == Split::held_out].insert(owners->hash(document));
      EXPECT_EQ(std::ssize(parts[part == Split::held_out]), users.count());
    }
    EXPECT_EQ(documents, store->header().documents);
    return std::pair(parts[0], parts[1]);
  };
  const auto [train, held_out] = split(-1);
  EXPECT_GT(held_out.size(), 0u);
  for (const uint64_t user : held_out) EXPECT_FALSE(train.contains(user)) << "a user in both parts";
  const auto [fewer, fewer_held_out] = split(4);
  EXPECT_TRUE(std::includes(train.begin(), train.end(), fewer.begin(), fewer.end()));
  EXPECT_TRUE(std::includes(held_out.begin(), held_out.end(), fewer_held_out.begin(),
                            fewer_held_out.end()));
  EXPECT_EQ(fewer.size() + fewer_held_out.size() + 1, train.size() + held_out.size());
}

TEST_F(UsersTest, ATokenStoreHasNoUsers) {
  write("text/a.jsonl", "{\"text\": \"x\", \"who\": \"u1\"}\n");
  const auto tokenizer = load_tokenizer("byte");
  StoreFile file(path("store"), store_header(*tokenizer, {}, {}));
  Corpus corpus(path("text"), {});
  encode_corpus(corpus, *tokenizer, {}, file);
  file.finish();
  Owners owners;
  EXPECT_THAT(complaint([&] {
                load_data(path("store"), tokenizer.get(), {.user_key = "who"}, {}, {}, &owners);
              }),
              HasSubstr("has no users"));
}

class ImageUsersTest : public FolderTest {
 protected:
  void SetUp() override {
    if (!built_with_images()) GTEST_SKIP() << "no libpng or libjpeg";
  }
  void image(const std::string& name) const {
    const std::string file = path("images/" + name);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    write_png(file, Picture{2, 2, std::vector<uint8_t>(12, 90)});
  }
  std::vector<int64_t> users(const std::string& listing = "") const {
    const ImageFolder images(path("images"), BadImages::refused, 1);
    const Owners owners = listing.empty()
                              ? image_owners_by_folder(path("images"), images)
                              : image_owners_by_listing(path("images"), images, path(listing));
    std::vector<int64_t> result;
    for (int64_t item = 0; item < owners.items(); ++item) result.push_back(owners.user(item));
    return result;
  }
};

TEST_F(ImageUsersTest, AFolderBelowAClassIsAUserAndTheSameOneInEveryClass) {
  for (const char* name :
       {"cat/ann/1.png", "cat/ann/deep/2.png", "cat/bob/1.png", "dog/bob/1.png", "dog/cy/1.png"})
    image(name);
  EXPECT_EQ(users(), (std::vector<int64_t>{0, 0, 1, 1, 2}));
  image("dog/1.png");
  EXPECT_THAT(complaint([&] { users(); }), HasSubstr("dog/1.png: there is no user"));
}

TEST_F(ImageUsersTest, AListingNamesEveryImageOnce) {
  image("cat/1.png");
  image("dog/1.png");
  image("dog/2.png");
  const std::string lines =
      "{\"file\": \"dog/1.png\", \"user\": \"a\"}\n{\"file\": \"./cat/1.png\", \"user\": \"a\"}\n";
  write("who.jsonl", lines + "{\"user\": 3, \"file\": \"dog/2.png\"}\n");
  EXPECT_EQ(users("who.jsonl"), (std::vector<int64_t>{0, 0, 1}));
  const auto said = [&](const std::string& more) {
    write("who.jsonl", lines + more);
    return complaint([&] { users("who.jsonl"); });
  };
  EXPECT_THAT(said(""), HasSubstr("dog/2.png: there is no user"));
  EXPECT_THAT(said("{\"file\": \"dog/2.png\"}\n"), HasSubstr("who.jsonl:3: there is no user"));
  EXPECT_THAT(said("{\"file\": \"dog/2.png\", \"user\": 1, \"user\": 2}\n"),
              HasSubstr("who.jsonl:3: the key 'user' is there 2 times"));
  EXPECT_THAT(said("{\"file\": \"dog/../dog/1.png\", \"user\": \"b\"}\n"),
              HasSubstr("who.jsonl:3: 'dog/../dog/1.png' is in line 1 too"));
  EXPECT_THAT(said("{\"file\": \"dog/2.png\", \"user\": 1}\n{\"file\": \"x.png\", \"user\": 1}\n"),
              HasSubstr("who.jsonl:4: 'x.png' is no image"));
  EXPECT_THAT(said("words\n"), HasSubstr("who.jsonl:3: this is no object"));
  EXPECT_THAT(complaint([&] { users("nowhere.jsonl"); }), HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace veil::data
