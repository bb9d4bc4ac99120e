#include "run/resources.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/units.h"
#include "optim/optimizer.h"
#include "run/remedies.h"
#include "tensor/out_of_memory.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

fs::path nearest_folder(const std::string& folder) {
  std::error_code error;
  fs::path nearest = fs::absolute(folder, error);
  while (!fs::exists(nearest, error) && nearest.has_relative_path())
    nearest = nearest.parent_path();
  return nearest;
}

}  // namespace

std::string beyond_host_memory_text(const RunConfig& config, const Schedule& schedule,
                                    int local_world) {
  if (config.placement.ignore_memory) return "";
  const int64_t needed = estimate_memory(schedule).peak(Space::host).total(),
                available = available_host_bytes();
  if (needed <= available / local_world) return "";
  return fmt::format("a step needs about {}{}, and {} of host memory are available",
                     format_bytes(needed),
                     local_world > 1 ? fmt::format(" on each of {} ranks", local_world) : "",
                     format_bytes(available));
}

std::string out_of_memory_text(const RunConfig& config, int world, bool on_gpu,
                               const std::string& reason) {
  constexpr size_t kMost = 3;
  std::vector<Remedy> ways = priced_remedies(config, world, on_gpu, memory_room(config, on_gpu));
  std::stable_partition(ways.begin(), ways.end(), [](const Remedy& way) { return way.fits; });
  if (ways.size() > kMost) ways.resize(kMost);
  return fmt::format("out of memory: {}; try {}", reason,
                     ways.empty() ? "a smaller model" : join(remedy_texts(ways), ", or "));
}

void check_disk_space(const std::vector<PlannedFiles>& planned) {
  std::map<dev_t, std::pair<int64_t, std::vector<std::string>>> systems;  // bytes, what
  for (const PlannedFiles& files : planned) {
    const fs::path place = nearest_folder(files.folder);
    struct stat facts {};
    std::error_code error;
    const fs::space_info space = fs::space(place, error);
    if (error || stat(place.c_str(), &facts) != 0) continue;
    auto& [bytes, list] = systems[facts.st_dev];
    bytes += files.bytes;
    list.push_back(fmt::format("{} ({})", files.what, format_bytes(files.bytes)));
    if (static_cast<uintmax_t>(bytes) > space.available)
      user_error(
          "the disk of '{}' has {} free, and {} need more: free some, or choose another "
          "folder",
          files.folder, format_bytes(static_cast<int64_t>(space.available)), join(list, " and "));
  }
}

std::vector<PlannedFiles> planned_files(const RunConfig& config, const std::string& folder,
                                        int64_t parameters, int64_t trained, int64_t steps) {
  const StepOptions step = step_options(config, 1, /*on_gpu=*/false);
  const bool average = config.optimizer.average > 0;
  const int64_t stored = dtype_bytes(step.storage),
                state =
                    optimizer_states(config.optimizer.kind) * dtype_bytes(step.optimizer_state());
  const int64_t checkpoint = trained * (stored + state + (average ? 4 : 0));
  const TrainingConfig& training = config.training;
  const int64_t exported = config.model.has_adapters() && !training.merge ? trained : parameters;
  // One more than is kept is there for a moment.
  const int64_t written = training.checkpoint_every > 0 ? steps / training.checkpoint_every + 1 : 1;
  const int64_t count = std::min<int64_t>(written, int64_t{training.keep_checkpoints} + 1);
  std::vector<PlannedFiles> planned = {{folder, checkpoint * count, quantity(count, "checkpoint")}};
  if (!training.export_folder.empty())
    planned.push_back({training.export_folder,
                       exported * (average ? 4 : std::min<int64_t>(stored, 4)), "the export"});
  return planned;
}

}  // namespace veil
