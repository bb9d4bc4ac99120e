#include "data/batches.h"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "data/content_hash.h"
#include "data/test_folder.h"

namespace veil::data {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kEnd = 256, kPadding = 257;

// A store of documents whose tokens are the bytes of their texts.
std::shared_ptr<const TokenStore> store_of(const std::vector<std::string>& texts,
                                           bool labelled = false, bool end = true) {
  const auto tokenizer = byte_tokenizer();
  StoreHeader header{
      .tokenizer = tokenizer->identity(), .special_added = false, .labelled = labelled};
  if (!end) header.tokenizer.end_of_text.reset();
  StoreInMemory memory(header);
  int32_t count = 0;
  for (const std::string& text : texts) {
    EncodedDocument document{.tokens = tokenizer->encode(text, false),
                             .hash = content_hash(text),
                             .text_bytes = static_cast<int64_t>(text.size()),
                             .label = {}};
    if (labelled) document.label = count++ % 3;
    memory.append(document);
  }
  return std::make_shared<TokenStore>(memory.finish());
}

std::vector<std::string> numbered_texts(int count) {
  std::vector<std::string> texts;
  for (int index = 0; index < count; ++index) texts.push_back("document " + std::to_string(index));
  return texts;
}

struct Filled {
  std::vector<int64_t> inputs, targets;
  int64_t length;
};
Filled fill(const Samples& samples, int64_t sample) {
  Filled filled{std::vector<int64_t>(static_cast<size_t>(samples.length())),
                std::vector<int64_t>(static_cast<size_t>(samples.targets())), 0};
  filled.length = samples.fill(sample, filled.inputs.data(), filled.targets.data());
  return filled;
}

TEST(Samples, PackedSequencesAreTheStreamOfDocumentsJoinedByTheEndOfText) {
  const auto store = store_of({"abc", "", "d", "efgh"});
  const std::vector<int64_t> stream = {'a',  'b', 'c', kEnd, kEnd, 'd',
                                       kEnd, 'e', 'f', 'g',  'h',  kEnd};
  for (const int64_t length : {1, 2, 3, 4, 5, 11}) {
    const Samples samples(store, {.kind = SampleKind::packed, .length = length});
    ASSERT_EQ(samples.count(), 11 / length);
    for (int64_t sample = 0; sample < samples.count(); ++sample) {
      const Filled filled = fill(samples, sample);
      const auto begin = stream.begin() + sample * length;
      EXPECT_EQ(filled.inputs, std::vector<int64_t>(begin, begin + length))
          << length << " " << sample;
      EXPECT_EQ(filled.targets, std::vector<int64_t>(begin + 1, begin + length + 1))
          << length << " " << sample;
      EXPECT_EQ(filled.length, length);
    }
  }
  EXPECT_THAT(complaint([&] { Samples(store, {.length = 12}); }),
              HasSubstr("12 tokens, fewer than one sequence and its target"));
  EXPECT_THAT(complaint([&] { Samples(store, {.length = 0}); }),
              HasSubstr("seq_length must be at least 1, got 0"));
}

TEST(Samples, ADocumentIsOneSampleThatHoldsNoOthersText) {
  const Samples samples(store_of({"abc", "d", "efgh"}),
                        {.kind = SampleKind::document, .length = 3});
  ASSERT_EQ(samples.count(), 3);
  EXPECT_EQ(fill(samples, 0).inputs, (std::vector<int64_t>{'a', 'b', 'c'}));
  EXPECT_EQ(fill(samples, 0).targets, (std::vector<int64_t>{'b', 'c', kEnd}));
  EXPECT_EQ(fill(samples, 1).inputs, (std::vector<int64_t>{'d', kPadding, kPadding}));
  EXPECT_EQ(fill(samples, 1).targets, (std::vector<int64_t>{kEnd, -100, -100}));
  EXPECT_EQ(fill(samples, 1).length, 1);
  EXPECT_EQ(fill(samples, 2).inputs, (std::vector<int64_t>{'e', 'f', 'g'}));  // cut
  EXPECT_EQ(fill(samples, 2).targets, (std::vector<int64_t>{'f', 'g', 'h'}));
}

TEST(Samples, WithoutAnEndOfTextDocumentsAreJoinedAsTheyAre) {
  const auto store = store_of({"abc", "d", "ef"}, false, false);
  const Samples packed(store, {.kind = SampleKind::packed, .length = 5});
  EXPECT_EQ(fill(packed, 0).inputs, (std::vector<int64_t>{'a', 'b', 'c', 'd', 'e'}));
  EXPECT_EQ(fill(packed, 0).targets.back(), 'f');
  // "d" has no target
  EXPECT_EQ(Samples(store, {.kind = SampleKind::document, .length = 5}).count(), 2);
}

TEST(Samples, ALabelledDocumentIsPaddedOrCut) {
  const Samples samples(store_of({"abc", "d", "efgh", "i"}, true),
                        {.kind = SampleKind::labelled, .length = 3});
  ASSERT_EQ(samples.count(), 4);
  EXPECT_EQ(fill(samples, 1).inputs, (std::vector<int64_t>{'d', kPadding, kPadding}));
  EXPECT_EQ(fill(samples, 1).targets, (std::vector<int64_t>{1}));
  EXPECT_EQ(fill(samples, 1).length, 1);
  EXPECT_EQ(fill(samples, 2).inputs, (std::vector<int64_t>{'e', 'f', 'g'}));
  EXPECT_EQ(fill(samples, 3).targets, (std::vector<int64_t>{0}));
  EXPECT_THAT(
      complaint([&] { Samples(store_of({"a"}), {.kind = SampleKind::labelled, .length = 3}); }),
      HasSubstr("no labels"));
}

TEST(Split, ItIsDecidedByTheTextAloneAndTheFractionHolds) {
  const auto texts = numbered_texts(4000);
  const auto store = store_of(texts);
  const auto part = [&](Split split, double fraction) {
    return Samples(store, {.kind = SampleKind::document,
                           .length = 20,
                           .split = split,
                           .held_out_fraction = fraction});
  };
  const Samples train = part(Split::train, 0.1), held_out = part(Split::held_out, 0.1);
  EXPECT_EQ(train.count() + held_out.count(), 4000);
  EXPECT_NEAR(static_cast<double>(held_out.count()), 400, 60);  // 3 sigma
  std::set<std::vector<int64_t>> seen;
  for (int64_t sample = 0; sample < held_out.count(); ++sample)
    seen.insert(fill(held_out, sample).inputs);
  for (int64_t sample = 0; sample < train.count(); ++sample)
    EXPECT_FALSE(seen.contains(fill(train, sample).inputs));

  // Fewer documents before it do not move a document to the other side.
  const std::vector<std::string> later(texts.begin() + 1000, texts.end());
  const Samples rest(store_of(later), {.kind = SampleKind::document,
                                       .length = 20,
                                       .split = Split::held_out,
                                       .held_out_fraction = 0.1});
  for (int64_t sample = 0; sample < rest.count(); ++sample)
    EXPECT_TRUE(seen.contains(fill(rest, sample).inputs));

  EXPECT_EQ(part(Split::train, 0).count(), 4000);
  EXPECT_THAT(complaint([&] { part(Split::held_out, 0); }),
              HasSubstr("no document in the held-out part"));
  EXPECT_THAT(complaint([&] { part(Split::train, 1.0); }),
              HasSubstr("held_out must be from 0 to less than 1, got 1"));
  // The split of these texts is part of the format: another program version must find the same.
  EXPECT_EQ(content_hash(""), 0xf52a15e9a9b5e89bu);
  EXPECT_EQ(content_hash("document 0"), 0xbf86f84b3d717ba2u);
}

TEST(Order, AnEpochTakesEverySampleOnceAndTheNextOneInAnotherOrder) {
  const auto first = shuffled(1000, 7, 0), second = shuffled(1000, 7, 1),
             other = shuffled(1000, 8, 0);
  auto sorted = first;
  std::sort(sorted.begin(), sorted.end());
  for (uint32_t index = 0; index < 1000; ++index) ASSERT_EQ(sorted[index], index);
  EXPECT_EQ(first, shuffled(1000, 7, 0));
  EXPECT_NE(first, second);
  EXPECT_NE(first, other);
  EXPECT_TRUE(shuffled(0, 1, 0).empty());
}

TEST(Order, EveryPermutationOfFourIsEquallyLikely) {
  std::map<std::vector<uint32_t>, int> counts;
  for (uint64_t seed = 0; seed < 4800; ++seed) ++counts[shuffled(4, seed, 3)];
  EXPECT_EQ(counts.size(), 24u);
  double chi_squared = 0;
  for (const auto& [order, count] : counts)
    chi_squared += (count - 200.0) * (count - 200.0) / 200.0;
  EXPECT_LT(chi_squared, 49.7);  // 23 degrees of freedom, 0.1 %
}

TEST(Order, TheRanksTogetherTakeTheSameSamplesWhateverTheirNumber) {
  const int64_t samples = 103, batch = 12;
  ShuffledOrder alone(samples, batch, 5);
  EXPECT_EQ(alone.steps_per_epoch(), 8);
  std::set<int64_t> seen;
  for (int64_t step = 0; step < 8; ++step) {
    const auto whole = alone.samples({2, step});
    seen.insert(whole.begin(), whole.end());
    for (const int64_t world : {2, 3, 4, 12}) {
      std::vector<int64_t> together;
      for (int64_t rank = 0; rank < world; ++rank) {
        const auto part = ShuffledOrder(samples, batch, 5, rank, world).samples({2, step});
        EXPECT_EQ(static_cast<int64_t>(part.size()), batch / world);
        together.insert(together.end(), part.begin(), part.end());
      }
      EXPECT_EQ(together, whole) << world;
    }
  }
  EXPECT_EQ(seen.size(), 96u);  // none twice
  EXPECT_EQ(alone.after({2, 6}), (Position{2, 7}));
  EXPECT_EQ(alone.after({2, 7}), (Position{3, 0}));
  EXPECT_THAT(complaint([] { ShuffledOrder(10, 12, 0); }),
              HasSubstr("10 samples, fewer than one batch of 12"));
  EXPECT_THAT(complaint([] { ShuffledOrder(100, 10, 0, 0, 3); }),
              HasSubstr("10 samples over 3 ranks"));
  EXPECT_THAT(complaint([&] {
                alone.samples({0, 8});
              }),
              HasSubstr("step 8 of an epoch that has 8"));
}

TEST(Order, EvaluationTakesAllInOrderAndFillsTheLastBatchUp) {
  std::vector<int64_t> seen;
  for (int64_t rank = 0; rank < 2; ++rank) {
    SequentialOrder order(9, 4, rank, 2);
    EXPECT_EQ(order.steps(), 3);
    for (std::optional<Position> at = Position{}; at; at = order.after(*at)) {
      for (const int64_t sample : order.samples(*at)) seen.push_back(sample);
    }
  }
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 4, 5, 8, -1, 2, 3, 6, 7, -1, -1}));
}

