// veil doctor: what this build and this machine have, what is missing and how to install it.
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "base/build_info.h"
#include "base/files.h"
#include "base/outputs.h"
#include "base/quantity.h"
#include "base/units.h"
#include "cli/bug_report.h"
#include "cli/calibrate_machine.h"
#include "cli/command.h"
#include "cli/run_options.h"
#include "data/byte_source.h"
#include "data/http.h"
#include "data/image_file.h"
#include "run/link_check.h"
#include "run/machine.h"

namespace veil {
namespace {

enum class Need { cuda, gpu, nccl, mpi, unicode, curl, images, gnuplot };
const NameTable<Need>& names(Need) {
  static const NameTable<Need> table = {{Need::cuda, "cuda"},
                                        {Need::gpu, "gpu", {"gpus"}},
                                        {Need::nccl, "nccl"},
                                        {Need::mpi, "mpi"},
                                        {Need::unicode, "unicode", {"pcre2", "utf8proc"}},
                                        {Need::curl, "curl"},
                                        {Need::images, "images", {"png", "jpeg"}},
                                        {Need::gnuplot, "gnuplot"}};
  return table;
}

enum class Backend { automatic, mpi, nccl };
const NameTable<Backend>& names(Backend) {
  static const NameTable<Backend> table = {
      {Backend::automatic, "auto"}, {Backend::mpi, "mpi"}, {Backend::nccl, "nccl"}};
  return table;
}

struct DoctorOptions {
  std::string json, report;
  bool overwrite = false, calibrate = false;
  std::vector<Need> require;
  std::optional<int> ranks;
  double collective_timeout_s = kCollectiveTimeoutSeconds;
  int64_t mebibytes = 64;
  Backend backend = Backend::automatic;
};

std::string find_program(const std::string& name) {
  const char* const path = std::getenv("PATH");
  for (const std::string& folder : split(path ? path : "/usr/bin:/bin", ':')) {
    const std::string candidate = folder + "/" + name;
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

struct Absence {
  std::string what;    // one phrase
  std::string remedy;  // how to install it
};

struct Health {
  Machine machine;
  std::string mpirun, gnuplot;
};

// Why a need is not met; nothing if it is.
std::optional<Absence> absence(Need need, const Health& health) {
  const BuildInfo& build = build_info();
  const Absence no_cuda{"this build has no CUDA",
                        "install the CUDA toolkit 13 (nvcc) and the CUDA build of torch 2.11, then "
                        "`make clean build`"};
  switch (need) {
    case Need::cuda:
      if (!build.cuda) return no_cuda;
      return {};
    case Need::gpu:
      if (!build.cuda) return no_cuda;
      if (health.machine.gpus.empty()) {
        return Absence{
            "no GPU answers",
            "install the NVIDIA driver, or run on a machine with a GPU; `nvidia-smi` shows both"};
      }
      return {};
    case Need::nccl:
      if (!build.cuda) return no_cuda;
      if (!build.nccl)
        return Absence{"this build has no NCCL",
                       "`make clean build` with the CUDA build of torch 2.11, which brings it"};
      return {};
    case Need::mpi:
      if (!build.mpi)
        return Absence{"this build has no MPI",
                       "`apt-get install libopenmpi-dev openmpi-bin`, then `make clean build`"};
      if (health.mpirun.empty())
        return Absence{"mpirun is not on PATH", "`apt-get install openmpi-bin`"};
      return {};
    case Need::unicode:
      if (!build.unicode)
        return Absence{"this build has no PCRE2 and utf8proc, so no tokenizer.json can be read",
                       "`apt-get install libpcre2-dev libutf8proc-dev`, then `make clean build`"};
      return {};
    case Need::curl:
      if (!build.curl)
        return Absence{
            "this build has no libcurl, so `veil fetch` does not work",
            "`apt-get install libcurl4-openssl-dev libssl-dev`, then `make clean build`"};
      return {};
    case Need::images:
      if (!data::built_with_images())
        return Absence{"this build has no libpng and libjpeg, so no images can be read or written",
                       "`apt-get install libpng-dev libjpeg-dev`, then `make clean build`"};
      return {};
    case Need::gnuplot:
      if (health.gnuplot.empty())
        return Absence{"gnuplot is not on PATH", "`apt-get install gnuplot-nox`"};
      return {};
  }
  return {};
}

std::vector<std::pair<Need, Absence>> all_absences(const Health& health) {
  std::vector<std::pair<Need, Absence>> result;
  for (const auto& entry : names(Need{})) {
    if (const auto missing = absence(entry.value, health))
      result.emplace_back(entry.value, *missing);
  }
  return result;
}

std::string or_none(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string health_table(const Health& health) {
  const BuildInfo& build = build_info();
  const Machine& machine = health.machine;
  const auto yes = [](bool built) { return built ? "yes" : "no"; };
  std::vector<std::vector<std::string>> rows = {
      {"veil",
       fmt::format("{}{}", build.version, build.commit.empty() ? "" : " (" + build.commit + ")")},
      {"build", fmt::format("{}{}, {}", build.build_type, build.sanitized ? " with sanitizers" : "",
                            build.compiler)},
      {"flags", build.flags},
      {"backends", fmt::format("CUDA {}, NCCL {}, MPI {}, Unicode {}, curl {}, images {}, "
                               "zlib {}, zstd {}",
                               yes(build.cuda), yes(build.nccl), yes(build.mpi), yes(build.unicode),
                               yes(build.curl), yes(data::built_with_images()),
                               yes(data::built_with_zlib()), yes(data::built_with_zstd()))},
      {"LibTorch", build.torch_version},
      {"host", machine.host},
      {"CPU", fmt::format("{}, {}, {}", machine.cpu_model, quantity(machine.cpu_cores, "core"),
                          format_bytes(machine.memory_bytes))}};
  for (const GpuInfo& gpu : machine.gpus) {
    rows.push_back({fmt::format("GPU {}", gpu.index),
                    fmt::format("{}, {}, compute capability {}.{}, {} multiprocessors", gpu.name,
                                format_bytes(gpu.memory_bytes), gpu.capability_major,
                                gpu.capability_minor, gpu.multiprocessors)});
  }
  if (machine.gpus.empty()) rows.push_back({"GPU", "-"});
  rows.push_back({"CUDA", or_none(machine.cuda_runtime)});
  rows.push_back({"cuDNN", or_none(machine.cudnn)});
  rows.push_back({"NCCL", or_none(machine.nccl)});
  rows.push_back({"MPI", or_none(machine.mpi)});
  rows.push_back({"curl", or_none(http_library_version())});
  rows.push_back({"images", or_none(data::image_library_versions())});
  rows.push_back({"mpirun", or_none(health.mpirun)});
  rows.push_back({"gnuplot", or_none(health.gnuplot)});
  for (const auto& [need, missing] : all_absences(health)) {
    rows.push_back(
        {"missing", fmt::format("{}: {}: {}", name_of(need), missing.what, missing.remedy)});
  }
  return align_columns(rows);
}

nlohmann::json health_json(const Health& health) {
  nlohmann::json result = {{"build", build_json()}, {"machine", machine_json(health.machine)}};
  result["image_libraries"] = data::image_library_versions();
  result["programs"] = {{"mpirun", health.mpirun}, {"gnuplot", health.gnuplot}};
  result["missing"] = nlohmann::json::array();
  for (const auto& [need, missing] : all_absences(health)) {
    result["missing"].push_back(
        {{"name", name_of(need)}, {"reason", missing.what}, {"remedy", missing.remedy}});
  }
  return result;
}

LinkCheck run_link_check(const DoctorOptions& wanted, const RankInfo& info) {
  const bool nccl_fits = built_with_nccl() && gpu_count() >= info.local_world;
  const bool nccl =
      wanted.backend == Backend::nccl || (wanted.backend == Backend::automatic && nccl_fits);
  if (nccl && gpu_count() < info.local_world) {
    throw MissingBackend(
        fmt::format("--backend nccl with {} on this host: allowed is one rank a GPU, and {} answer",
                    quantity(info.local_world, "rank"), gpu_count()));
  }
  const Device device = nccl ? gpu_device(info.local_rank) : cpu_device();
  const auto communicator =
      nccl ? make_nccl_communicator(0, device) : make_host_communicator(0, device);
  return check_link(*communicator, device, wanted.mebibytes * kMiB);
}

std::string link_table(const LinkCheck& link) {
  std::vector<std::vector<std::string>> rows = {
      {"all-reduce", fmt::format("{} of fp32 over {} by {}: {}, {}", format_bytes(link.bytes),
                                 quantity(link.ranks, "rank"), link.backend, format_ms(link.ms),
                                 link.correct ? "sums are right" : "SUMS ARE WRONG")},
      {"bandwidth", fmt::format("{:.2f} GB/s algorithm, {:.2f} GB/s bus", link.algorithm_gb_per_s,
                                link.bus_gb_per_s)}};
  for (const auto& place : link.places) {
    rows.push_back(
        {fmt::format("rank {}", place.rank), fmt::format("{} {}", place.host, place.device)});
  }
  return align_columns(rows);
}

// Rank 0's part: shows, writes, and checks what --require names.
int report(const DoctorOptions& wanted, const std::optional<LinkCheck>& link) {
  const Health health{this_machine(), find_program("mpirun"), find_program("gnuplot")};
  const auto write_or_print = [](const std::string& path, const std::string& text) {
    if (path == "-") {
      fmt::print("{}", text);
    } else {
      write_file_atomically(path, text);
    }
  };
  if (wanted.json != "-" && wanted.report != "-") {
    fmt::print("{}", health_table(health));
    if (link) fmt::print("{}", link_table(*link));
  }
  if (!wanted.json.empty()) {
    nlohmann::json record = health_json(health);
    record[kWrittenBy] = kWriter;
    if (link) record["link"] = link_json(*link);
    write_or_print(wanted.json, record.dump(2) + "\n");
  }
  if (!wanted.report.empty())
    write_or_print(wanted.report, bug_report(health_json(health)).dump(2) + "\n");
  for (const Need need : wanted.require) {
    if (const auto missing = absence(need, health)) {
      throw MissingBackend(
          fmt::format("--require {}: {}: {}", name_of(need), missing->what, missing->remedy));
    }
  }
  if (link && !link->correct) throw UserError("the ranks' all-reduce gave wrong sums", kExitFailed);
  return kExitDone;
}

}  // namespace

int run_doctor(const CommandCall& call) {
  DoctorOptions wanted;
  Options options(
      "doctor", "shows what this build and this machine have, what is missing and what brings it");
  options.add(
      "json", wanted.json,
      {.help = "write it all as JSON, to stdout without a FILE", .bare = "-", .value = "FILE"});
  options.add("report", wanted.report,
              {.help = "write what a bug report needs as JSON, to stdout without a FILE; no paths, "
                       "no names of users or hosts, and of environment variables the names alone",
               .bare = "-",
               .value = "FILE"});
  add_overwrite_option(options, wanted.overwrite);
  options.add("require", wanted.require,
              {.help = "leave with exit code 3 if one of these is absent"});
  options.add("ranks", wanted.ranks,
              {.aliases = {"nproc_per_node"},
               .help = "start so many local ranks and time an all-reduce",
               .minimum = 1,
               .maximum = 4096});
  options.add("collective-timeout", wanted.collective_timeout_s,
              {.help = "end if the ranks have waited so long for one of them; 0: wait for ever",
               .minimum = 0,
               .maximum = 1e6,
               .value = "SECONDS"});
  options.add("size", wanted.mebibytes,
              {.help = "MiB that each rank adds in that all-reduce",
               .minimum = 1,
               .maximum = 65536,
               .value = "MIB"});
  options.add("backend", wanted.backend,
              {.help = "what the ranks talk by; auto takes NCCL where every rank has a GPU"});
  options.add("calibrate", wanted.calibrate,
              {.help = "measure once what this machine takes for the work of a step, about a "
                       "minute; `veil plan --time` then predicts by it"});
  if (!options.parse_call(call)) return kExitDone;
  if (wanted.json == "-" && wanted.report == "-")
    throw UserError("--json and --report: one of them can go to stdout; give the other a FILE");
  for (const std::string& path : {wanted.json, wanted.report}) {
    if (!path.empty() && path != "-") check_output_file(path, wanted.overwrite);
  }
  if (wanted.calibrate) {
    if (wanted.ranks || !wanted.report.empty())
      user_error("--calibrate with --ranks or --report: it measures one rank, alone");
    return calibrate_machine(wanted.json);
  }

  RankInfo info = rank_info_from_environment();
  info.collective_timeout_s = wanted.collective_timeout_s;
  std::optional<RankStart> start;
  if (wanted.ranks) {
    start = RankStart{*wanted.ranks, {"doctor"}};
    start->words.insert(start->words.end(), call.arguments.begin(), call.arguments.end());
  }
  return on_ranks(info, start, [&] {
    if (info.launcher == Launcher::none) return report(wanted, {});
    const LinkCheck link = run_link_check(wanted, info);
    return info.rank == 0 ? report(wanted, link) : kExitDone;
  });
}

}  // namespace veil
