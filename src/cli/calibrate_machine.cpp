#include "cli/calibrate_machine.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/outputs.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/hub_environment.h"
#include "run/calibrate.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

Json amounts_json(const std::array<double, kAmounts>& amounts) {
  Json json = Json::object();
  for (const auto& entry : names(Amount{})) {
    const double value = amounts[static_cast<size_t>(entry.value)];
    if (value != 0) json[entry.name] = value;
  }
  return json;
}

// What was seen and the prices that were fitted to it.
Json calibration_json(const Calibration& found) {
  Json json = {{kWrittenBy, kWriter},
               {"machine", found.prices.machine},
               {"typical_error", found.prices.typical},
               {"spread", found.prices.spread},
               {"seconds", amounts_json(found.prices.seconds)},
               {"steps", found.steps},
               {"rows", Json::array()}};
  for (const Observation& row : found.observations)
    json["rows"].push_back({{"step", row.step},
                            {"rows", row.rows},
                            {"ms", row.ms},
                            {"work", amounts_json(row.work.of)}});
  return json;
}

}  // namespace

int calibrate_machine(const std::string& json) {
  const bool on_gpu = gpu_count() > 0;
  const Device device = on_gpu ? gpu_device(0) : cpu_device();
  const double begin = steady_ms();
  const Calibration found = calibrate(device, on_gpu ? Precision::bf16 : Precision::fp32,
                                      [](const std::string& step, int done, int all) {
                                        fmt::print(stderr, "{:3}/{}  {}\n", done + 1, all, step);
                                      });
  Table table({"step", "seen", "explained", "off by"});
  for (size_t s = 0; s < found.steps.size(); ++s) {
    double seen = 0, explained = 0;
    for (const Observation& row : found.observations) {
      if (row.step != static_cast<int>(s)) continue;
      seen += row.ms * row.rows;
      explained += found.prices.seconds_of(row.work) * 1e3 * row.rows;
    }
    table.row({found.steps[s], format_ms(seen), format_ms(explained),
               fmt::format("{:+.1f} %", (explained / seen - 1) * 100)});
  }
  const std::string file = prices_file_from_environment();
  store_prices(file, found.prices);
  if (json == "-") {
    fmt::print("{}\n", calibration_json(found).dump(1));
    return kExitDone;
  }
  if (!json.empty()) write_file_atomically(json, calibration_json(found).dump(1) + "\n");
  fmt::print(
      "{}\nmachine   {}\nerror     typically {:.0f} %, nine of ten below {:.0f} %, for steps "
      "that it was not fitted to\nkept in   {}, in {:.0f} s; `veil plan --time` uses it\n",
      table.text(), found.prices.machine, found.prices.typical * 100, found.prices.spread * 100,
      file, (steady_ms() - begin) / 1e3);
  return kExitDone;
}

}  // namespace veil
