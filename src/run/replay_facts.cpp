#include "run/replay_facts.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/build_info.h"
#include "base/cpu_model.h"
#include "models/dit.h"
#include "models/family.h"
#include "run/machine.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> file_build(const fs::path& file) {
  std::error_code failed;
  const auto bytes = fs::file_size(file, failed);
  if (failed) return {};
  const auto written = fs::last_write_time(file, failed);
  if (failed) return {};
  return fmt::format("{} bytes, {}", bytes, written.time_since_epoch().count());
}

// Whether a library computes, or decodes what is computed with. What launchers load to start ranks and to carry their messages (MPI's
// plugins under mpirun, none under torchrun) changes no bit.
bool computes(const std::string& library) {
  const std::string name = fs::path(library).filename().string();
  for (const char* begin :
       {"libtorch",  "libc10",       "libopenblas", "libblas",  "liblapack", "libblis",
        "libmkl",    "libdnnl",      "libgomp",     "libiomp",  "libomp.",   "libomp-",
        "libsleef",  "libarm_comp",  "libm.",       "libm-",    "libmvec",   "libc.",
        "libstdc++", "libgcc_s",     "libcuda",     "libcudnn", "libcublas", "libcufft",
        "libcurand", "libcusparse",  "libcusolver", "libnvrtc", "libnccl",   "libveil",
        "libjpeg",   "libturbojpeg", "libpng",      "libz.",    "libz-"}) {
    if (name.starts_with(begin)) return true;
  }
  return false;
}

// Those that compute, sorted: they may be loaded in any order.
std::vector<std::string> loaded_libraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* list) {
        const std::string name = object->dlpi_name ? object->dlpi_name : "";
        if (name.find('/') != std::string::npos && computes(name))
          static_cast<std::vector<std::string>*>(list)->push_back(name);
        return 0;
      },
      &names);
  std::sort(names.begin(), names.end());
  return names;
}

// All that can make a device's arithmetic other.
nlohmann::json device_facts(Device device) {
  const Machine machine = this_machine();
  // Libraries choose their code by what a processor can do, which names of virtual ones do not tell.
  const std::string features = digest_text(sha256(cpu_features())).substr(0, 16);
  if (!device.is_cuda()) return fmt::format("{} (features {})", machine.cpu_model, features);
  nlohmann::json facts = {machine.cpu_model, features, machine.cuda_runtime, machine.cudnn};
  for (const GpuInfo& gpu : machine.gpus) facts.push_back(gpu.name);
  return facts;
}

}  // namespace

// The commit is that of the last configuration, and what was built again since is another program.
std::optional<nlohmann::json> program_facts() {
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  const auto main = failed ? std::nullopt : file_build(program);
  if (!main) return {};
  Sha256 libraries;
  for (const std::string& name : loaded_libraries()) {
    const auto library = file_build(name);
    if (!library) return {};
    libraries.add(sha256(name + " " + *library));
  }
  const BuildInfo& build = build_info();
  return nlohmann::json{
      {"the build",
       {build.version, build.commit, build.compiler, build.flags, build.torch_version}},
      {"the program", *main},
      {"the set of loaded libraries", digest_text(libraries.digest()).substr(0, 16)}};
}

nlohmann::json rank_facts(const RankInfo& info, Device device) {
  return {{"the number of threads", at::get_num_threads()},
          {"the device", device_facts(device)},
          {"the environment", info.arithmetic}};
}

std::string facts_of_all_ranks(Communicator* lane, Device device, const nlohmann::json& mine) {
  if (!lane) return "";
  const Sha256Digest own = sha256(mine.dump() + program_facts().value_or("not known").dump());
  const auto size = static_cast<int64_t>(own.size());
  Tensor shard = empty_tensor({size}, at::kDouble, cpu_device());
  std::copy(own.begin(), own.end(), shard.data_ptr<double>());
  shard = shard.to(device);
  Tensor all = empty_tensor({size * lane->size()}, at::kDouble, device);
  lane->all_gather(shard, all)->wait();
  all = all.cpu();
  Sha256 digest;
  for (int64_t i = 0; i < all.numel(); ++i)
    digest.add(static_cast<uint64_t>(all.data_ptr<double>()[i]));
  return digest_text(digest.digest());
}

namespace {

Sha256Digest digest_of_weights(const InitialWeights& initial, const std::vector<ParamShape>& params,
                               DType storage, bool frozen_alone) {
  constexpr int64_t kPiece = int64_t{1} << 20;  // elements
  struct Piece {
    ParamId param;
    int64_t first, count;
  };
  std::vector<Piece> pieces;
  for (size_t p = 0; p < params.size(); ++p) {
    if (frozen_alone && !params[p].frozen) continue;
    for (int64_t first = 0; first < params[p].numel(); first += kPiece)
      pieces.push_back(
          {static_cast<ParamId>(p), first, std::min(kPiece, params[p].numel() - first)});
  }
  return digest_of_parts(std::ssize(pieces), [&](int64_t number) {
    const Piece& piece = pieces[static_cast<size_t>(number)];
    const ParamShape& param = params[static_cast<size_t>(piece.param)];
    Sha256 digest;
    digest.add(fmt::format("{} [{}] {} {} ", param.name, fmt::join(param.dims, ","),
                           dtype_name(storage), piece.first));
    std::string bytes(static_cast<size_t>(piece.count * dtype_bytes(storage)), '\0');
    const Tensor values = at::from_blob(bytes.data(), {piece.count}, storage);
    if (initial.fill && initial.fill(piece.param, piece.first, values)) {
      digest.add(bytes);
    } else if (!frozen_alone) {  // by its rule, whose seed is a setting
      digest.add(fmt::format("{} {}", static_cast<int>(param.init.kind), param.init.scale));
    }
    return digest.digest();
  });
}

}  // namespace

Sha256Digest model_digest(const ModelSource& source, const Model& model) {
  nlohmann::ordered_json facts = {{"name", model.name}};
  if (source.config) facts["config"] = config_json(*source.config);
  if (source.diffusion) facts["config"] = config_json(*source.diffusion);
  if (source.adapter) facts["adapter"] = source.adapter->config;
  if (model.lora)
    facts["lora"] = {model.lora->rank, model.lora->alpha, model.lora->rslora, model.lora->targets};
  return sha256(facts.dump());
}

Sha256Digest weights_digest(const InitialWeights& initial, const std::vector<ParamShape>& params,
                            DType storage) {
  return digest_of_weights(initial, params, storage, /*frozen_alone=*/false);
}

Sha256Digest frozen_digest(const InitialWeights& initial, const std::vector<ParamShape>& params,
                           int64_t seed) {
  Sha256 digest;
  digest.add(digest_of_weights(initial, params, at::kFloat, /*frozen_alone=*/true));
  const bool random = initial.random.size() > 0 || !initial.fill;
  digest.add(fmt::format("seed {}", random ? seed : 0));
  return digest.digest();
}

}  // namespace veil
