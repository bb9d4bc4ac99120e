#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/launch.h"

namespace veil {

struct World::State {
  Membership membership;
  std::unique_ptr<RankLink> link;
  std::terminate_handler previous_terminate = nullptr;
  int exceptions = std::uncaught_exceptions();
  std::atomic<bool> failing{false};
};

namespace {

// There is one set of ranks a process, as there is one MPI.
World* the_world = nullptr;
const Membership* the_membership = nullptr;

// An exception that leaves a thread ends this rank; the others must hear of it.
[[noreturn]] void fail_on_terminate() {
  std::string reason = "terminated";
  int code = kExitFailed;
  if (const std::exception_ptr error = std::current_exception()) {
    try {
      std::rethrow_exception(error);
    } catch (const UserError& user) {
      reason = user.what();
      code = user.exit_code();
    } catch (const std::exception& other) {
      reason = other.what();
    } catch (...) {
      reason = "an exception of unknown type";
    }
  }
  the_world->fail(reason, code);
}

}  // namespace

const Membership* current_membership() {
  return the_membership;
}

std::string text_of_rank_0(const std::string& mine) {
  if (!the_membership || !the_membership->link) return mine;
  uint64_t bytes = mine.size();
  the_membership->link->share(&bytes, sizeof bytes);
  std::string text = mine;
  text.resize(bytes);
  if (bytes > 0) the_membership->link->share(text.data(), bytes);
  return text;
}

void fail_current_world(const std::string& reason, int exit_code) {
  if (the_world) the_world->fail(reason, exit_code);
  std::fputs(failure_line(0, 1, reason).c_str(), stderr);
  _exit(exit_code);
}

void fail_overdue_world(const std::string& reason, bool speaks) {
  if (the_world) the_world->fail(reason, kExitFailed, speaks);
  fail_current_world(reason, kExitFailed);
}

std::string failure_line(int rank, int world, const std::string& reason) {
  return world > 1 ? fmt::format("veil: rank {}: {}\n", rank, reason)
                   : fmt::format("veil: {}\n", reason);
}

World::World(const RankInfo& info) : state_(std::make_unique<State>()) {
  VEIL_CHECK(!the_world, "a second World in one process");
  if (info.by_mpi && built_with_mpi()) {
    state_->link = make_mpi_link(info);
  } else if (info.world > 1) {
    state_->link = make_tcp_link(info);
  }
  state_->membership = {info, state_->link.get()};
  the_world = this;
  the_membership = &state_->membership;
  state_->previous_terminate = std::set_terminate(fail_on_terminate);
}

World::~World() {
  // Unwinding past the World means that this rank gives up while the others wait for it.
  if (state_->link && std::uncaught_exceptions() > state_->exceptions)
    fail("ended by an exception", kExitFailed);
  std::set_terminate(state_->previous_terminate);
  the_membership = nullptr;
  the_world = nullptr;
}

const RankInfo& World::info() const {
  return state_->membership.info;
}

void World::fail(const std::string& reason, int exit_code, bool aloud) {
  if (state_->failing.exchange(true)) {
    while (true) pause();  // another thread is ending the process
  }
  const int code = exit_code ? exit_code : kExitFailed;
  std::fflush(stdout);
  if (state_->link) {
    state_->link->fail(reason, code, aloud);
  } else {
    std::fputs(failure_line(0, 1, reason).c_str(), stderr);
  }
  std::fflush(stderr);
  _exit(code);
}

}  // namespace veil
