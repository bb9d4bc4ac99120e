#define OMPI_SKIP_MPICXX 1  // the C interface only
#include <mpi.h>
#include <sched.h>
#include <sys/prctl.h>

#include <chrono>
#include <set>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/wire.h"

namespace veil {
namespace {

constexpr int kMessageTag = 1;

// Throws std::runtime_error with MPI's text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(
      fmt::format("{}: {}", call, std::string(text, static_cast<size_t>(length))));
}

class MpiTransfers : public Transfers {
 public:
  explicit MpiTransfers(MPI_Comm comm) : comm_(comm) {}

  void send(const void* data, size_t bytes, int to) override {
    add(to);
    check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, kMessageTag, comm_,
                        &requests_.back()),
              "MPI_Isend");
  }

  void receive(void* data, size_t bytes, int from) override {
    add(from);
    check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, kMessageTag, comm_,
                        &requests_.back()),
              "MPI_Irecv");
  }

  bool completed() override {
    if (requests_.empty()) return true;
    int all = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all,
                          MPI_STATUSES_IGNORE),
              "MPI_Testall");
    if (!all) return false;
    requests_.clear();
    peers_.clear();
    return true;
  }

  std::vector<int> waiting_for() override {
    std::set<int> ranks;
    for (size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;  // asked without completing it
      check_mpi(MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE),
                "MPI_Request_get_status");
      if (!done) ranks.insert(peers_[i]);
    }
    return {ranks.begin(), ranks.end()};
  }

 private:
  void add(int peer) {
    requests_.emplace_back();
    peers_.push_back(peer);
  }

  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // of the requests
};

// An MPI communicator of its own.
class MpiChannel : public Channel {
 public:
  explicit MpiChannel(MPI_Comm comm) : comm_(comm) {}
  ~MpiChannel() override { MPI_Comm_free(&comm_); }
  std::unique_ptr<Transfers> transfers() override { return std::make_unique<MpiTransfers>(comm_); }

 private:
  MPI_Comm comm_;
};

class MpiWire : public Wire {
 public:
  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void begin() override {
    // Short sleeps between polls shall be short: the default slack of 50 us is longer than most
    // messages take.
    prctl(PR_SET_TIMERSLACK, 1000UL);
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    VEIL_CHECK(provided >= MPI_THREAD_FUNNELED, "this MPI has no support for threads");
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  }

  RankTask open(std::unique_ptr<Channel>& channel) override {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Request request{};
    check_mpi(MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request), "MPI_Comm_idup");
    for (int done = 0; !done;) {
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (!done) co_await kTurn;
    }
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    channel = std::make_unique<MpiChannel>(comm);
  }

  // A small message may still lie in MPI's own buffers after its send has completed, and moves only
  // inside MPI calls.
  void look_in() override {
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  }

  // Ranks may outnumber cores: whoever waits leaves the core, at first for a turn, then for longer.
  void rest(int rounds) override {
    if (rounds < 32) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(rounds < 256 ? 20 : 100));
    }
  }

  void abort(int exit_code) override { MPI_Abort(MPI_COMM_WORLD, exit_code); }
  void end() override { MPI_Finalize(); }

 private:
  int rank_ = 0, size_ = 1;
};

}  // namespace

bool built_with_mpi() {
  return true;
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  // allowed before MPI_Init
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown";
  const std::string version(text);
  return version.substr(0, version.find_first_of(",\n"));
}

std::unique_ptr<Wire> make_mpi_wire() {
  return std::make_unique<MpiWire>();
}

}  // namespace veil
