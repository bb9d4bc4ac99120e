// What ranks do together. One interface, three backends: NCCL (GPUs, one rank each), host (CPU
// ranks, and ranks that share a GPU; over MPI or TCP, with the same bits), simulated (rank r of W
// in one process, without peers).
//
// The contract of every collective:
//   Start     it begins after all work issued so far on the calling thread's current stream
//             (on CPU: at once).
//   Return    the call returns without waiting for the result, except where a backend cannot.
//   Finish    Pending::wait() makes what the calling thread issues next see the result.
//   Order     every rank makes the same calls in the same order on one communicator, and calls
//             finish in that order. Two communicators are independent.
//   Lifetime  the tensors stay allocated, the inputs unchanged and the outputs unread, until
//             wait() has returned.
//   Sums      fp32 and fp64 add in their own type; bf16 accumulates in fp32 and rounds once. On
//             CPU terms add in rank order, so a sum has the same bits however the layout was cut;
//             NCCL chooses its own order.
#pragma once

#include <memory>
#include <string>

#include "tensor/device.h"
#include "tensor/stream.h"

namespace veil {

// A collective in flight. Destroying it without wait() is an error of the caller that the backend
// may not detect.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void wait() = 0;
  // When the collective began and ended on its own lane; timed markers, valid after wait(), empty
  // unless timing was requested.
  virtual Marker began() const { return {}; }
  virtual Marker ended() const { return {}; }
  // What the call would have taken on the simulated link; 0 if the peers are real.
  virtual double modelled_ms() const { return 0; }
};
using PendingPtr = std::shared_ptr<Pending>;

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::string backend() const = 0;  // "nccl", "mpi", "tcp", "simulated"
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Whether a collective may be captured in a graph; why not otherwise ("" when it may).
  virtual std::string why_not_capturable() const = 0;
  virtual void set_timing(bool on) = 0;

  // whole[r * n, (r + 1) * n) = shard of rank r, n = shard.numel(). `shard` may be that very slice
  // of `whole`.
  virtual PendingPtr all_gather(const Tensor& shard, const Tensor& whole) = 0;
  // shard = sum over ranks of their whole[rank * n, (rank + 1) * n). `shard` may be that very slice
  // of `whole`; the rest of `whole` is then undefined.
  virtual PendingPtr reduce_scatter(const Tensor& whole, const Tensor& shard) = 0;
  // Rows [m, size n]; received [size m, n], every rank's rows, in order of the ranks, each with the
  // columns [rank n, (rank + 1) n) alone.
  virtual PendingPtr all_to_all(const Tensor& rows, const Tensor& received) = 0;
  // data = sum over ranks, in place.
  virtual PendingPtr all_reduce(const Tensor& data) = 0;
  virtual PendingPtr broadcast(const Tensor& data, int root) = 0;
  // Returns when every rank has called it. Blocks the host.
  virtual void barrier() = 0;
};

// How communication of a simulated world is priced, and where its peers' values come from.
struct SimulatedLink {
  double bandwidth_bytes_per_s = 200e9;
  double latency_s = 10e-6;
};
// Peers' shards are the own shard rotated, a different offset for each: zeros would flatter the
// clocks. A sum is the own contribution; of rows, peers send the own ones' columns of this rank,
// rotated likewise.
std::unique_ptr<Communicator> make_simulated_communicator(int rank, int size, Device device,
                                                          SimulatedLink link = {});
// A world of one that needs no library: every sum is the own contribution.
std::unique_ptr<Communicator> make_lone_communicator(const std::string& backend, Device device);

// What this build has.
bool built_with_mpi();
bool built_with_nccl();
// The library that this process has loaded: "Open MPI v4.1.4", "2.28.9"; "" in a build without it.
std::string mpi_library_version();
std::string nccl_library_version();
// A communicator outlives the graphs that captured its calls: NCCL waits for them in its
// destructor. One communicator per lane, made in the same order on every rank of the World; `lane`
// tells apart communicators of the same ranks. Throw MissingBackend if the build lacks the
// backend.
std::unique_ptr<Communicator> make_host_communicator(int lane, Device device);
std::unique_ptr<Communicator> make_nccl_communicator(int lane, Device device);

}  // namespace veil
