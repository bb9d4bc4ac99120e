#include "suite/profile_run.h"

#include <ATen/Context.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/quantity.h"
#include "base/units.h"
#include "kernels/random.h"
#include "models/load.h"
#include "plan/estimator.h"
#include "profile/kineto.h"
#include "profile/nvml.h"
#include "profile/stage.h"
#include "profile/trace.h"
#include "suite/machine.h"
#include "suite/peak_flops.h"
#include "suite/phases.h"
#include "suite/remedies.h"
#include "suite/text_feed.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

Batch make_data(const ExperimentOptions& options, const Model& model, int64_t samples, int rank, Device device) {
  CategoryScope scope(Category::data);
  auto make = [&](const DataShape& data, RandomDomain domain) {
    std::vector<int64_t> shape = {samples};
    shape.insert(shape.end(), data.dims.begin(), data.dims.end());
    Tensor tensor = empty_tensor(shape, data.dtype.value_or(dtype_of(options.compute)), device);
    const int64_t first = rank * tensor.numel();
    if (data.classes > 0) {
      fill_whole(tensor, data.classes, static_cast<uint64_t>(options.seed), domain, first);
    } else {
      fill_normal(tensor, 1.0, static_cast<uint64_t>(options.seed), domain, first);
    }
    return tensor;
  };
  Batch batch{make(model.input, RandomDomain::inputs), make(model.target, RandomDomain::targets)};
  if (model.condition) batch.conditions = make(*model.condition, RandomDomain::conditions);
  return batch;
}

double mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double middle = mean(values);
  double sum = 0;
  for (double v : values) sum += (v - middle) * (v - middle);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

Json phases_json(const PhaseTimes& times, bool layers) {
  Json json;
  for (const auto& [phase, ms] : times.compute_ms) json[phase] = {{"ms", ms}};
  json["gap"] = {{"ms", times.gap_ms}};
  if (layers) {
    for (const auto& [row, ms] : times.row_ms) json["layers"][row] = ms;
  }
  return json;
}

// The bytes that stand after each row of the compute lane, weighted by the time from the end of the row before to its own; as they stand where rows were not timed.
double mean_bytes(const Executor& executor, const std::vector<StepTime>& steps, Space space) {
  std::map<std::pair<int, int>, double> weights;  // by part and row
  for (const StepTime& step : steps) {
    for (const RowTime& row : step.rows) {
      if (row.lane == static_cast<int>(Lane::compute)) weights[{row.part, row.op}] += row.wait_ms + row.ms();
    }
  }
  double sum = 0, weight_sum = 0;
  for (const ObservedRow& row : executor.memory_rows()) {
    const auto found = weights.find({static_cast<int>(row.part), row.op});
    const double weight = weights.empty() ? 1 : found == weights.end() ? 0 : found->second;
    sum += weight * static_cast<double>(row.bytes[static_cast<int>(space)].after.total());
    weight_sum += weight;
  }
  return weight_sum > 0 ? sum / weight_sum : 0;
}

Json communication_json(const PhaseTimes& times, bool simulated) {
  Json json = Json::object();
  for (const auto& [lane, time] : times.lanes) {
    json[lane] = {{"total_ms", time.total_ms}, {"exposed_ms", time.exposed_ms}, {"bytes", time.bytes}};
    if (simulated && lane != name_of(Lane::copy)) json[lane]["modelled_ms"] = time.modelled_ms;
  }
  return json;
}

Json rows_json(const Executor& executor, Space space) {
  Json rows = Json::array();
  for (const ObservedRow& row : executor.memory_rows()) {
    const Op& op = executor.schedule().part(row.part)[row.op];
    const ledger::RowBytes& bytes = row.bytes[static_cast<int>(space)];
    rows.push_back({{"part", name_of(row.part)},
                    {"row", row.op},
                    {"op", name_of(op.kind)},
                    {"on", op_target(op, executor.schedule(), executor.shape())},
                    {"after", to_json(bytes.after)},
                    {"peak_bytes", bytes.peak.total()}});
  }
  return rows;
}

