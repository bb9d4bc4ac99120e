#include "run/run_export.h"

#include <filesystem>
#include <random>
#include <utility>
#include <vector>

#include "base/files.h"
#include "models/export.h"
#include "models/model_files.h"
#include "models/weight_tensors.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string make_export_owner(const std::string& run_folder) {
  std::random_device random;
  const std::string owner = fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
  write_file_atomically(join_path(run_folder, kExportOwner),
                        owner + " " + fs::weakly_canonical(run_folder).string());
  return owner;
}

bool exports_adapters(const FinishedRun& run) {
  return run.model.lora && !run.config.training.merge;
}

std::vector<ParamId> exported(const FinishedRun& run) {
  return exports_adapters(run) ? adapter_params(run.model) : base_params(run.model);
}

}  // namespace

std::string export_owner(const std::string& run_folder) {
  const std::string note = join_path(run_folder, kExportOwner);
  if (!fs::is_regular_file(note)) return "";
  const std::string text = read_file(note);
  const size_t end = text.find(' ');
  const std::string path = fs::weakly_canonical(run_folder).string();
  return end != std::string::npos && text.substr(end + 1) == path ? text.substr(0, end) : "";
}

void export_trained(const FinishedRun& run, bool writes) {
  const Model& model = run.model;
  auto whole = [&run](ParamId id) {
    return run.average ? run.average->parameter(id) : run.executor.parameter(id);
  };
  auto values = [&model, whole, merges = model.lora && run.config.training.merge](ParamId id) {
    return merges ? merged_parameter(model, id, whole) : whole(id);
  };
  if (!writes) {
    for (const ParamId id : exported(run)) values(id);
    return;
  }
  std::vector<TensorSource> sources;
  const DType storage = dtype_of(run.config.step.storage);
  const bool adapters = exports_adapters(run);
  // the input's type, or if there was none the one that the run keeps; adapters are small
  const bool given = run.task.source().has_weights() && !adapters;
  const StoredType type =
      stored_weights_type(given ? run.task.source().folder : "")
          .value_or(stored_type(run.average || storage == at::kDouble ? at::kFloat : storage));
  for (const ParamId id : exported(run)) {
    const ParamShape& param = model.params[static_cast<size_t>(id)];
    const std::string name = adapters ? adapter_name(param.name) : param.name;
    TensorSource source{name, type, param.dims, {}};
    source.produce = [values, id, name, type](const AppendBytes& append) {
      tensor_source(name, values(id), type).produce(append);
    };
    sources.push_back(std::move(source));
  }
  std::vector<std::pair<std::string, std::string>> files;
  if (adapters) {
    const ModelSource& source = run.task.source();
    const bool classifies = source.config->task == Task::sequence_classification;
    const Json before = source.adapter ? source.adapter->config : Json();
    files = {{kAdapterConfig,
              adapter_config(model, run.config.model.name, classifies, before).dump(2) + "\n"}};
  } else {
    files = run.task.export_files(type);
  }
  if (run.privacy) {
    nlohmann::json guarantee = run.privacy->guarantee_json;
    const std::vector<std::string> frozen = frozen_names(model);
    if (!frozen.empty()) {
      guarantee["frozen"] = frozen;
      guarantee["frozen_are"] =
          "as they were given: what they were trained on is outside this epsilon";
    }
    files.emplace_back(privacy::kStatementFile, guarantee.dump(2) + "\n");
  } else if (run.origin.base) {
    files.emplace_back(privacy::kStatementFile,
                       privacy::plain_statement(*run.origin.base).dump(2) + "\n");
  }
  std::string owner = export_owner(run.folder);
  if (owner.empty()) owner = make_export_owner(run.folder);
  export_model(run.config.training.export_folder, files, sources,
               {.overwrite = run.config.training.overwrite,
                .owner = owner,
                .weights = adapters ? kAdapterWeights : "model"});
}

}  // namespace veil