TEST(Position, ItGoesThroughJson) {
  const Position position{3, 141};
  EXPECT_EQ(position_from_json(nlohmann::json::parse(position_json(position).dump())), position);
  for (const char* wrong :
       {"{}", "[1]", "{\"epoch\": -1, \"step\": 0}", "{\"epoch\": \"x\", \"step\": 0}",
        "{\"epoch\": 0, \"step\": 1.5}", "{\"epoch\": 0, \"step\": 1e300}",
        "{\"epoch\": 0, \"step\": 18446744073709551615}",
        "{\"epoch\": 9007199254740993, \"step\": 0}"}) {
    SCOPED_TRACE(wrong);
    EXPECT_THAT(complaint([&] { position_from_json(nlohmann::json::parse(wrong)); }),
                HasSubstr("no position in the data"));
  }
  const Position last{int64_t{1} << 53, int64_t{1} << 53};
  EXPECT_EQ(position_from_json(position_json(last)), last);
}

class BatchesTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Samples> samples_ = std::make_shared<Samples>(
      store_of(numbered_texts(100)), SampleOptions{.kind = SampleKind::document, .length = 8});
  std::unique_ptr<Batches> loader(Position start, int64_t rank = 0, int64_t world = 1,
                                  int64_t ahead = 4) const {
    return std::make_unique<Batches>(
        samples_, std::make_unique<ShuffledOrder>(samples_->count(), 12, 1, rank, world), start,
        ahead);
  }
};

