#include <unistd.h>

#include <cstdio>

#include "base/error.h"
#include "comm/launcher_line.h"
#include "comm/mpi_worker.h"
#include "comm/rank_link.h"

namespace veil {
namespace {

MpiTask share_task(MpiWorker& worker, void* data, size_t bytes) {
  std::vector<MPI_Request> requests(1);
  check_mpi(MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD, requests.data()), "MPI_Ibcast");
  while (!worker.completed(requests)) co_await kTurn;
}

class MpiLink : public RankLink {
 public:
  explicit MpiLink(const RankInfo& info) : info_(info) {
    if (!info.launcher_socket.empty()) launcher_ = std::make_unique<LauncherLine>(info.launcher_socket, info.rank);
    try {
      worker_ = std::make_unique<MpiWorker>();
    } catch (const std::exception& error) {
      if (!launcher_) throw;
      launcher_->fail(error.what(), kExitFailed);
      _exit(kExitFailed);
    }
    VEIL_CHECK(worker_->rank() == info.rank && worker_->size() == info.world,
               "the launcher says rank {} of {}, MPI says rank {} of {}", info.rank, info.world, worker_->rank(),
               worker_->size());
    queue_ = worker_->new_queue();
    set_mpi_worker(worker_.get());
  }

  ~MpiLink() override {
    set_mpi_worker(nullptr);
    worker_.reset();  // waits for every rank
    if (launcher_) launcher_->goodbye();
  }

  void share(void* data, size_t bytes) override {
    worker_->post(queue_, [this, data, bytes] { return share_task(*worker_, data, bytes); }).get();
  }

  void fail(const std::string& reason, int exit_code) override {
    if (launcher_) {
      launcher_->fail(reason, exit_code);  // it prints the first failure it hears of, and no other
    } else {
      std::fputs(failure_line(info_.rank, info_.world, reason).c_str(), stderr);
      std::fflush(stderr);
    }
    worker_->abort(exit_code);
  }

 private:
  RankInfo info_;
  std::unique_ptr<LauncherLine> launcher_;
  std::unique_ptr<MpiWorker> worker_;
  int queue_ = 0;
};

}  // namespace

std::unique_ptr<RankLink> make_mpi_link(const RankInfo& info) {
  return std::make_unique<MpiLink>(info);
}

}  // namespace veil
