#include "profile/ledger_book.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace veil {

int64_t CategoryBytes::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

namespace ledger {

void Book::allocated(const void* key, int64_t bytes, Category category) {
  const std::lock_guard lock(mutex_);
  ++version_;
  entries_[key] = {bytes, category};
  current_[category] += bytes;
  total_ += bytes;
  for (Peak& peak : peaks_) {
    if (total_ > peak.total) {
      peak.total = total_;
      peak.at_total = current_;
    }
    peak.of_each[category] = std::max(peak.of_each[category], current_[category]);
  }
}

int64_t Book::freed(const void* key) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return -1;
  const Entry entry = found->second;
  ++version_;
  entries_.erase(found);
  current_[entry.category] -= entry.bytes;
  total_ -= entry.bytes;
  return entry.bytes;
}

bool Book::retag(const void* key, Category category, std::optional<Category> from) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  if (from && found->second.category != *from) return true;
  current_[found->second.category] -= found->second.bytes;
  current_[category] += found->second.bytes;
  found->second.category = category;
  for (Peak& peak : peaks_) peak.of_each[category] = std::max(peak.of_each[category], current_[category]);
  return true;
}

CategoryBytes Book::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

CategoryBytes Book::peak(Window window) const {
  const std::lock_guard lock(mutex_);
  return peaks_[static_cast<size_t>(window)].at_total;
}

CategoryBytes Book::peak_of_each(Window window) const {
  const std::lock_guard lock(mutex_);
  return peaks_[static_cast<size_t>(window)].of_each;
}

void Book::restart(Peak& peak) {
  peak = {total_, current_, current_};
}

void Book::reset_peak(Window window) {
  const std::lock_guard lock(mutex_);
  restart(peaks_[static_cast<size_t>(window)]);
}

RowBytes Book::take_row() {
  const std::lock_guard lock(mutex_);
  Peak& row = peaks_[static_cast<size_t>(Window::row)];
  const RowBytes taken{current_, row.at_total};
  restart(row);
  return taken;
}

void Book::note_peak(const CategoryBytes& bytes) {
  const int64_t total = bytes.total();
  const std::lock_guard lock(mutex_);
  for (Peak& peak : peaks_) {
    if (total > peak.total) {
      peak.total = total;
      peak.at_total = bytes;
    }
    for (int i = 0; i < kCategories; ++i) {
      const auto category = static_cast<Category>(i);
      peak.of_each[category] = std::max(peak.of_each[category], bytes[category]);
    }
  }
}

Book::Reading Book::reading() const {
  const std::lock_guard lock(mutex_);
  return {total_, version_};
}

Book& book(Space space) {
  // Never destroyed: tensors of static lifetime are freed after everything else.
  static auto* books = new std::array<Book, kSpaces>;
  return (*books)[static_cast<size_t>(space)];
}

void disagree(Space space, int64_t booked, int64_t counted, const std::string& where) {
  throw std::logic_error(
      fmt::format("memory ledger, {} memory, {}: {} bytes are booked, the allocator counts {} ({:+})",
                  space_name(space), where, booked, counted, booked - counted));
}

}  // namespace ledger

}  // namespace veil