TEST_F(BatchesTest, AResumedLoaderDeliversWhatTheUninterruptedOneDoes) {
  const auto whole = loader({});
  std::vector<Batch> expected;
  // almost four epochs of 8
  for (int step = 0; step < 30; ++step) expected.push_back(*whole->next());
  for (const int stop : {0, 1, 7, 8, 20}) {
    const auto before = loader({});
    for (int step = 0; step < stop; ++step) before->next();
    const Position position = position_from_json(position_json(*before->position()));
    const auto after = loader(position, 0, 1, 1 + stop);
    for (int step = stop; step < 30; ++step) {
      const Batch batch = *after->next();
      const Batch& other = expected[static_cast<size_t>(step)];
      ASSERT_EQ(batch.position, other.position);
      ASSERT_EQ(batch.samples, other.samples);
      ASSERT_EQ(batch.inputs, other.inputs);
      ASSERT_EQ(batch.targets, other.targets);
      ASSERT_EQ(batch.lengths, other.lengths);
    }
  }
}

TEST_F(BatchesTest, ABatchHasItsSamplesRowByRow) {
  const Batch batch = make_batch(*samples_, {3, kNoSample, 99});
  EXPECT_EQ(batch.rows, 3);
  EXPECT_EQ(batch.inputs.size(), 24u);
  EXPECT_EQ(std::vector<int64_t>(batch.inputs.begin(), batch.inputs.begin() + 8),
            fill(*samples_, 3).inputs);
  EXPECT_EQ(std::vector<int64_t>(batch.inputs.begin() + 8, batch.inputs.begin() + 16),
            std::vector<int64_t>(8, kPadding));
  EXPECT_EQ(std::vector<int64_t>(batch.targets.begin() + 8, batch.targets.begin() + 16),
            std::vector<int64_t>(8, -100));
  EXPECT_EQ(std::vector<int64_t>(batch.targets.begin() + 16, batch.targets.end()),
            fill(*samples_, 99).targets);
  EXPECT_EQ(batch.lengths, (std::vector<int64_t>{8, 0, 8}));
  EXPECT_EQ(make_batch(*samples_, {}).rows, 0);  // an empty draw is a batch too
}

