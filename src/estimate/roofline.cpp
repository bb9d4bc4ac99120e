#include "estimate/roofline.h"

#include <ATen/ops/mm.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "tensor/category.h"
#include "tensor/stream.h"

namespace veil {
namespace {

// Seconds of one call, the best of a few rounds.
template <typename Call>
double seconds_of(Device device, int calls, const Call& call) {
  call();
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    synchronize(device);
    const double begin = steady_ms();
    for (int i = 0; i < calls; ++i) call();
    synchronize(device);
    best = std::min(best, (steady_ms() - begin) / 1e3 / calls);
  }
  return best;
}

}  // namespace

Roofline assumed_roofline(bool on_gpu, DType compute) {
  if (!on_gpu) return {compute == at::kDouble ? 8e9 : 16e9, 8e9, 2e-6, "assumed"};
  const double flops = dtype_bytes(compute) == 2 ? 650e12 : 45e12;
  return {flops, 4.0e12, 3e-6, "assumed"};
}

Roofline measure_roofline(Device device, DType compute) {
  CategoryScope scope(Category::temporary);
  const int64_t side = device.is_cuda() ? 4096 : 384,
                moved = device.is_cuda() ? int64_t{1} << 28 : int64_t{1} << 24;
  Roofline roofline;
  roofline.source = "measured";
  {
    const Tensor a = empty_tensor({side, side}, compute, device).fill_(0.5),
                 b = empty_tensor({side, side}, compute, device).fill_(0.25);
    Tensor c = empty_tensor({side, side}, compute, device);
    const double product = 2.0 * static_cast<double>(side * side * side);
    roofline.flops_per_second = product / seconds_of(device, 8, [&] { at::mm_out(c, a, b); });
  }
  {
    const Tensor from = empty_tensor({moved}, at::kByte, device).zero_(),
                 to = empty_tensor({moved}, at::kByte, device);
    roofline.bytes_per_second =
        2.0 * static_cast<double>(moved) / seconds_of(device, 4, [&] { to.copy_(from); });
  }
  const Tensor small = empty_tensor({8}, at::kFloat, device).zero_();
  roofline.launch_seconds = seconds_of(device, 200, [&] { small.add_(1); });
  return roofline;
}

namespace {

using Json = nlohmann::ordered_json;

// What the file holds; an empty object if there is none or it is damaged.
Json stored_rooflines(const std::string& path) {
  Json known;
  try {
    if (std::filesystem::exists(path)) known = parse_json<Json>(read_file(path));
  } catch (const std::exception&) {  // a damaged cache is measured anew
  }
  return known.is_object() ? known : Json::object();
}

std::optional<Roofline> find_roofline(const Json& known, const std::string& name) {
  try {
    if (!known.contains(name)) return {};
    const Json& found = known.at(name);
    return Roofline{found.at("flops_per_second").get<double>(),
                    found.at("bytes_per_second").get<double>(),
                    found.at("launch_seconds").get<double>(), "cached"};
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

Roofline cached_roofline(const std::string& path, Device device, DType compute) {
  const std::string name =
      (device.is_cuda() ? gpus().at(static_cast<size_t>(device.index())).name : "cpu") + " " +
      dtype_name(compute);
  if (const auto found = find_roofline(stored_rooflines(path), name)) return *found;
  const Roofline measured = measure_roofline(device, compute);
  // Where another process has stored its own meanwhile, that one counts: a run that is resumed must
  // find the prices it began with.
  Json known = stored_rooflines(path);
  if (const auto found = find_roofline(known, name)) return *found;
  known[name] = {{"flops_per_second", measured.flops_per_second},
                 {"bytes_per_second", measured.bytes_per_second},
                 {"launch_seconds", measured.launch_seconds}};
  try {
    ensure_folder_writable(std::filesystem::path(path).parent_path().string());
    write_file_atomically(path, known.dump(1) + "\n");
  } catch (const std::exception&) {  // it is only a cache
  }
  return measured;
}

}  // namespace veil
