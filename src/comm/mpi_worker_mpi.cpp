#include <sched.h>
#include <sys/prctl.h>

#include <chrono>
#include <memory>

#include "base/error.h"
#include "comm/mpi_worker.h"

namespace veil {
namespace {

MpiWorker* the_worker = nullptr;

}  // namespace

MpiWorker* mpi_worker() {
  return the_worker;
}
void set_mpi_worker(MpiWorker* worker) {
  the_worker = worker;
}

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(
      fmt::format("{}: {}", call, std::string(text, static_cast<size_t>(length))));
}

MpiWorker::MpiWorker() {
  std::promise<void> started;
  std::future<void> ready = started.get_future();
  thread_ =
      std::thread([this, started = std::move(started)]() mutable { run(std::move(started)); });
  try {
    ready.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

MpiWorker::~MpiWorker() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_.notify_all();
  thread_.join();
}

std::future<void> MpiWorker::post(int queue, std::function<MpiTask()> make) {
  Job job{std::move(make), {}, nullptr};
  std::future<void> done = job.done.get_future();
  {
    std::lock_guard lock(mutex_);
    VEIL_CHECK(!stopping_, "a collective was called after the world had ended");
    inbox_.emplace_back(queue, std::move(job));
  }
  posted_.notify_all();
  return done;
}

void MpiWorker::abort(int exit_code) {
  {
    std::lock_guard lock(mutex_);
    abort_code_ = exit_code ? exit_code : kExitFailed;
  }
  posted_.notify_all();
  // MPI_Abort on the worker ends the process meanwhile
  std::this_thread::sleep_for(std::chrono::seconds(1));
}

void MpiWorker::run(std::promise<void> started) {
  // Short sleeps between polls shall be short: the default slack of 50 us is longer than most
  // messages take.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  try {
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    VEIL_CHECK(provided >= MPI_THREAD_FUNNELED, "this MPI has no support for threads");
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  } catch (...) {
    started.set_exception(std::current_exception());
    return;
  }
  started.set_value();
  loop();
  MPI_Finalize();
}

void MpiWorker::loop() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (abort_code_) MPI_Abort(MPI_COMM_WORLD, abort_code_);
      for (auto& [queue, job] : inbox_) queues_[queue].push_back(std::move(job));
      inbox_.clear();
      if (queues_.empty()) {
        if (stopping_) return;
        // A small message may still lie in MPI's own buffers after its send has completed, and
        // moves only inside MPI calls. So an idle worker looks in now and then.
        const auto nap = std::chrono::milliseconds(idle_rounds_ < 100 ? 1 : 50);
        if (posted_.wait_for(lock, nap) == std::cv_status::timeout) {
          int flag = 0;
          MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
          ++idle_rounds_;
        } else {
          idle_rounds_ = 0;
        }
        continue;
      }
    }
    moved_ = false;
    if (!advance()) continue;
    if (moved_) {
      idle_rounds_ = 0;
    } else {
      rest();
    }
  }
}

bool MpiWorker::advance() {
  bool any = false;
  for (auto it = queues_.begin(); it != queues_.end();) {
    std::deque<Job>& queue = it->second;
    Job& job = queue.front();
    any = true;
    std::exception_ptr error;
    bool done = false;
    try {
      if (!job.task) job.task = std::make_unique<MpiTask>(job.make());
      done = job.task->resume();
      if (done) error = job.task->error();
    } catch (...) {
      done = true;
      error = std::current_exception();
    }
    if (done) {
      moved_ = true;
      // What the task captured ends before the caller hears of it.
      std::promise<void> told = std::move(job.done);
      queue.pop_front();
      if (error) {
        told.set_exception(error);
      } else {
        told.set_value();
      }
    }
    it = queue.empty() ? queues_.erase(it) : std::next(it);
  }
  return any;
}

// Ranks may outnumber cores: whoever waits leaves the core, at first for a turn, then for longer.
void MpiWorker::rest() {
  if (++idle_rounds_ < 32) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(idle_rounds_ < 256 ? 20 : 100));
  }
}

bool MpiWorker::completed(std::vector<MPI_Request>& requests) {
  if (requests.empty()) return true;
  int all = 0;
  check_mpi(
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all, MPI_STATUSES_IGNORE),
      "MPI_Testall");
  if (!all) return false;
  requests.clear();
  moved_ = true;
  return true;
}

}  // namespace veil
