// The ranks and the device that a run takes.
#pragma once

#include "comm/launch.h"
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
// Rank 0's method on every rank: what it was chosen by need not be the same on their machines.
privacy::ClipMethod method_of_rank_0(const privacy::ClipMethod& mine, Device device,
                                     Communicator* lane);

}  // namespace veil