// A step's stages: rows of the compute lane by phase, in the order in which the phases begin. Bytes stand at the end of a phase's last row; the peak is that of all its rows.
void add_step_snapshots(const Executor& executor, Space space, Json& snapshots) {
  std::vector<std::string> phases;
  std::map<std::string, std::pair<ledger::RowBytes, CategoryBytes>> last;  // and the phase's highest moment
  for (const ObservedRow& row : executor.memory_rows()) {
    const Op& op = executor.schedule().part(row.part)[row.op];
    if (op.lane != Lane::compute) continue;
    const ledger::RowBytes& bytes = row.bytes[static_cast<int>(space)];
    const std::string phase = phase_of(op, executor.schedule());
    if (!last.count(phase)) {
      phases.push_back(phase);
      last[phase] = {bytes, bytes.peak};
      continue;
    }
    last[phase].first = bytes;
    if (bytes.peak.total() > last[phase].second.total()) last[phase].second = bytes.peak;
  }
  for (const std::string& phase : phases) {
    const auto& [after, peak] = last[phase];
    snapshots.push_back({{"stage", "step: " + phase},
                         {"memory_allocated_bytes", after.after.total()},
                         {"memory_mb", static_cast<double>(after.after.total()) / 1e6},
                         {"peak_bytes", peak.total()},
                         {"breakdown", to_json(after.after)},
                         {"peak_breakdown", to_json(peak)}});
  }
}

// One number of every rank, by rank; every rank gets all.
std::vector<double> of_every_rank(Executor& executor, Device device, double value) {
  Communicator* lane = executor.communicator();
  if (!lane || lane->backend() == "simulated") return {value};
  Tensor all = at::zeros({lane->size()}, at::TensorOptions(at::kDouble).device(device));
  all.narrow(0, lane->rank(), 1).fill_(value);
  lane->all_reduce(all)->wait();
  const Tensor host = all.cpu();
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
}

void write_trace(const Executor& executor, const std::vector<StepTime>& steps, int rank, int world,
                 const std::string& folder, Space space, Json& record) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Trace trace(rank, world, std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  for (int lane = 0; lane < kLanes; ++lane) trace.name_lane(lane, name_of(static_cast<Lane>(lane)));
  double begin = 0;
  for (size_t s = 0; s < steps.size(); ++s) {
    trace.step(0, static_cast<int>(s), begin, steps[s].total_ms);
    const auto& observed = executor.memory_rows();
    size_t row_number = 0;
    for (const RowTime& row : steps[s].rows) {
      const Op& op = executor.schedule().parts[row.part][row.op];
      const double ms = row.modelled_ms > 0 ? std::max(row.ms(), row.modelled_ms) : row.ms();
      trace.span(row.lane, name_of(op.kind) + " " + op_target(op, executor.schedule(), executor.shape()),
                 begin + row.begin_ms, ms);
      if (row_number < observed.size())
        trace.memory(space, begin + row.end_ms, observed[row_number].bytes[static_cast<int>(space)].after);
      ++row_number;
    }
    begin += steps[s].total_ms;
  }
  record["traces"].push_back(trace.write(folder));
}

class Run {
 public:
  Run(const ExperimentOptions& options, const RunPlace& place)
      : options_(options),
        place_(place),
        world_(experiment_world(options, place.info)),
        rank_(options.simulate_world ? options.simulate_rank : place.info.rank),
        device_(choose_device(options, place.info)),
        space_(space_of(device_)) {}

