// How ranks send each other bytes: by MPI, or over TCP connections if the launcher offers no
// MPI. Collectives (host_lane.h) are built on it once, so their results do not depend on the wire.
//
// Order: what one rank sends to another on one channel arrives in the order of the sends, and each
// receive names exactly the bytes of the send that it meets. Channels are independent.
// Threads: the worker's thread makes every call, unless a comment says otherwise.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm/rank_task.h"

namespace veil {

// Messages under way on one channel. The memory stays with the caller until they are complete.
class Transfers {
 public:
  virtual ~Transfers() = default;
  virtual void send(const void* data, size_t bytes, int to) = 0;
  virtual void receive(void* data, size_t bytes, int from) = 0;
  // Whether all of them are complete; then there are none any more.
  virtual bool completed() = 0;
  // The ranks of those that are not, ascending, each once.
  virtual std::vector<int> waiting_for() = 0;
};

class Channel {
 public:
  virtual ~Channel() = default;
  virtual std::unique_ptr<Transfers> transfers() = 0;  // none yet
};

class Wire {
 public:
  virtual ~Wire() = default;
  virtual std::string name() const = 0;  // "mpi", "tcp"; any thread
  // Joins the other ranks; the worker's first call. `rank` and `size` are known after it, to any
  // thread.
  virtual void begin() = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // A new channel between all ranks, who open them in the same order.
  virtual RankTask open(std::unique_ptr<Channel>& channel) = 0;
  // Called now and then while no task waits.
  virtual void look_in() {}
  // Called when no task can proceed, for the `rounds`th time in a row: leaves the core for a while.
  virtual void rest(int rounds) = 0;
  virtual void wake() {}  // ends a rest(); any thread
  // Ends every rank and this process; returns if it has no way to.
  virtual void abort(int) {}
  // Waits for every rank; the worker's last call.
  virtual void end() {}
};

// Throws MissingBackend in a build without MPI.
std::unique_ptr<Wire> make_mpi_wire();

// Where the ranks of a world listen for each other's connections.
struct TcpPlaces {
  struct Place {
    std::string address;
    int port = 0;
  };
  int rank = 0;
  int listening = -1;        // this rank's socket, which the wire owns
  std::vector<Place> ranks;  // of every rank
  std::string token;         // the world's; connections of anyone else are dropped
};
std::unique_ptr<Wire> make_tcp_wire(TcpPlaces places);

}  // namespace veil
