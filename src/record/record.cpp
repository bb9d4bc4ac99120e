#include "record/record.h"

#include <fmt/core.h>

#include "base/units.h"
#include "profile/stage.h"

namespace veil {

using Json = nlohmann::ordered_json;

namespace {

constexpr int64_t kSchema = 1;
constexpr double kGib = static_cast<double>(kGiB);
constexpr const char* kLayers = "layers";  // under "phases", where the others are phases

}  // namespace

template <typename Visit>
void fields(RecordStage& s, Visit& visit) {
  visit("stage", s.stage);
  visit("rank", s.rank);
  visit.constant("log_key", "memory");
  // Here "GB" is 2^30 bytes, on a CPU too.
  visit.scaled("cuda_memory_allocated_GB", s.allocated_bytes, kGib);
  visit.scaled("cuda_max_memory_allocated_GB", s.max_allocated_bytes, kGib);
  visit.scaled("cuda_memory_reserved_GB", s.reserved_bytes, kGib);
  visit.scaled("cuda_max_memory_reserved_GB", s.max_reserved_bytes, kGib);
  visit.scaled("cpu_memory_rss_GB", s.host_bytes, kGib);
  visit("device", s.device);
  visit.whole("memory_allocated_bytes", s.allocated_bytes);
  visit.whole("max_memory_allocated_bytes", s.max_allocated_bytes);
  visit.whole("memory_reserved_bytes", s.reserved_bytes);
  visit.whole("max_memory_reserved_bytes", s.max_reserved_bytes);
  visit.whole("cpu_memory_rss_bytes", s.host_bytes);
  visit.whole("outside_allocator_bytes", s.outside_allocator_bytes);
  visit.whole("bytes_by_category", s.by_category);
  visit.whole("peak_bytes_by_category", s.peak_by_category);
}

template <typename Visit>
void fields(RecordSnapshot& s, Visit& visit) {
  visit("stage", s.stage);
  visit.whole("memory_allocated_bytes", s.allocated_bytes);
  visit.scaled("memory_mb", s.allocated_bytes, 1e6);
  visit.whole("peak_bytes", s.peak_bytes);
  visit.whole("breakdown", s.breakdown);
  visit.whole("peak_breakdown", s.peak_breakdown);
}

template <typename Visit>
void fields(RecordRow& r, Visit& visit) {
  visit("part", r.part);
  visit("row", r.row);
  visit("op", r.op);
  visit("on", r.on);
  visit.whole("after", r.after);
  visit.whole("peak_bytes", r.peak_bytes);
}

template <typename Visit>
void fields(RecordTransfer& t, Visit& visit) {
  visit("total_ms", t.total_ms);
  visit("exposed_ms", t.exposed_ms);
  visit.whole("bytes", t.bytes);
  visit("modelled_ms", t.modelled_ms);
  visit("modelled_exposed_ms", t.modelled_exposed_ms);
}

template <typename Visit>
void fields(RecordRank& r, Visit& visit) {
  visit("rank", r.rank);
  visit("avg_time_ms", r.avg_time_ms);
  visit.whole("peak_memory_bytes", r.peak_memory_bytes);
  visit.whole("memory_mean_bytes", r.memory_mean_bytes);
  visit("utilisation_percent", r.utilisation_percent);
}

template <typename Visit>
void fields(RecordData& d, Visit& visit) {
  visit("source", d.source);
  visit("tokenizer", d.tokenizer);
  visit("documents", d.documents);
  visit("tokens", d.tokens);
  visit("samples", d.samples);
  visit("steps_an_epoch", d.steps_an_epoch);
  visit("loader_busy_ms", d.loader_busy_ms);
  visit("loader_waited_ms", d.loader_waited_ms);
  visit("load_ms", d.load_ms);
}

template <typename Visit>
void fields(RecordPrecision& p, Visit& visit) {
  visit("storage", p.storage);
  visit("compute", p.compute);
  visit("reduce", p.reduce);
  visit("moments", p.moments);
  visit("tf32", p.tf32);
  visit("deterministic", p.deterministic);
}

template <typename Visit>
void fields(RecordClip& c, Visit& visit) {
  visit("pass_plan", c.pass_plan);
  visit("function", c.function);
  visit("clip_norm", c.clip_norm);
  visit("sigma", c.sigma);
  visit("tile", c.tile);
  visit("combine_every", c.combine_every);
  visit("rules", c.rules);
}

template <typename Visit>
void fields(RecordDiffusion& d, Visit& visit) {
  visit("image_size", d.image_size);
  visit("patch_size", d.patch_size);
  visit("in_channels", d.in_channels);
  visit("num_classes", d.num_classes);
  visit("hidden_dim", d.hidden_dim);
  visit("num_layers", d.num_layers);
  visit("num_heads", d.num_heads);
  visit("tokens", d.tokens);
}

template <typename Visit>
void fields(RecordGpu& g, Visit& visit) {
  visit("utilisation_percent", g.utilisation_percent);
  visit("sm_clock_mhz", g.sm_clock_mhz);
  visit("temperature_c", g.temperature_c);
  visit("power_w", g.power_w);
}

template <typename Visit>
void fields(RecordCpu& c, Visit& visit) {
  visit("others_percent", c.others_percent);
  visit("own_percent", c.own_percent);
}

template <typename Visit>
void fields(RecordKernel& k, Visit& visit) {
  visit("name", k.name);
  visit("on_gpu", k.on_gpu);
  visit("calls", k.calls);
  visit("total_ms", k.total_ms);
}

template <typename Visit>
void fields(RecordRepeat& r, Visit& visit) {
  visit("avg_time_ms", r.avg_time_ms);
  visit("std_time_ms", r.std_time_ms);
}

// All members except phases and snapshots, whose JSON has another shape.
template <typename Visit>
void fields(Record& r, Visit& visit) {
  // A run that started writes some of its members even if they are empty.
  const bool began = !r.mode.empty();
  visit("outcome", r.outcome);
  visit("message", r.message);
  visit("mode", r.mode);
  visit.always_if(began, "seq_length", r.seq_length);
  visit("batch_size", r.batch_size);
  visit("total_batch_size", r.total_batch_size);
  visit("num_gpus", r.num_gpus);
  visit("world", r.world);
  visit.flag_if(began, "simulated", r.simulated);
  visit("device", r.device);
  visit("rng", r.rng);
  visit("precision", r.precision);
  visit("build", r.build);
  visit("machine", r.machine);
  visit.always_if(began, "stages", r.stages);
  visit.always_if(began, "traces", r.traces);
  visit("diffusion", r.diffusion);
  visit("task", r.task);
  visit("fused_kernels", r.fused_kernels);
  visit("attention", r.attention);
  visit("vocab_size", r.vocab_size);
  visit("parameters", r.parameters);
  visit("notices", r.notices);
  visit("weights", r.weights);
  visit("clip", r.clip);
  visit("graph", r.graph);
  visit("gpu_state", r.gpu_state);
  visit("end_to_end_seconds", r.end_to_end_seconds);
  visit("losses", r.losses);
  visit("times_ms", r.times_ms);
  visit("avg_time_ms", r.avg_time_ms);
  visit("std_time_ms", r.std_time_ms);
  visit.whole("peak_memory_bytes", r.peak_memory_bytes);
  visit.scaled("peak_memory_gb", r.peak_memory_bytes, 1e9);
  visit.scaled("peak_memory_mb", r.peak_memory_bytes, 1e6);
  visit.whole("breakdown", r.breakdown);
  visit.whole("pinned_peak_bytes", r.pinned_peak_bytes);
  visit.whole("estimated_peak_bytes", r.estimated_peak_bytes);
  visit("memory_rows", r.memory_rows);
  visit.always_if(!r.phases.empty(), "communication", r.communication);
  visit("phase_sum_ms", r.phase_sum_ms);
  visit("modelled_step_ms", r.modelled_step_ms);
  visit("link_gb_per_s", r.link_gb_per_s);
  visit("predicted_step_ms", r.predicted_step_ms);
  visit("tokens_per_second", r.tokens_per_second);
  visit("tflops_per_second_a_rank", r.tflops_per_second_a_rank);
  visit("mfu", r.mfu);
  visit("mfu_convention", r.mfu_convention);
  visit("data", r.data);
  visit.whole("memory_mean_bytes", r.memory_mean_bytes);
  visit("ranks", r.ranks);
  visit("kernels", r.kernels);
  visit("remedies", r.remedies);
  visit("oom_rank", r.oom_rank);
  visit("command", r.command);
  visit("config", r.config);
  visit("gpu_before", r.gpu_before);
  visit("cpu_during", r.cpu_during);
  visit("suite", r.suite);
  visit("order", r.order);
  visit("experiment", r.experiment);
  visit("title", r.title);
  visit("arguments", r.arguments);
  visit("repeats", r.repeats);
}

namespace {

template <typename Struct>
Json written(const Struct& value) {
  Json json = Json::object();
  FieldWriter writer(json);
  fields(const_cast<Struct&>(value), writer);
  return json;
}

// Some records hold the times of the steps and not their mean.
void complete_times(Record& record) {
  if (record.times_ms.empty()) return;
  const auto count = static_cast<double>(record.times_ms.size());
  double mean = 0, squares = 0;
  for (const double time : record.times_ms) mean += time / count;
  for (const double time : record.times_ms) squares += (time - mean) * (time - mean);
  if (!record.avg_time_ms) record.avg_time_ms = mean;
  if (!record.std_time_ms && record.times_ms.size() > 1)
    record.std_time_ms = std::sqrt(squares / (count - 1));
}

void read_phases(const FieldReader& reader, Record& record) {
  const Json* const phases = reader.find("phases");
  if (!phases) return;
  if (!phases->is_object()) wrong_type("phases", *phases, "an object");
  for (const auto& [name, entry] : phases->items()) {
    if (!entry.is_object()) wrong_type(name, entry, "an object");
    if (name == kLayers) {
      FieldReader::read(name, entry, record.layer_ms);
      continue;
    }
    std::optional<double> ms;
    FieldReader{entry}("ms", ms);
    if (ms) record.phases[name] = *ms;
  }
}

// The list begins with the memory lines of `stages`.
void read_snapshots(const FieldReader& reader, Record& record) {
  std::optional<std::vector<RecordSnapshot>> all;
  if (const Json* const found = reader.find("snapshots"))
    FieldReader::read("snapshots", *found, all);
  if (!all) return;
  std::erase_if(*all, [](const RecordSnapshot& s) { return !s.stage.starts_with("step: "); });
  record.step_snapshots = std::move(all);
}

Json phases_json(const Record& record) {
  Json json = Json::object();
  for (const auto& [phase, ms] : phases_in_order(record)) json[phase] = {{"ms", ms}};
  if (!record.layer_ms.empty()) json[kLayers] = record.layer_ms;
  return json;
}

Json snapshots_json(const Record& record) {
  Json list = Json::array();
  for (const RecordStage& stage : record.stages) list.push_back(to_json(stage));
  for (const RecordSnapshot& snapshot : *record.step_snapshots) list.push_back(written(snapshot));
  return list;
}

}  // namespace

std::string Record::gpu_outside() const {
  return gpu_before.is_object() ? gpu_before.value("outside", "") : "";
}

Json to_json(const Record& record) {
  Json json = {{"schema", kSchema}};
  json.update(written(record));
  if (record.step_snapshots) json["snapshots"] = snapshots_json(record);
  if (!record.phases.empty()) json["phases"] = phases_json(record);
  return json;
}

Record record_from_json(const Json& json) {
  if (!json.is_object()) throw DamagedRecordError("it holds no JSON object");
  const FieldReader reader(json);
  std::optional<int64_t> schema;
  FieldReader{json}("schema", schema);
  if (schema && *schema > kSchema)
    throw DamagedRecordError(fmt::format(
        "its schema {} is newer than {}, the newest that this program knows", *schema, kSchema));
  Record record;
  FieldReader::read("", json, record);
  read_phases(reader, record);
  read_snapshots(reader, record);
  complete_times(record);
  if (record.outcome == "ok" && !(record.avg_time_ms && record.peak_memory_bytes))
    throw DamagedRecordError(fmt::format("it says that all went well and holds no {}",
                                         record.avg_time_ms         ? "peak memory"
                                         : record.peak_memory_bytes ? "time"
                                                                    : "time and no peak memory"));
  return record;
}

RecordStage stage_line(const StageMemory& memory) {
  const auto bytes = [](int64_t count) { return static_cast<double>(count); };
  RecordStage line{.stage = memory.stage,
                   .rank = memory.rank,
                   .device = memory.device.str(),
                   .allocated_bytes = bytes(memory.figures.allocated_bytes),
                   .max_allocated_bytes = bytes(memory.figures.max_allocated_bytes),
                   .reserved_bytes = bytes(memory.figures.reserved_bytes),
                   .max_reserved_bytes = bytes(memory.figures.max_reserved_bytes),
                   .host_bytes = bytes(memory.resident_bytes),
                   .outside_allocator_bytes = bytes(memory.outside_allocator_bytes)};
  for (const Space space : {Space::host, Space::device, Space::pinned}) {
    const auto index = static_cast<size_t>(space);
    line.by_category[space_name(space)] = amounts_of(memory.current[index]);
    line.peak_by_category[space_name(space)] = amounts_of(memory.peak[index]);
  }
  return line;
}

Json to_json(const RecordStage& stage) {
  return written(stage);
}

Json to_json(const StageMemory& memory) {
  return to_json(stage_line(memory));
}

RecordCpu cpu_from_json(const Json& json) {
  RecordCpu cpu;
  if (json.is_object()) FieldReader::read("cpu_during", json, cpu);
  return cpu;
}

Amounts amounts_of(const CategoryBytes& bytes) {
  Amounts amounts;
  for (int i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (bytes[category] != 0)
      amounts[category_name(category)] = static_cast<double>(bytes[category]);
  }
  return amounts;
}

std::vector<std::pair<std::string, double>> phases_in_order(const Record& record) {
  std::vector<std::pair<std::string, double>> ordered;
  for (const auto& [phase, ms] : record.phases) {
    if (phase != "gap" && phase != "data") ordered.emplace_back(phase, ms);
  }
  for (const char* const last : {"gap", "data"}) {
    if (const auto found = record.phases.find(last); found != record.phases.end())
      ordered.push_back(*found);
  }
  return ordered;
}

}  // namespace veil