  Json measure() {
    describe();
    set_arithmetic(options_);
    ModelSource source = model_source(options_);
    if (!options_.data.empty()) samples_ = load_text(options_, source);
    const Model model = make_model(options_, source, world_);
    describe_model(source, model);
    const int64_t batch = rank_batch(options_, world_);
    if (const std::string message = beyond_host_memory(model, batch); !message.empty()) return out_of_memory(message);
    if (samples_)
      feed_ = std::make_unique<TextFeed>(samples_, batch * options_.accumulation, options_.seed, rank_, world_);
    Batch data = make_data(options_, model, batch * options_.accumulation, rank_, device_);
    synchronize(device_);
    stage("after data creation");

    ExecutorOptions settings;
    settings.step = step_options(options_, world_, device_.is_cuda());
    if (source.has_weights()) {
      const InitialWeights initial = source.config ? load_weights(source.folder, *source.config, model.params)
                                                   : load_weights(source.folder, model.params);
      settings.initial = initial.fill;
      record_["notices"] = initial.notices;
    }
    const ModelShape shape = model.shape(batch, settings.step.compute, device_.is_cuda());
    make_private(options_, shape, device_, settings);
    describe_clipping(settings, shape);
    settings.optimizer.kind = options_.optimizer;
    settings.optimizer.momentum = options_.momentum;
    settings.optimizer.weight_decay = options_.weight_decay;
    settings.seed = static_cast<uint64_t>(options_.seed);
    settings.graph = options_.graph;
    settings.time_reports = options_.wants(ProfileKind::norms);
    settings.time_rows =
        settings.time_reports || options_.wants(ProfileKind::phases) || options_.wants(ProfileKind::layers);
    settings.watch_memory = options_.wants(ProfileKind::memory);
    Executor executor(model, batch, settings, device_, std::move(data), make_ranks(options_, place_.info, device_));
    stage("after model creation");

    executor.prepare();
    record_["graph"] = executor.graph_state();
    for (int64_t i = 0; i < options_.warmup; ++i) {
      if (feed_) feed_->load_next(executor);
      executor.step(options_.learning_rate);
      progress("warm-up", i + 1);
    }
    executor.wait();
    stage("after warmup");
    ledger::reset_peak(space_);
    ledger::reset_peak(Space::pinned);

    timed_steps(executor, settings.time_rows);
    record_["end_to_end_seconds"] = (steady_ms() - begin_ms_) / 1e3;
    stage("end");
    record_["snapshots"] = record_["stages"];  // the seeds' name for them
    if (options_.wants(ProfileKind::memory)) add_step_snapshots(executor, space_, record_["snapshots"]);
    summarise_run(executor);
    if (options_.wants(ProfileKind::kernels)) kernels(executor);
    return record_;
  }

  Json out_of_memory(const std::string& message) {
    record_["outcome"] = "oom";
    record_["message"] = message;
    record_["remedies"] = remedies(options_, world_, device_.is_cuda());
    return record_;
  }

 private:
  void describe() {
    record_["schema"] = 1;
    record_["outcome"] = "ok";
    record_["mode"] = name_of(options_.clip_choice.mode);
    record_["seq_length"] = nullptr;
    record_["batch_size"] = rank_batch(options_, world_);
    record_["total_batch_size"] = rank_batch(options_, world_) * world_ * options_.accumulation;
    record_["num_gpus"] = device_.is_cuda() ? world_ : 0;
    record_["world"] = world_;
    record_["simulated"] = options_.simulate_world.has_value();
    record_["device"] = device_.is_cuda() ? "cuda" : "cpu";
    record_["rng"] = name_of(options_.rng);
    record_["precision"] = {{"storage", name_of(options_.storage)},
                            {"compute", name_of(options_.compute)},
                            {"reduce", name_of(options_.reduce)},
                            {"moments", name_of(options_.moments)},
                            {"tf32", options_.tf32},
                            {"deterministic", options_.deterministic}};
    record_["build"] = build_json();
    record_["machine"] = machine_json(this_machine());
    record_["stages"] = Json::array();
    record_["traces"] = Json::array();
  }

  void describe_model(const ModelSource& source, const Model& model) {
    tokens_ = source.diffusion ? source.diffusion->tokens() : options_.seq_length;
    if (source.diffusion) {
      const DitConfig& config = *source.diffusion;
      record_["diffusion"] = {{"image_size", config.image_size}, {"patch_size", config.patch},
                              {"in_channels", config.channels},  {"num_classes", config.classes},
                              {"hidden_dim", config.hidden},     {"num_layers", config.layers},
                              {"num_heads", config.heads},       {"tokens", config.tokens()}};
      record_["seq_length"] = config.tokens();
      record_["attention"] = attention_backend(options_.attention, dtype_of(options_.compute), device_);
      record_["parameters"] = model.shape(1, dtype_of(options_.compute), device_.is_cuda()).param_count();
    }
    if (!source.config) return;
    record_["seq_length"] = options_.seq_length;
    record_["task"] = name_of(source.config->task);
    record_["fused_kernels"] = device_.is_cuda() ? "on" : "off: no GPU";
    record_["attention"] = attention_backend(options_.attention, dtype_of(options_.compute), device_);
    record_["vocab_size"] = source.config->vocabulary;
    if (source.name != options_.model)
      record_["notices"].push_back(
          fmt::format("{} was not fetched: the shape of {} with random weights", options_.model, source.name));
    record_["parameters"] = model.shape(1, dtype_of(options_.compute), device_.is_cuda()).param_count();
  }

