#include "run/rank_keys.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "privacy/secret.h"

namespace veil {
namespace {

// Rank 0's numbers on every rank.
std::vector<double> numbers_of_rank_0(Communicator& lane, Device device,
                                      const std::vector<double>& mine) {
  Tensor numbers = empty_tensor({std::ssize(mine)}, at::kDouble, cpu_device());
  std::copy(mine.begin(), mine.end(), numbers.data_ptr<double>());
  numbers = numbers.to(device);
  lane.broadcast(numbers, 0)->wait();
  numbers = numbers.cpu();
  return {numbers.data_ptr<double>(), numbers.data_ptr<double>() + numbers.numel()};
}

// Equal for equal secrets, and says nothing of them.
RunNonce secret_check(const RunSecret& secret, const RunNonce& nonce) {
  privacy::SecretTag tag(secret, "the ranks' secret");
  tag.add(privacy::hex(nonce.data(), nonce.size()));
  return tag.value();
}

}  // namespace

RunKeys run_keys(const RunSecret& secret, const RunNonce& nonce) {
  return {.noise = derive_key(secret, nonce, KeyDomain::noise),
          .sampling = derive_key(secret, nonce, KeyDomain::sampling),
          .clip_count = derive_key(secret, nonce, KeyDomain::clip_count),
          .draws = derive_key(secret, nonce, KeyDomain::draws),
          .canary_coins = derive_key(secret, nonce, KeyDomain::canary_coins)};
}

std::optional<RunSecret> secret_of_this_rank(const std::string& secret_file) {
  std::error_code ignored;
  if (secret_file.empty() || !std::filesystem::exists(secret_file, ignored)) return {};
  return privacy::read_secret(secret_file);
}

SharedKeys share_keys(Communicator& lane, Device device, const std::optional<RunSecret>& secret,
                      const RunNonce& nonce, const RunKeys& keys) {
  Tensor have = empty_tensor({1}, at::kDouble, cpu_device()).fill_(secret ? 1.0 : 0.0).to(device);
  lane.all_reduce(have)->wait();
  SharedKeys shared;
  shared.sent = have.item<double>() != static_cast<double>(lane.size());
  const bool first = lane.rank() == 0;
  std::vector<double> numbers;
  if (shared.sent) {
    ChaChaKey* const parts[] = {&shared.keys.noise, &shared.keys.sampling, &shared.keys.clip_count,
                                &shared.keys.draws, &shared.keys.canary_coins};
    if (first) shared.keys = keys;
    for (const ChaChaKey* key : parts)
      numbers.insert(numbers.end(), std::begin(key->word), std::end(key->word));
    numbers = numbers_of_rank_0(lane, device, numbers);
    for (size_t i = 0; i < numbers.size(); ++i)
      parts[i / 8]->word[i % 8] = static_cast<uint32_t>(numbers[i]);
    return shared;
  }
  if (first) {
    const RunNonce check = secret_check(*secret, nonce);
    numbers.assign(nonce.begin(), nonce.end());
    numbers.insert(numbers.end(), check.begin(), check.end());
  }
  numbers.resize(2 * nonce.size(), -1);
  numbers = numbers_of_rank_0(lane, device, numbers);
  RunNonce common;
  std::transform(numbers.begin(), numbers.begin() + std::ssize(common), common.begin(),
                 [](double byte) { return static_cast<uint8_t>(byte); });
  const RunNonce mine = secret_check(*secret, common);
  shared.same_secret = std::equal(mine.begin(), mine.end(), numbers.begin() + std::ssize(common));
  shared.keys = run_keys(*secret, common);
  return shared;
}

}  // namespace veil
