#include "models/peft.h"

#include <ATen/ops/mm.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "models/adapter_task.h"
#include "models/adapters.h"
#include "models/config_fields.h"
#include "models/weight_tensors.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kPeftPrefix = "base_model.model.";
constexpr const char* kBaseModel = "base_model_name_or_path";

// Options that change nothing of a trained adapter, whatever they say.
const std::set<std::string>& ignored_options() {
  static const std::set<std::string> names = {"auto_mapping",
                                              kBaseModel,
                                              "revision",
                                              "inference_mode",
                                              "peft_version",
                                              "task_type",
                                              "fan_in_fan_out",
                                              "target_modules",
                                              "exclude_modules",
                                              "layers_pattern",
                                              "layers_to_transform",
                                              "modules_to_save",
                                              "megatron_core",
                                              "qalora_group_size",
                                              "runtime_config",
                                              "ensure_weight_tying",
                                              "eva_config",
                                              "peft_type",
                                              "r",
                                              "lora_alpha",
                                              "use_rslora",
                                              "lora_dropout",
                                              "init_lora_weights",
                                              "bias"};
  return names;
}

// Whether an option is as good as left out.
bool is_off(const Json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty()) ||
         value == "" || value == "none";
}

void check_peft_options(const Json& json, const std::string& where) {
  for (const auto& [name, value] : json.items()) {
    if (ignored_options().count(name) > 0 || is_off(value)) continue;
    user_error(
        "{}: {} ({}) is not supported: Veil reads adapters of plain LoRA, with one rank, "
        "without DoRA, biases and quantisation",
        where, printable(name), printable(value.dump(), 40));
  }
  if (json.contains("bias") && !is_off(json["bias"]))
    user_error("{}: bias {} is not supported; allowed is none", where, json["bias"].dump());
  // These keep a part of the base's weights in the adapter.
  const Json start = json.value("init_lora_weights", Json(true));
  if (start.is_string() && start != "gaussian" && start != "eva" && start != "orthogonal")
    user_error(
        "{}: init_lora_weights {} is not supported, for it changes the base model; convert "
        "the adapter with PEFT's save_pretrained(path_initial_model_for_weight_conversion)",
        where, start.dump());
}

}  // namespace

PeftAdapter read_adapter(const std::string& folder) {
  if (!fs::is_directory(folder))
    field_error("adapter", "{}: no such folder; allowed is one with {} and {}.safetensors", folder,
                kAdapterConfig, kAdapterWeights);
  const std::string path = join_path(folder, kAdapterConfig),
                    weights_path = join_path(folder, std::string(kAdapterWeights) + ".safetensors");
  for (const std::string& file : {path, weights_path}) {
    if (fs::is_regular_file(file)) continue;
    const bool pickled = fs::exists(join_path(folder, "adapter_model.bin"));
    field_error("adapter", "{}: the folder has no {}{}", folder, fs::path(file).filename().string(),
                pickled ? "; Veil does not read adapter_model.bin: save it with PEFT's "
                          "save_pretrained(safe_serialization=True)"
                        : "");
  }
  PeftAdapter adapter;
  adapter.folder = folder;
  adapter.config = try_json<Json>(read_file(path));
  if (!adapter.config.is_object()) user_error("{}: not a JSON object", path);
  const ConfigFields fields(adapter.config, path);
  const std::string kind = fields.text("peft_type");
  if (kind != "LORA")
    user_error("{}: peft_type '{}' is not supported; allowed is LORA", path, printable(kind));
  check_peft_options(adapter.config, path);
  LoraSettings& lora = adapter.lora;
  lora.rank = fields.whole("r", 1, 1 << 16);
  lora.alpha = fields.real("lora_alpha", 0, 1e9, 8);
  lora.rslora = fields.flag("use_rslora", false);
  if (const double dropout = fields.real("lora_dropout", 0, 1, 0); dropout > 0)
    adapter.notices.push_back(fmt::format(
        "{}: lora_dropout {:g} is not applied, Veil trains without dropout", path, dropout));
  lora.targets.clear();
  const SafetensorsFile file(weights_path);
  for (const StoredTensor& tensor : file.tensors()) {
    if (!tensor.name.starts_with(kPeftPrefix))
      user_error("{}: tensor {} does not begin with {}", weights_path, printable(tensor.name),
                 kPeftPrefix);
    const std::string name = tensor.name.substr(std::string(kPeftPrefix).size());
    if (name.ends_with(kLoraA)) {
      if (tensor.dims.size() != 2 || tensor.dims[0] != lora.rank)
        user_error("{}: {} has not the rank {} that {} says; ranks that differ are not supported",
                   weights_path, printable(tensor.name), lora.rank, kAdapterConfig);
      const std::string module = name.substr(0, name.size() - std::string(kLoraA).size());
      // As a target, these would mean other modules too.
      if (module.empty() || module == "all" || module == "attention" ||
          module.find('*') != std::string::npos)
        user_error("{}: tensor {} names no module", weights_path, printable(tensor.name));
      lora.targets.push_back(module);
    } else if (name.find(".lora_") != std::string::npos && !name.ends_with(kLoraB)) {
      user_error("{}: tensor {} is not supported; adapters have lora_A and lora_B", weights_path,
                 printable(tensor.name));
    } else if (!name.ends_with(kLoraB)) {
      adapter.also.push_back(name);
    }
  }
  if (lora.targets.empty()) user_error("{}: the file has no lora_A", weights_path);
  return adapter;
}

