// Who documents and images belong to, if the unit of privacy is a user. Names are read to tell
// users apart and to split the data; nothing here writes one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/sha256.h"

namespace veil::data {

// The owner of each item (a document or an image), in the items' order.
class Owners {
 public:
  // Of the next item. Two names are one user exactly if their bytes are equal.
  void add(std::string_view name);

  int64_t items() const { return static_cast<int64_t>(users_.size()); }
  // From 0, in the order in which the users first came.
  int64_t user(int64_t item) const { return users_[static_cast<size_t>(item)]; }
  // content_hash of the owner's name. It decides whether the owner is held out, so that adding or
  // removing a user moves no other one.
  uint64_t hash(int64_t item) const { return hashes_[static_cast<size_t>(user(item))]; }
  // Of all that the names decide: which items are one user's, and which users are held out.
  Sha256Digest digest() const;

 private:
  std::unordered_map<std::string, int64_t> numbers_;
  std::vector<int64_t> users_;    // [items]
  std::vector<uint64_t> hashes_;  // [users]
};

// The users who own at least one of some samples, numbered from 0, and the samples of each.
class Users {
 public:
  // items[s]: the item that sample s is made of.
  Users(const Owners& owners, const std::vector<int64_t>& items);

  int64_t count() const { return static_cast<int64_t>(starts_.size()) - 1; }
  int64_t samples() const { return static_cast<int64_t>(samples_.size()); }
  int64_t samples_of(int64_t user) const { return start(user + 1) - start(user); }  // 1 or more
  int64_t most() const;  // samples of the user who has most
  int64_t sample(int64_t user, int64_t place) const {
    return samples_[static_cast<size_t>(start(user) + place)];
  }

 private:
  int64_t start(int64_t user) const { return starts_[static_cast<size_t>(user)]; }
  std::vector<int64_t> starts_;   // [users + 1]
  std::vector<int64_t> samples_;  // user after user
};

}  // namespace veil::data
