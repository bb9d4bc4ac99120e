// Threads that meet where the tests of single parts leave them apart: an unlocked access is a race
// only if nothing else orders it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/wait_watch.h"
#include "data/batches.h"

namespace veil {
namespace {

TEST(Overlap, ALoaderIsAskedWhileItWorks) {
  const auto tokenizer = data::byte_tokenizer();
  data::StoreInMemory memory({.tokenizer = tokenizer->identity()});
  for (int index = 0; index < 200; ++index)
    memory.append(
        {.tokens = tokenizer->encode("document " + std::to_string(index), false), .label = {}});
  const auto samples = std::make_shared<data::Samples>(
      std::make_shared<data::TokenStore>(memory.finish()),
      data::SampleOptions{.kind = data::SampleKind::document, .length = 8});
  data::Batches batches(samples, std::make_unique<data::SequentialOrder>(samples->count(), 1));
  std::atomic<bool> ended = false;
  std::thread asks([&] {
    while (!ended) {
      EXPECT_GE(batches.statistics().busy_ms, 0);
      batches.position();
    }
  });
  int64_t taken = 0;
  while (batches.next()) ++taken;
  ended = true;
  asks.join();
  EXPECT_EQ(taken, samples->count());
}

// Longer than the watch's glance of 200 ms, and waits that begin and end around it.
TEST(Overlap, WaitsBeginAndEndWhileTheWatchLooks) {
  WaitWatch watch({600}, 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  int waits = 0;
  while (std::chrono::steady_clock::now() < end) {
    watch.wait_for("its data loader", [] { std::this_thread::yield(); });
    ++waits;
  }
  EXPECT_GT(waits, 0);
}

}  // namespace
}  // namespace veil