  void describe_clipping(const ExecutorOptions& settings, const ModelShape& shape) {
    if (!settings.step.clip) return;
    const privacy::ClipPlan& plan = *settings.step.clip;
    Json& json = record_["clip"];
    json["pass_plan"] = name_of(plan.pass);
    json["function"] = name_of(options_.clip);
    json["clip_norm"] = options_.clip_norm;
    json["sigma"] = options_.sigma;
    json["tile"] = plan.tile;
    for (size_t id = 0; id < shape.params.size() && plan.pass != privacy::PassPlan::keep; ++id)
      json["rules"][shape.params[id].name] = name_of(plan.rules[id]);
  }

  // An operating system promises more memory than it has, and ends the process that takes it at its word: what cannot fit is told before. "" where it fits.
  std::string beyond_host_memory(const Model& model, int64_t batch) const {
    if (device_.is_cuda()) return "";
    ExecutorOptions settings;
    settings.step = step_options(options_, world_, /*on_gpu=*/false);
    const ModelShape shape = model.shape(batch, settings.step.compute, /*on_gpu=*/false);
    make_private(options_, shape, {}, settings);
    const int64_t needed = estimate_memory(build_schedule(shape, settings.step)).peak(Space::host).total();
    const int64_t ranks = place_.info.local_world, all = this_machine().memory_bytes;
    if (needed <= all / ranks) return "";
    return fmt::format("{} a rank for {} on a host that has {}", format_bytes(needed), quantity(ranks, "rank"),
                       format_bytes(all));
  }

  void stage(const std::string& name) {
    const Json line = to_json(take_stage_memory(name, rank_, device_));
    record_["stages"].push_back(line);
    if (place_.on_stage) place_.on_stage(line);
  }

  void progress(const char* what, int64_t done) {
    const int64_t total = options_.warmup + options_.iterations;
    if (place_.on_progress && place_.info.rank == 0)
      place_.on_progress(fmt::format("{} {}/{}", what, done, total), done, total);
  }

  void timed_steps(Executor& executor, bool rows) {
    if (feed_) feed_->begin_counting();
    GpuSampler sampler(device_.is_cuda() ? device_.index() : -1);
    std::vector<Marker> begins, ends;
    for (int64_t i = 0; i < options_.iterations; ++i) {
      const Marker begin = executor.mark();
      if (feed_) feed_->load_next(executor);
      executor.step(options_.learning_rate);
      ends.push_back(executor.mark());
      begins.push_back(begin);
      losses_.push_back(executor.loss_sum());
      if (rows) steps_.push_back(executor.read_times());
      progress("step", options_.warmup + i + 1);
    }
    executor.wait();
    for (size_t i = 0; i < ends.size(); ++i) times_.push_back(ends[i].ms_since(begins[i]));
    if (const auto gpu = sampler.stop()) {
      utilisation_ = gpu->mean.utilisation_percent;
      record_["gpu_state"] = {{"utilisation_percent", gpu->mean.utilisation_percent},
                              {"sm_clock_mhz", gpu->mean.sm_clock_mhz},
                              {"temperature_c", gpu->mean.temperature_c},
                              {"power_w", gpu->mean.power_w}};
    }
  }

