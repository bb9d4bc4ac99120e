#include "estimate/machine_prices.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/cpu_model.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"

namespace veil {

double MachinePrices::seconds_of(const Work& work) const {
  double sum = 0;
  for (size_t i = 0; i < seconds.size(); ++i) sum += work.of[i] * seconds[i];
  return sum;
}

namespace {

// One equation of the fit: amounts . prices = 1, times a weight.
struct Equation {
  std::array<double, kAmounts> left;
  double right;
};

// Rows weighted by their part of the step, then the step itself.
std::vector<Equation> equations(const std::vector<Observation>& observations, int without) {
  std::vector<Equation> list;
  int steps = 0;
  for (const Observation& row : observations) steps = std::max(steps, row.step + 1);
  for (int step = 0; step < steps; ++step) {
    if (step == without) continue;
    Work all;
    double total = 0;
    for (const Observation& row : observations) {
      if (row.step != step) continue;
      total += row.ms * row.rows;
      for (int i = 0; i < row.rows; ++i) all += row.work;
    }
    if (total <= 0) continue;
    auto add = [&](const Work& work, double ms, double weight) {
      Equation equation{{}, weight};
      for (size_t i = 0; i < work.of.size(); ++i)
        equation.left[i] = work.of[i] * weight / (ms / 1e3);
      list.push_back(equation);
    };
    for (const Observation& row : observations) {
      if (row.step == step && row.ms > 0)
        add(row.work, row.ms, std::sqrt(row.ms * row.rows / total));
    }
    add(all, total, 1);
  }
  return list;
}

// Least squares without negative prices, by coordinates; drawn to the prior very weakly.
std::array<double, kAmounts> fit(const std::vector<Equation>& list,
                                 const std::array<double, kAmounts>& prior) {
  constexpr double kPull = 1e-4;
  constexpr int kSweeps = 4000;
  double normal[kAmounts][kAmounts] = {}, right[kAmounts] = {};
  for (const Equation& equation : list) {
    for (size_t i = 0; i < kAmounts; ++i) {
      const double a = equation.left[i] * prior[i];
      if (a == 0) continue;
      right[i] += a * equation.right;
      for (size_t j = 0; j < kAmounts; ++j) normal[i][j] += a * equation.left[j] * prior[j];
    }
  }
  std::array<double, kAmounts> times;  // the prior's price
  times.fill(1);
  for (size_t i = 0; i < kAmounts; ++i) {
    normal[i][i] += kPull;
    right[i] += kPull;
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t i = 0; i < kAmounts; ++i) {
      double rest = right[i];
      for (size_t j = 0; j < kAmounts; ++j) {
        if (j != i) rest -= normal[i][j] * times[j];
      }
      times[i] = std::max(0.0, rest / normal[i][i]);
    }
  }
  std::array<double, kAmounts> prices;
  for (size_t i = 0; i < kAmounts; ++i) prices[i] = times[i] * prior[i];
  return prices;
}

double part_of(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = part * static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(std::lround(place))];
}

}  // namespace

MachinePrices fitted_prices(const std::vector<Observation>& observations,
                            const MachinePrices& prior) {
  MachinePrices prices = prior;
  prices.seconds = fit(equations(observations, -1), prior.seconds);
  int steps = 0;
  for (const Observation& row : observations) steps = std::max(steps, row.step + 1);
  std::vector<double> errors;
  for (int step = 0; step < steps; ++step) {
    MachinePrices others = prior;
    others.seconds = fit(equations(observations, step), prior.seconds);
    double seen = 0, predicted = 0;
    for (const Observation& row : observations) {
      if (row.step != step) continue;
      seen += row.ms * row.rows;
      predicted += others.seconds_of(row.work) * 1e3 * row.rows;
    }
    if (seen > 0) errors.push_back(std::abs(predicted / seen - 1));
  }
  prices.typical = part_of(errors, 0.5);
  prices.spread = part_of(errors, 0.9);
  return prices;
}

