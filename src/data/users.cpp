#include "data/users.h"

#include <algorithm>

#include "base/error.h"
#include "data/content_hash.h"

namespace veil::data {

void Owners::add(std::string_view name) {
  const auto [place, is_new] =
      numbers_.emplace(std::string(name), static_cast<int64_t>(hashes_.size()));
  if (is_new) hashes_.push_back(content_hash(fmt::format("user {}", name)));
  users_.push_back(place->second);
}

Sha256Digest Owners::digest() const {
  Sha256 all;
  for (int64_t item = 0; item < items(); ++item) {
    all.add(static_cast<uint64_t>(user(item)));
    all.add(hash(item));
  }
  return all.digest();
}

Users::Users(const Owners& owners, const std::vector<int64_t>& items) {
  // by the owners' numbers: how many samples, and then the number among those who have any
  std::vector<int64_t> counts(static_cast<size_t>(owners.items()));
  for (const int64_t item : items) {
    VEIL_CHECK(item >= 0 && item < owners.items(), "item {} of {}", item, owners.items());
    ++counts[static_cast<size_t>(owners.user(item))];
  }
  starts_.push_back(0);
  std::vector<int64_t> next;  // place of a user's next sample
  for (int64_t& count : counts) {
    if (count == 0) continue;
    next.push_back(starts_.back());
    starts_.push_back(starts_.back() + count);
    count = static_cast<int64_t>(next.size()) - 1;
  }
  samples_.resize(items.size());
  for (size_t sample = 0; sample < items.size(); ++sample) {
    const auto user = static_cast<size_t>(counts[static_cast<size_t>(owners.user(items[sample]))]);
    samples_[static_cast<size_t>(next[user]++)] = static_cast<int64_t>(sample);
  }
}

int64_t Users::most() const {
  int64_t largest = 0;
  for (int64_t user = 0; user < count(); ++user) largest = std::max(largest, samples_of(user));
  return largest;
}

}  // namespace veil::data
