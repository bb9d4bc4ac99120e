#include "comm/launch.h"

#include <cstdlib>

#include "base/error.h"

namespace veil {
namespace {

std::string text(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int number(const char* name, int fallback) {
  const std::string value = text(name);
  if (value.empty()) return fallback;
  char* end = nullptr;
  const long parsed = std::strtol(value.c_str(), &end, 10);
  if (*end != '\0' || parsed < 0 || parsed > 1 << 20)
    user_error("{}={}: a whole number from 0 was expected", name, value);
  return static_cast<int>(parsed);
}

RankInfo read_rank(Launcher launcher, const char* rank, const char* world, const char* local_rank,
                   const char* local_world) {
  RankInfo info;
  info.launcher = launcher;
  info.rank = number(rank, 0);
  info.world = number(world, 1);
  info.local_rank = number(local_rank, info.rank);
  info.local_world = number(local_world, info.world);
  if (info.world < 1 || info.rank >= info.world) {
    user_error("{}={} and {}={}: the rank must be below the number of ranks", rank, info.rank,
               world, info.world);
  }
  return info;
}

}  // namespace

RankInfo rank_info_from_environment() {
  RankInfo info;
  if (!text("OMPI_COMM_WORLD_SIZE").empty()) {
    info = read_rank(Launcher::mpirun, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    info.by_mpi = true;
    info.launcher_socket = text("VEIL_LAUNCHER_SOCKET");
  } else if (!text("WORLD_SIZE").empty() && !text("RANK").empty()) {
    info = read_rank(Launcher::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  } else if (!text("SLURM_PROCID").empty() && !text("SLURM_STEP_ID").empty()) {
    info = read_rank(Launcher::srun, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
                     "SLURM_NTASKS_PER_NODE");
    info.by_mpi =
        !text("PMIX_RANK").empty() || !text("PMI_RANK").empty() || !text("PMI_FD").empty();
  }
  info.master_address = text("MASTER_ADDR");
  // torchrun's own agent listens at MASTER_PORT, so ranks meet at the port after it.
  info.master_port =
      number("MASTER_PORT", 29500) + (text("TORCHELASTIC_USE_AGENT_STORE") == "True" ? 1 : 0);
  return info;
}

}  // namespace veil
