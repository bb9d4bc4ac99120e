// Several measurements of one experiment as one record.
#pragma once

#include <vector>

#include "record/record.h"

namespace veil {

// The first record with the times of all, their mean and deviation, and means of everything else
// that is a time; `repeats` holds the mean of each measurement. One that did not end well decides
// the outcome: an error before an out-of-memory.
Record merged_repeats(const std::vector<Record>& records);

}  // namespace veil
