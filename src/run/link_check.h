// A real all-reduce over all ranks: does the link work, how fast is it, and who sits where.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/launch.h"

namespace veil {

struct LinkCheck {
  std::string backend;
  int ranks = 1;
  int64_t bytes = 0;  // of each rank's tensor
  double ms = 0;      // the median of several, each the slowest rank's
  bool correct = false;
  // Algorithm bandwidth is bytes over time; bus bandwidth is what each rank's link carries, 2 (W -
  // 1) / W of it, which does not depend on W and compares with the hardware's figure.
  double algorithm_gb_per_s = 0, bus_gb_per_s = 0;
  struct Place {
    int rank = 0;
    std::string host;
    std::string device;
  };
  std::vector<Place> places = {};
};

// Every rank calls it; every rank gets the same answer.
LinkCheck check_link(Communicator& communicator, Device device, int64_t bytes, int repeats = 7);
nlohmann::json link_json(const LinkCheck& check);

}  // namespace veil