  void summarise_run(Executor& executor) {
    const double samples = static_cast<double>(rank_batch(options_, world_)) * options_.accumulation;
    record_["losses"] = Json::array();
    for (double sum : losses_) {
      const std::vector<double> all = of_every_rank(executor, device_, sum);
      record_["losses"].push_back(std::accumulate(all.begin(), all.end(), 0.0) /
                                  (samples * static_cast<double>(all.size())));
    }
    const CategoryBytes peak = ledger::peak(space_);
    record_["times_ms"] = times_;
    record_["avg_time_ms"] = mean(times_);
    record_["std_time_ms"] = deviation(times_);
    record_["peak_memory_bytes"] = peak.total();
    record_["peak_memory_mb"] = static_cast<double>(peak.total()) / 1e6;
    record_["peak_memory_gb"] = static_cast<double>(peak.total()) / 1e9;
    record_["breakdown"] = to_json(peak);
    record_["pinned_peak_bytes"] = ledger::peak(Space::pinned).total();
    const MemoryEstimate estimate = estimate_memory(executor.schedule());
    record_["estimated_peak_bytes"] = estimate.peak(space_).total();
    if (options_.wants(ProfileKind::memory)) record_["memory_rows"] = rows_json(executor, space_);
    if (!steps_.empty()) {
      const PhaseTimes times = summarise(steps_, executor.schedule(), executor.shape());
      record_["phases"] = phases_json(times, options_.wants(ProfileKind::layers));
      if (feed_) record_["phases"]["data"] = {{"ms", feed_->load_ms()}};
      record_["communication"] = communication_json(times, options_.simulate_world.has_value());
      record_["phase_sum_ms"] = times.sum_ms() + (feed_ ? feed_->load_ms() : 0);
      if (options_.simulate_world) model_communication(executor.schedule());
      if (!place_.trace_folder.empty())
        write_trace(executor, steps_, rank_, world_, place_.trace_folder, space_, record_);
    }
    if (record_.contains("parameters")) throughput(executor.shape());
    if (feed_) record_["data"] = feed_->json(options_.data);
    const double mean_memory = mean_bytes(executor, steps_, space_);
    if (options_.wants(ProfileKind::memory)) record_["memory_mean_bytes"] = std::llround(mean_memory);
    describe_ranks(executor, static_cast<double>(peak.total()), mean_memory);
  }

  // Collectives as the link would carry them; a batch is loaded before the first row, so its time is added.
  void model_communication(const Schedule& schedule) {
    std::vector<double> steps;
    std::map<std::string, double> exposed;
    for (const StepTime& step : steps_) {
      const ModelledStep modelled = modelled_step(step, schedule);
      steps.push_back(modelled.ms + (feed_ ? feed_->load_ms() : 0));
      for (const auto& [lane, ms] : modelled.exposed_ms) exposed[lane] += ms / static_cast<double>(steps_.size());
    }
    for (auto& [lane, entry] : record_["communication"].items()) {
      if (entry.contains("modelled_ms")) entry["modelled_exposed_ms"] = exposed[lane];
    }
    record_["modelled_step_ms"] = mean(steps);
    record_["link_gb_per_s"] = options_.link_gb_per_s;
  }

  void describe_ranks(Executor& executor, double peak, double mean_memory) {
    const std::vector<double> rank_times = of_every_rank(executor, device_, mean(times_));
    const std::vector<double> rank_peaks = of_every_rank(executor, device_, peak);
    const std::vector<double> rank_means = of_every_rank(executor, device_, mean_memory);
    const std::vector<double> rank_busy = of_every_rank(executor, device_, utilisation_);
    record_["ranks"] = Json::array();
    for (size_t r = 0; r < rank_times.size(); ++r) {
      record_["ranks"].push_back({{"rank", options_.simulate_world ? rank_ : static_cast<int>(r)},
                                  {"avg_time_ms", rank_times[r]},
                                  {"peak_memory_bytes", static_cast<int64_t>(rank_peaks[r])}});
      Json& line = record_["ranks"].back();
      if (options_.wants(ProfileKind::memory)) line["memory_mean_bytes"] = std::llround(rank_means[r]);
      if (rank_busy[r] >= 0) line["utilisation_percent"] = rank_busy[r];
    }
  }

  // Tokens of all ranks a second (in a simulated world of its modelled step), and how much of the device's peak the model's own FLOPs are (models/flops.h).
  void throughput(const ModelShape& shape) {
    const double seconds = record_.value("modelled_step_ms", mean(times_)) / 1e3;
    const double micro_batches = static_cast<double>(options_.accumulation) * world_;
    record_["tokens_per_second"] = static_cast<double>(shape.batch * tokens_) * micro_batches / std::max(1e-9, seconds);
    const double flops = 3.0 * static_cast<double>(shape.model_flops()) * options_.accumulation;
    record_["tflops_per_second_a_rank"] = flops / seconds / 1e12;
    const double peak = device_.is_cuda() ? peak_tflops(dtype_of(options_.compute)) : 0;
    if (peak > 0) {
      record_["mfu"] = flops / seconds / 1e12 / peak;
      record_["mfu_convention"] =
          fmt::format("3 x forward FLOPs of products and causal attention / {} TFLOP/s dense peak", peak);
    }
  }

