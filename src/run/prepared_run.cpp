#include "run/prepared_run.h"

#include <filesystem>

#include "base/error.h"
#include "base/outputs.h"
#include "comm/rank_link.h"
#include "models/export.h"
#include "run/config_fields.h"
#include "run/model_source.h"
#include "run/ranks.h"
#include "run/run_export.h"
#include "run/run_folder.h"
#include "run/train_config.h"
#include "train/checkpoint.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

// Named, not made: rank 0 makes it when all input is known to be good.
std::string run_folder(const TrainingConfig& training) {
  const auto resumed = resumed_run_folder(training.resume, training.output_dir);
  if (!resumed) return unused_run_folder(training.output_dir);
  if (!fs::is_directory(*resumed)) field_error("resume", "{}: no such folder", *resumed);
  check_run_folder(*resumed);
  return *resumed;
}

// Before any data is read, so that what only prepares a run finds it too.
void check_data(const RunConfig& config) {
  const std::string& path = config.data.path;
  std::error_code ignored;
  if (fs::exists(path, ignored)) return;
  if (model_source(config).config)
    field_error(
        "data",
        "{}: no such folder or file; allowed are a folder of text, a file of it, or a token "
        "store of `veil tokenize`",
        path);
  if (path != kShapes)
    field_error("data",
                "{} is no folder: allowed are a folder of images with one sub-folder per class, or "
                "shapes",
                path);
}

// The run and the export lie apart from what is read: files that they get there would be lost or
// be read as data by the next run.
void check_places(const PreparedRun& prepared) {
  const RunConfig& config = prepared.config;
  const std::string data = config.data.path == kShapes ? "" : config.data.path;
  if (!data.empty() && fs::is_directory(data) && lies_inside(prepared.folder, data))
    field_error(config.training.resume.empty() ? "output_dir" : "resume",
                "{}: the run's folder would lie inside the data ({}) and be read as data by the "
                "next run; choose one apart from it",
                config.training.resume.empty() ? config.training.output_dir : prepared.folder,
                data);
  if (config.training.export_folder.empty()) return;
  check_export_folder(config.training.export_folder, {.overwrite = config.training.overwrite,
                                                      .owner = export_owner(prepared.folder)});
  check_apart("export", config.training.export_folder,
              {{data, "the data"},
               {model_source(config).folder, "the model that is trained"},
               {config.model.adapter, "the adapter that is trained on"},
               {prepared.folder, "the run's folder"}});
}

}  // namespace

PreparedRun prepare_training(const RunConfig& config, const RankInfo& info) {
  if (info.world < 1 || info.rank < 0 || info.rank >= info.world)
    user_error("rank {} of {}: allowed are the ranks 0 to {}", info.rank, info.world,
               info.world - 1);
  PreparedRun prepared;
  prepared.config = settled_for_training(config, info.world);
  prepared.device = choose_device(config, info);
  if (config.step.graph == GraphMode::on && !prepared.device.is_cuda())
    field_error("graph", "on cannot be met (no GPU): pass `graph` auto or off");
  prepared.folder = text_of_rank_0(info.rank == 0 ? run_folder(config.training) : "");
  check_resumed(prepared.config, prepared.folder, info.world);
  check_data(prepared.config);
  check_places(prepared);
  // A run that continues has its weights in its checkpoint, unless some are frozen.
  const ModelConfig& of = config.model;
  const bool some_frozen = of.has_adapters() || !of.frozen.empty() || !of.train_only.empty();
  if (some_frozen || config.training.resume.empty() || !newest_checkpoint(prepared.folder))
    require_weights(model_source(prepared.config), /*trains=*/true);
  return prepared;
}

}  // namespace veil
