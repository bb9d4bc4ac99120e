// How a private run's keys reach its ranks.
//
// Ranks talk over MPI, TCP or NCCL, and none of them encrypts. Where --secret-file can be read on
// every rank, each derives the keys by itself and only the nonce is sent, which is worth nothing
// without the secret. Otherwise rank 0 sends the keys.
#pragma once

#include <optional>

#include "comm/communicator.h"
#include "kernels/stream_key.h"

namespace veil {

struct RunKeys {
  ChaChaKey noise = {}, sampling = {}, clip_count = {}, draws = {}, canary_coins = {};
};
RunKeys run_keys(const RunSecret& secret, const RunNonce& nonce);

// The secret in this file; nothing if there is no such file on this machine. UserError if it
// cannot be used (privacy::read_secret).
std::optional<RunSecret> secret_of_this_rank(const std::string& secret_file);

struct SharedKeys {
  RunKeys keys;
  bool sent = false;        // they were: not every rank has the secret
  bool same_secret = true;  // this rank's is rank 0's; if not, the keys are worth nothing
};
// All ranks call it. `nonce` and `keys` are rank 0's; `secret` is this rank's own, if it has one.
SharedKeys share_keys(Communicator& lane, Device device, const std::optional<RunSecret>& secret,
                      const RunNonce& nonce, const RunKeys& keys);

}  // namespace veil
