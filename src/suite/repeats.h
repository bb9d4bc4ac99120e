// Several measurements of one experiment as one record.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace veil {

// The first record with the times of all, their mean and deviation, and means of everything else that is a time; `repeats` holds each one's own mean. One that
// did not end well gives the outcome: an error before an out-of-memory.
nlohmann::ordered_json merged_repeats(const std::vector<nlohmann::ordered_json>& records);

}  // namespace veil