namespace {
std::string letters_of(const std::string& text) {
  std::string letters;
  for (const unsigned char letter : text) {
    if (std::isalnum(letter)) letters += static_cast<char>(std::tolower(letter));
  }
  return letters;
}

// "llama3.2-1b" of "meta-llama/Llama-3.2-1B/", by its letters and digits.
std::string last_name(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const std::string whole = path.substr(0, end + 1);
  return letters_of(whole.substr(whole.find_last_of('/') + 1));
}
}  // namespace

std::string other_base_notice(const PeftAdapter& adapter, const std::string& model_name,
                              const std::string& model_folder) {
  const Json named = adapter.config.value(kBaseModel, Json());
  if (!named.is_string() || named == "") return "";
  const std::string base = named.get<std::string>();
  // Either may be a snapshot's folder, below the one that has the model's name.
  const auto has = [](const std::string& path, const std::string& name) {
    return letters_of(path).find(name) != std::string::npos;
  };
  if (has(model_name, last_name(base)) || has(model_folder, last_name(base)) ||
      has(base, last_name(model_name)))
    return "";
  return fmt::format("{} names {} as its base; it is put on {}",
                     join_path(adapter.folder, kAdapterConfig), printable(base, 80), model_name);
}

std::string adapter_name(const std::string& parameter) {
  return kPeftPrefix + parameter;
}

InitialWeights with_adapter(InitialWeights base, const PeftAdapter& adapter,
                            const std::vector<ParamShape>& params) {
  const auto weights = std::make_shared<Weights>(
      join_path(adapter.folder, std::string(kAdapterWeights) + ".safetensors"));
  std::vector<WantedTensor> wanted;
  std::vector<const StoredTensor*> stored;
  for (const ParamShape& param : params) {
    const StoredTensor* const own = weights->find(adapter_name(param.name));
    stored.push_back(own);
    if (own || is_adapter(param.name)) wanted.push_back({adapter_name(param.name), param.dims});
    if (own && std::erase(base.random, param.name) > 0)
      std::erase_if(base.notices, [&](const std::string& line) {
        return line.find(param.name + " is not in it") != std::string::npos;
      });
  }
  check_weights(*weights, wanted);
  base.tensors += std::ssize(wanted);
  base.notices.insert(base.notices.end(), adapter.notices.begin(), adapter.notices.end());
  base.fill = [weights, stored, before = base.fill](ParamId id, int64_t first, const Tensor& out) {
    const StoredTensor* const own = stored[static_cast<size_t>(id)];
    if (!own) return before && before(id, first, out);
    Tensor host =
        out.is_cuda() ? empty_tensor({out.numel()}, out.scalar_type(), cpu_device()) : out;
    read_weight(*weights, *own, first, host);
    if (out.is_cuda()) out.copy_(host);
    return true;
  };
  return base;
}

namespace {

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.find_last_of('.'));
}