TEST_F(BatchesTest, RanksDeliverDifferentRowsOfOneBatch) {
  const auto whole = loader({}), first = loader({}, 0, 2), second = loader({}, 1, 2);
  for (int step = 0; step < 10; ++step) {
    auto together = first->next()->inputs;
    const auto rest = second->next()->inputs;
    together.insert(together.end(), rest.begin(), rest.end());
    ASSERT_EQ(together, whole->next()->inputs);
  }
}

TEST_F(BatchesTest, TheEndIsToldAndTimesAreCounted) {
  Batches batches(samples_, std::make_unique<SequentialOrder>(samples_->count(), 32));
  std::vector<int64_t> seen;
  while (const auto batch = batches.next()) {
    for (const int64_t sample : batch->samples) {
      if (sample != kNoSample) seen.push_back(sample);
    }
  }
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_FALSE(batches.next());
  EXPECT_FALSE(batches.position());
  EXPECT_EQ(batches.statistics().batches, 4);
  EXPECT_GT(batches.statistics().busy_ms, 0);
  EXPECT_GE(batches.statistics().waited_ms, 0);
}

// An order that takes its time, and one that fails.
class SlowOrder : public Order {
 public:
  std::vector<int64_t> samples(const Position& position) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (position.step == 2) user_error("the third step fails");
    return {position.step};
  }
  std::optional<Position> after(const Position& position) const override {
    return Position{0, position.step + 1};
  }
};

TEST_F(BatchesTest, WaitingIsCountedAndAFailureArrivesInItsTurn) {
  double waited_ms = 0;
  // A busy machine may hold this thread back until a batch is there, and then nothing was waited
  // for.
  for (int attempt = 0; attempt < 10 && waited_ms < 30; ++attempt) {
    Batches batches(samples_, std::make_unique<SlowOrder>());
    EXPECT_EQ(batches.next()->samples, std::vector<int64_t>{0});
    EXPECT_EQ(batches.next()->samples, std::vector<int64_t>{1});
    EXPECT_THAT(complaint([&] { batches.next(); }), HasSubstr("the third step fails"));
    EXPECT_GT(batches.statistics().busy_ms, 50);
    waited_ms = batches.statistics().waited_ms;
  }
  EXPECT_GT(waited_ms, 30);
}

TEST_F(BatchesTest, ALoaderThatIsGivenUpStopsItsThread) {
  for (int count = 0; count < 20; ++count) {
    const auto batches = loader({});
    if (count % 2) batches->next();
  }
  EXPECT_EQ(samples_.use_count(), 1);  // no thread holds on to the data
}

}  // namespace
}  // namespace veil::data