MachinePrices assumed_prices(bool on_gpu, DType compute) {
  // About an H200, or one core: operations and bytes per second, seconds per launch.
  const double flops = on_gpu                   ? dtype_bytes(compute) == 2 ? 650e12 : 45e12
                       : compute == at::kDouble ? 8e9
                                                : 16e9,
               bytes = on_gpu ? 4.0e12 : 8e9, launch = on_gpu ? 3e-6 : 2e-6;
  MachinePrices prices;
  prices.machine = fmt::format("{} {}", on_gpu ? "a GPU" : "cpu", dtype_name(compute));
  prices.source = "assumed";
  prices.typical = 0.4;
  prices.spread = 1;
  // How much of the peak products of each size reach.
  constexpr double kReached[] = {0.01, 0.08, 0.4, 0.8, 1, 1};
  auto set = [&](Amount amount, double per_second) {
    prices.seconds[static_cast<size_t>(amount)] = 1e9 / per_second;
  };
  for (size_t i = 0; i < std::size(kReached); ++i)
    prices.seconds[i] = 1e9 / (flops * (on_gpu ? kReached[i] : 1));
  set(Amount::attention_forward, flops / 2);
  set(Amount::attention_backward, flops / 2);
  set(Amount::gram, flops / 2);
  set(Amount::tile, flops / 2);
  set(Amount::clip, flops / 2);
  set(Amount::logits, bytes / 16);
  for (const Amount amount : {Amount::moved_forward, Amount::moved_backward, Amount::clip_moved,
                              Amount::kept, Amount::combined, Amount::updated})
    set(amount, bytes);
  set(Amount::gram_moved, 3 * bytes);
  set(Amount::tile_moved, 3 * bytes);
  set(Amount::copied, on_gpu ? 25e9 : bytes);
  set(Amount::updated_numbers, on_gpu ? 1e12 : 1e9);
  set(Amount::noise_philox, on_gpu ? 1.2e12 : 2e8);
  set(Amount::noise_secure, on_gpu ? 6e11 : 1e8);
  set(Amount::noise_hardened, on_gpu ? 3e11 : 5e7);
  for (const Amount amount :
       {Amount::forward_rows, Amount::backward_rows, Amount::loss_rows, Amount::update_rows,
        Amount::other_rows, Amount::norm_launches, Amount::steps})
    prices.seconds[static_cast<size_t>(amount)] = 10 * launch;
  return prices;
}

std::string priced_machine(Device device, DType compute) {
  const std::string name = device.is_cuda()
                               ? gpus().at(static_cast<size_t>(device.index())).name
                               : fmt::format("{}, {} threads", cpu_model(), at::get_num_threads());
  return fmt::format("{} {}", name, dtype_name(compute));
}

namespace {

using Json = nlohmann::ordered_json;

Json stored_machines(const std::string& path) {
  try {
    if (std::filesystem::exists(path)) {
      Json stored = parse_json<Json>(read_file(path));
      if (stored.is_object()) return stored;
    }
  } catch (const std::exception&) {  // a damaged file is as if it were not there
  }
  return Json::object();
}

}  // namespace

std::optional<MachinePrices> stored_prices(const std::string& path, const std::string& machine) {
  if (path.empty()) return {};
  const Json stored = stored_machines(path);
  if (!stored.contains(machine)) return {};
  try {
    const Json& found = stored.at(machine);
    if (found.value("amounts", 1) != kAmountsVersion) return {};
    MachinePrices prices{machine,
                         found.at("source").get<std::string>(),
                         found.at("typical_error").get<double>(),
                         found.at("spread").get<double>(),
                         {}};
    for (const auto& entry : names(Amount{})) {
      const double seconds = found.at("seconds").at(entry.name).get<double>();
      if (!(seconds >= 0 && std::isfinite(seconds))) return {};
      prices.seconds[static_cast<size_t>(entry.value)] = seconds;
    }
    return prices;
  } catch (const std::exception&) {
    return {};
  }
}

void store_prices(const std::string& path, const MachinePrices& prices) {
  Json stored = stored_machines(path);
  Json seconds;
  for (const auto& entry : names(Amount{}))
    seconds[entry.name] = prices.seconds[static_cast<size_t>(entry.value)];
  stored[prices.machine] = {{"source", prices.source},
                            {"typical_error", prices.typical},
                            {"spread", prices.spread},
                            {"amounts", kAmountsVersion},
                            {"seconds", seconds}};
  ensure_folder_writable(std::filesystem::path(path).parent_path().string());
  write_file_atomically(path, stored.dump(1) + "\n");
}

namespace {

// What comes with the program.
MachinePrices built_in_prices(Device device, DType compute) {
  if (!device.is_cuda()) return known_cpu_prices(cpu_model(), at::get_num_threads(), compute);
  const std::string name = canonical(gpus().at(static_cast<size_t>(device.index())).name);
  for (const auto& entry : names(KnownGpu{})) {
    if (name.find(entry.name) != std::string::npos) return known_prices(entry.value, compute);
  }
  return assumed_prices(/*on_gpu=*/true, compute);
}

}  // namespace

MachinePrices prices_for(const std::string& prices_file, Device device, DType compute) {
  const std::string machine = priced_machine(device, compute);
  if (const auto stored = stored_prices(prices_file, machine)) return *stored;
  MachinePrices prices = built_in_prices(device, compute);
  if (!prices_file.empty() && stored_machines(prices_file).contains(machine))
    prices.source += fmt::format(
        "; {} has prices of this machine that this version cannot use: run `veil doctor "
        "--calibrate` again",
        prices_file);
  return prices;
}

}  // namespace veil