// Ends of names that mean the adapted modules and no other matrix of the model; the whole names
// if there are none.
std::vector<std::string> target_modules(const Model& model) {
  const std::vector<std::string> adapted = adapted_modules(model);
  const std::set<std::string> all(adapted.begin(), adapted.end());
  std::set<std::string> ends;
  for (const std::string& module : adapted)
    ends.insert(module.substr(module.find_last_of('.') + 1));
  for (const ParamShape& param : model.params) {
    if (is_adapter(param.name) || param.dims.size() != 2) continue;
    const std::string module = module_of(param.name);
    if (all.count(module) == 0 && ends.count(module.substr(module.find_last_of('.') + 1)) > 0)
      return adapted;
  }
  return {ends.begin(), ends.end()};
}

// Modules of the base that are trained as they are.
std::set<std::string> saved_modules(const Model& model) {
  std::set<std::string> modules;
  for (const ParamShape& param : model.params) {
    if (!param.frozen && !is_adapter(param.name)) modules.insert(module_of(param.name));
  }
  return modules;
}

}  // namespace

Json adapter_config(const Model& model, const std::string& base_model, bool classifies,
                    const Json& before) {
  VEIL_CHECK(model.lora, "{} has no adapters", model.name);
  bool in_out = false;
  for (const ParamShape& param : model.params) in_out = in_out || param.in_out;
  Json json = before.is_object() ? before
                                 : Json{{"alpha_pattern", Json::object()},
                                        {"auto_mapping", nullptr},
                                        {"bias", "none"},
                                        {"init_lora_weights", true},
                                        {"layers_pattern", nullptr},
                                        {"layers_to_transform", nullptr},
                                        {"lora_dropout", 0.0},
                                        {"rank_pattern", Json::object()},
                                        {"revision", nullptr},
                                        {"use_dora", false}};
  json[kBaseModel] = base_model;
  json["fan_in_fan_out"] = in_out;
  json["inference_mode"] = true;
  json["lora_alpha"] = model.lora->alpha == std::floor(model.lora->alpha)
                           ? Json(static_cast<int64_t>(model.lora->alpha))
                           : Json(model.lora->alpha);
  const std::set<std::string> saved = saved_modules(model);
  json["modules_to_save"] = saved.empty() ? Json(nullptr) : Json(saved);
  json["peft_type"] = "LORA";
  json["r"] = model.lora->rank;
  json["target_modules"] = target_modules(model);
  json["task_type"] = peft_task(classifies ? Task::sequence_classification : Task::causal_lm);
  json["use_rslora"] = model.lora->rslora;
  return json;
}

std::vector<ParamId> adapter_params(const Model& model) {
  const std::set<std::string> saved = saved_modules(model);
  std::vector<ParamId> ids;
  for (size_t i = 0; i < model.params.size(); ++i) {
    const std::string& name = model.params[i].name;
    if (is_adapter(name) || saved.count(module_of(name)) > 0)
      ids.push_back(static_cast<ParamId>(i));
  }
  return ids;
}

std::vector<ParamId> base_params(const Model& model) {
  std::vector<ParamId> ids;
  for (size_t i = 0; i < model.params.size(); ++i) {
    if (!is_adapter(model.params[i].name)) ids.push_back(static_cast<ParamId>(i));
  }
  return ids;
}

Tensor merged_parameter(const Model& model, ParamId id,
                        const std::function<Tensor(ParamId)>& whole) {
  const ParamShape& param = model.params[static_cast<size_t>(id)];
  const std::string module = module_of(param.name);
  ParamId a = -1, b = -1;
  for (size_t i = 0; i < model.params.size() && param.name.ends_with(".weight"); ++i) {
    if (model.params[i].name == module + kLoraA) a = static_cast<ParamId>(i);
    if (model.params[i].name == module + kLoraB) b = static_cast<ParamId>(i);
  }
  const Tensor weight = whole(id);
  if (a < 0) return weight;
  const Tensor of_a = whole(a).to(at::kDouble), of_b = whole(b).to(at::kDouble),  // in this order
      change = at::mm(of_b, of_a);
  return weight.to(at::kDouble)
      .add(param.in_out ? change.t() : change, model.lora->scale())
      .to(sum_dtype(weight.scalar_type()));
}

}  // namespace veil
