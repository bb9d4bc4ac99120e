#include "comm/launch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "base/error.h"
#include "comm/job_token.h"

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

// The first of a variable's names that is set; the last one's if none is.
const char* first_set(const char* name, const char* or_else) {
  return text(name).empty() ? or_else : name;
}

// How many ranks are on this node, from "4(x2),3" and the node's number; 0 if that says nothing.
int tasks_on_node(const std::string& tasks_per_node, int node) {
  std::istringstream parts(tasks_per_node);
  for (std::string part; std::getline(parts, part, ',');) {
    int tasks = 0, times = 1;
    if (std::sscanf(part.c_str(), "%d(x%d)", &tasks, &times) < 1) return 0;
    if (node < times) return tasks;
    node -= times;
  }
  return 0;
}

// "node[03-07,9]" is node03, "rack[1-2]n[5-6]" is rack1n5.
std::string first_host(const std::string& hosts) {
  std::string host;
  bool inside = false, taken = false;  // of brackets, and whether their first number has ended
  for (const char c : hosts) {
    if (c == '[') {
      inside = true;
      taken = false;
    } else if (c == ']') {
      inside = false;
    } else if (inside) {
      taken = taken || c == '-' || c == ',';
      if (!taken) host += c;
    } else {
      if (c == ',') break;
      host += c;
    }
  }
  return host;
}

// A port for the ranks of one job, the same on every rank and below those that the kernel gives
// out. Two jobs on one machine rarely share one; then MASTER_PORT parts them.
int port_of_job(const std::string& job) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return 20000 + static_cast<int>(hash % 12000);
}

RankInfo rank_of_mpirun() {
  RankInfo info = read_rank(Launcher::mpirun, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  info.by_mpi = true;
  info.launcher_socket = text("VEIL_LAUNCHER_SOCKET");
  // For a build without MPI.
  if (info.local_world == info.world) info.master_address = "127.0.0.1";
  info.master_port = port_of_job(text("PMIX_NAMESPACE"));
  return info;
}

RankInfo rank_of_torchrun() {
  RankInfo info =
      read_rank(Launcher::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  info.agent_store = text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  info.attempt = number("TORCHELASTIC_RESTART_COUNT", 0);
  info.master_port = 29500;
  info.listening = number("VEIL_LISTENING_SOCKET", -1);
  return info;
}

RankInfo rank_of_srun() {
  RankInfo info =
      read_rank(Launcher::srun, "SLURM_PROCID", first_set("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
                "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE");
  if (const int tasks =
          tasks_on_node(text(first_set("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")),
                        number("SLURM_NODEID", 0)))
    info.local_world = tasks;
  // Open MPI joins by PMIx alone from version 5 on; by the older PMI it may fail, and TCP does not.
  info.by_mpi = !text("PMIX_RANK").empty();
  info.master_address = info.local_world == info.world
                            ? "127.0.0.1"
                            : first_host(text(first_set("SLURM_STEP_NODELIST", "SLURM_NODELIST")));
  info.master_port = port_of_job(text("SLURM_JOB_ID") + "." + text("SLURM_STEP_ID"));
  return info;
}

// Whether srun started this process as a rank. A batch script is no step, and the shell of an
// interactive allocation is a step with a number from the end of the range.
bool started_by_srun() {
  const std::string step = text("SLURM_STEP_ID");
  return !text("SLURM_PROCID").empty() && !step.empty() &&
         std::strtoull(step.c_str(), nullptr, 10) < 0xfffffff0;
}

// What makes BLAS, OpenMP, oneDNN, LibTorch, CUDA's libraries or the C library compute with other
// code, in another order or on another number of threads; and what makes them other libraries.
bool changes_arithmetic(const std::string& entry) {
  for (const char* prefix : {"ATEN_",
                             "BLIS_",
                             "CUBLAS_",
                             "CUBLASLT_",
                             "CUDNN_",
                             "DNNL_",
                             "GLIBC_TUNABLES=",
                             "GOMP_",
                             "GOTO_",
                             "GOTOBLAS_",
                             "JSIMD_",
                             "KMP_",
                             "LD_LIBRARY_PATH=",
                             "LD_PRELOAD=",
                             "MKL_",
                             "MKLDNN_",
                             "NVIDIA_TF32_OVERRIDE=",
                             "OMP_",
                             "ONEDNN_",
                             "OPENBLAS_",
                             "TORCH_ALLOW_TF32",
                             "TORCH_BLAS_",
                             "TORCH_LINALG_",
                             "VECLIB_"}) {
    if (entry.starts_with(prefix)) return true;
  }
  return false;
}

// Next to Veil's cache in the home folder, which machines of a cluster usually share.
std::string user_key_file() {
  if (const std::string cache = text("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/veil/job_key";
  const std::string home = text("HOME");
  return home.empty() ? "" : home + "/.cache/veil/job_key";
}

std::vector<std::string> arithmetic_environment() {
  std::vector<std::string> found;
  for (char** entry = environ; entry && *entry; ++entry) {
    if (changes_arithmetic(*entry)) found.emplace_back(*entry);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

RankInfo rank_info_from_environment() {
  RankInfo info;
  if (!text("OMPI_COMM_WORLD_SIZE").empty()) {
    info = rank_of_mpirun();
  } else if (!text("WORLD_SIZE").empty() && !text("RANK").empty()) {
    info = rank_of_torchrun();
  } else if (started_by_srun()) {
    info = rank_of_srun();
  }
  if (!text("MASTER_ADDR").empty()) info.master_address = text("MASTER_ADDR");
  info.master_port = number("MASTER_PORT", info.master_port);
  info.arithmetic = arithmetic_environment();
  info.job_token = text("VEIL_JOB_TOKEN");
  if (!info.job_token.empty() && info.job_token.size() < kShortestToken)
    user_error("VEIL_JOB_TOKEN has {} characters, at least {} are needed: `openssl rand -hex 16`",
               info.job_token.size(), kShortestToken);
  info.user_key_file = user_key_file();
  return info;
}

}  // namespace veil
