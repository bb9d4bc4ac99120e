// A world of one that needs no library: every sum is the own contribution.
#pragma once

#include "comm/communicator.h"

namespace veil {

std::unique_ptr<Communicator> make_lone_communicator(const std::string& backend, Device device);

}  // namespace veil