  double peak_tflops(DType compute) const {
    const std::vector<GpuInfo> found = gpus();
    const auto index = static_cast<size_t>(device_.index());
    return index < found.size() ? peak_tflops_of(found[index].name, compute) : 0;
  }

  // Two more steps under Kineto, after everything that is timed.
  void kernels(Executor& executor) {
    if (place_.trace_folder.empty()) return;
    KernelProfile profile;
    profile.start();
    for (int i = 0; i < 2; ++i) executor.step(options_.learning_rate);
    executor.wait();
    const std::string path = join_path(place_.trace_folder, "kernels_" + trace_file_name());
    profile.stop_and_save(path);
    record_["traces"].push_back(path);
    Json top = Json::array();
    for (const OperatorTime& op : profile.operators()) {
      if (top.size() >= 40) break;
      top.push_back({{"name", op.name}, {"on_gpu", op.on_gpu}, {"calls", op.calls}, {"total_ms", op.total_ms}});
    }
    record_["kernels"] = top;
  }

  const ExperimentOptions& options_;
  const RunPlace& place_;
  int world_, rank_;
  Device device_;
  Space space_;
  Json record_;
  int64_t tokens_ = 0;  // a sample
  double begin_ms_ = steady_ms(), utilisation_ = -1;
  std::shared_ptr<const data::Samples> samples_;
  std::unique_ptr<TextFeed> feed_;  // none: synthetic data, the same every step
  std::vector<double> times_, losses_;
  std::vector<StepTime> steps_;
};

}  // namespace

int experiment_world(const ExperimentOptions& options, const RankInfo& info) {
  return options.simulate_world.value_or(info.world);
}

void set_arithmetic(const ExperimentOptions& options) {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(options.tf32);
  context.setAllowTF32CuDNN(options.tf32);
  if (!options.deterministic) return;
  // A kernel without an order of its own throws from now on instead of being taken. cuBLAS is told through the environment alone.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/1);
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);
}

Device choose_device(const ExperimentOptions& options, const RankInfo& info) {
  const bool gpu = options.device == DeviceKind::gpu || (options.device == DeviceKind::automatic && gpu_count() > 0);
  if (!gpu) return cpu_device();
  if (info.local_world > gpu_count() && gpu_count() > 0 && !options.share_gpu) {
    user_error("{} on {}: one rank a GPU is allowed; pass --share-gpu to let ranks share one, or --device cpu",
               quantity(info.local_world, "rank"), quantity(gpu_count(), "GPU"));
  }
  return gpu_device(gpu_count() > 0 ? info.local_rank % gpu_count() : 0);
}

Ranks make_ranks(const ExperimentOptions& options, const RankInfo& info, Device device) {
  if (options.simulate_world) {
    if (*options.simulate_world == 1) return {};
    SimulatedLink link;
    link.bandwidth_bytes_per_s = options.link_gb_per_s * 1e9;
    auto lane = [&] {
      return make_simulated_communicator(options.simulate_rank, *options.simulate_world, device, link);
    };
    return {lane(), lane()};
  }
  if (info.world == 1) return {};
  const bool nccl = device.is_cuda() && !options.share_gpu;
  auto lane = [&](int number) {
    return nccl ? make_nccl_communicator(number, device) : make_mpi_communicator(number, device);
  };
  std::unique_ptr<Communicator> gather = lane(0), reduce = lane(1);  // in this order on every rank
  return {std::move(gather), std::move(reduce)};
}

nlohmann::ordered_json run_experiment(const ExperimentOptions& options, const RunPlace& place) {
  check_options(options);
  Run run(options, place);
  // On this rank, whatever the others do: "oom_rank" tells it from an outcome that all ranks agree on.
  auto here = [&](const std::string& message) {
    Json record = run.out_of_memory(message);
    record["oom_rank"] = place.info.rank;
    return record;
  };
  try {
    return run.measure();
  } catch (const c10::OutOfMemoryError& error) {
    return here(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return here("the host's memory is used up");
  } catch (const c10::Error& error) {  // LibTorch's CPU allocator has no error of its own
    const std::string text = error.what_without_backtrace();
    if (text.find("DefaultCPUAllocator") == std::string::npos) throw;
    return here(text);
  }
}

}  // namespace veil
