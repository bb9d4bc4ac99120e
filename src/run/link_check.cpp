#include "run/link_check.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "base/process.h"

namespace veil {
namespace {

constexpr int kPlaceLetters = 128;

// Texts travel as fp32 numbers, one a letter, so that the check asks no more of a communicator than
// training does.
std::vector<LinkCheck::Place> gather_places(Communicator& communicator, Device device) {
  const std::string own =
      host_name() + "\n" + (device.is_cuda() ? fmt::format("cuda:{}", device.index()) : "cpu");
  Tensor letters = at::zeros({kPlaceLetters}, at::kFloat);
  for (size_t i = 0; i < std::min<size_t>(own.size(), kPlaceLetters); ++i) {
    letters.data_ptr<float>()[i] = static_cast<float>(static_cast<unsigned char>(own[i]));
  }
  const Tensor shard = letters.to(device);
  const Tensor whole = at::empty({kPlaceLetters * communicator.size()}, shard.options());
  communicator.all_gather(shard, whole)->wait();
  const Tensor all = whole.cpu();
  std::vector<LinkCheck::Place> places;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    std::string text;
    for (int i = 0; i < kPlaceLetters; ++i) {
      const float letter = all.data_ptr<float>()[rank * kPlaceLetters + i];
      if (letter > 0) text += static_cast<char>(letter);
    }
    const size_t end = text.find('\n');
    places.push_back(
        {rank, text.substr(0, end), end == std::string::npos ? "" : text.substr(end + 1)});
  }
  return places;
}

// Over ranks, by a gather: a communicator only adds.
double largest(Communicator& communicator, Device device, double value) {
  const Tensor shard = at::full({1}, value, at::TensorOptions().dtype(at::kDouble).device(device));
  const Tensor whole = at::empty({communicator.size()}, shard.options());
  communicator.all_gather(shard, whole)->wait();
  const Tensor all = whole.cpu();
  return *std::max_element(all.data_ptr<double>(), all.data_ptr<double>() + all.numel());
}

}  // namespace

LinkCheck check_link(Communicator& communicator, Device device, int64_t bytes, int repeats) {
  const int world = communicator.size();
  LinkCheck check{.backend = communicator.backend(), .ranks = world};
  const int64_t count = std::max<int64_t>(1, bytes / 4);
  check.bytes = count * 4;
  const float mine = static_cast<float>(communicator.rank() + 1);
  const float expected = static_cast<float>(world) * static_cast<float>(world + 1) / 2;
  const Tensor data = at::empty({count}, at::TensorOptions().dtype(at::kFloat).device(device));
  std::vector<double> times;
  bool correct = true;
  for (int i = 0; i <= repeats; ++i) {  // the first one opens connections and is not counted
    data.fill_(mine);
    synchronize(device);
    communicator.barrier();
    const double start = steady_ms();
    communicator.all_reduce(data)->wait();
    synchronize(device);
    const double slowest = largest(communicator, device, steady_ms() - start);
    if (i > 0) times.push_back(slowest);
    correct = correct && data.eq(expected).all().item<bool>();
  }
  check.correct = largest(communicator, device, correct ? 0 : 1) == 0;
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  check.ms = times[static_cast<size_t>(repeats / 2)];
  check.algorithm_gb_per_s = static_cast<double>(check.bytes) / (check.ms * 1e6);
  check.bus_gb_per_s = check.algorithm_gb_per_s * 2 * (world - 1) / world;
  check.places = gather_places(communicator, device);
  return check;
}

nlohmann::json link_json(const LinkCheck& check) {
  nlohmann::json places = nlohmann::json::array();
  for (const auto& place : check.places)
    places.push_back({{"rank", place.rank}, {"host", place.host}, {"device", place.device}});
  return {{"backend", check.backend},
          {"ranks", check.ranks},
          {"bytes", check.bytes},
          {"all_reduce_ms", check.ms},
          {"correct", check.correct},
          {"algorithm_gb_per_s", check.algorithm_gb_per_s},
          {"bus_gb_per_s", check.bus_gb_per_s},
          {"topology", places}};
}

}  // namespace veil
