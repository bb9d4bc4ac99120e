// The ranks and the device that a run takes.
#pragma once

#include "comm/launch.h"
#include "estimate/roofline.h"
#include "run/config.h"

namespace veil {

// The world that the run sees: simulated, or the real one.
int experiment_world(const RunConfig& config, const RankInfo& info);
// UserError if the ranks do not fit the machine's GPUs.
Device choose_device(const RunConfig& config, const RankInfo& info);
// Tells LibTorch which products may round to TF32 and whether a step must give the same bits each
// time. Before the first product of the process.
void set_arithmetic(const RunConfig& config);
// A communicator for each lane; none in a world of one.
Ranks make_ranks(const RunConfig& config, const RankInfo& info, Device device);
// What clip methods are priced by: rank 0's measured (or cached) roofline on every rank, so that
// all choose alike. Nothing if the configuration names no cache: then an assumed one is taken.
std::optional<Roofline> measured_roofline(const RunConfig& config, Device device,
                                          Communicator* lane);

}  // namespace veil
