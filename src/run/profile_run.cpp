#include "run/profile_run.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <cmath>
#include <map>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/quantity.h"
#include "base/units.h"
#include "estimate/estimator.h"
#include "estimate/replay.h"
#include "estimate/time_estimate.h"
#include "kernels/random.h"
#include "models/load.h"
#include "profile/kineto.h"
#include "profile/nvml.h"
#include "profile/stage.h"
#include "profile/trace.h"
#include "run/machine.h"
#include "run/phases.h"
#include "run/ranks.h"
#include "run/resources.h"
#include "run/text_data.h"
#include "tensor/out_of_memory.h"

namespace veil {
namespace {

Batch make_data(const RunConfig& config, const Model& model, int64_t samples, int rank,
                Device device) {
  CategoryScope scope(Category::data);
  auto make = [&](const DataShape& data, RandomDomain domain) {
    std::vector<int64_t> shape = {samples};
    shape.insert(shape.end(), data.dims.begin(), data.dims.end());
    Tensor tensor = empty_tensor(shape, data.dtype.value_or(dtype_of(config.step.compute)), device);
    const int64_t first = rank * tensor.numel();
    if (data.classes > 0) {
      fill_whole(tensor, data.classes, static_cast<uint64_t>(config.seed), domain, first);
    } else {
      fill_normal(tensor, 1.0, static_cast<uint64_t>(config.seed), domain, first);
    }
    return tensor;
  };
  Batch batch{make(model.input, RandomDomain::inputs), make(model.target, RandomDomain::targets)};
  if (model.condition) batch.conditions = make(*model.condition, RandomDomain::conditions);
  return batch;
}

double mean(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double middle = mean(values);
  double sum = 0;
  for (double v : values) sum += (v - middle) * (v - middle);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

// The bytes that stand after each row of the compute lane, weighted by the time from the end of the
// row before to its own; as they stand if rows were not timed.
double mean_bytes(const Executor& executor, const std::vector<StepTime>& steps, Space space) {
  std::map<std::pair<int, int>, double> weights;  // by part and row
  for (const StepTime& step : steps) {
    for (const RowTime& row : step.rows) {
      if (row.lane == static_cast<int>(Lane::compute))
        weights[{row.part, row.op}] += row.wait_ms + row.ms();
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

std::map<std::string, RecordTransfer> transfers(const PhaseTimes& times, bool simulated) {
  std::map<std::string, RecordTransfer> result;
  for (const auto& [lane, time] : times.lanes) {
    RecordTransfer& transfer = result[lane];
    transfer.total_ms = time.total_ms;
    transfer.exposed_ms = time.exposed_ms;
    transfer.bytes = static_cast<double>(time.bytes);
    if (simulated && lane != name_of(Lane::copy)) transfer.modelled_ms = time.modelled_ms;
  }
  return result;
}

std::vector<RecordRow> memory_rows(const Executor& executor, Space space) {
  std::vector<RecordRow> rows;
  for (const ObservedRow& row : executor.memory_rows()) {
    const Op& op = executor.schedule().part(row.part)[row.op];
    const memory::RowBytes& bytes = row.bytes[static_cast<int>(space)];
    rows.push_back({.part = name_of(row.part),
                    .op = name_of(op.kind),
                    .on = op_target(op, executor.schedule(), executor.shape()),
                    .row = row.op,
                    .after = amounts_of(bytes.after),
                    .peak_bytes = static_cast<double>(bytes.peak.total())});
  }
  return rows;
}

// A step's stages: rows of the compute lane by phase, in the order in which the phases begin. Bytes
// are those at the end of a phase's last row; the peak is that of all its rows.
std::vector<RecordSnapshot> step_snapshots(const Executor& executor, Space space) {
  std::vector<std::string> phases;
  // and the phase's highest moment
  std::map<std::string, std::pair<memory::RowBytes, CategoryBytes>> last;
  for (const ObservedRow& row : executor.memory_rows()) {
    const Op& op = executor.schedule().part(row.part)[row.op];
    if (op.lane != Lane::compute) continue;
    const memory::RowBytes& bytes = row.bytes[static_cast<int>(space)];
    const std::string phase = phase_of(op, executor.schedule());
    if (!last.count(phase)) {
      phases.push_back(phase);
      last[phase] = {bytes, bytes.peak};
      continue;
    }
    last[phase].first = bytes;
    if (bytes.peak.total() > last[phase].second.total()) last[phase].second = bytes.peak;
  }
  std::vector<RecordSnapshot> snapshots;
  for (const std::string& phase : phases) {
    const auto& [after, peak] = last[phase];
    snapshots.push_back({.stage = "step: " + phase,
                         .allocated_bytes = static_cast<double>(after.after.total()),
                         .peak_bytes = static_cast<double>(peak.total()),
                         .breakdown = amounts_of(after.after),
                         .peak_breakdown = amounts_of(peak)});
  }
  return snapshots;
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

std::string write_trace(const Executor& executor, const std::vector<StepTime>& steps, int rank,
                        int world, const std::string& folder, Space space) {
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
      trace.span(row.lane,
                 name_of(op.kind) + " " + op_target(op, executor.schedule(), executor.shape()),
                 begin + row.begin_ms, ms);
      if (row_number < observed.size())
        trace.memory(space, begin + row.end_ms,
                     observed[row_number].bytes[static_cast<int>(space)].after);
      ++row_number;
    }
    begin += steps[s].total_ms;
  }
  return trace.write(folder);
}

class Run {
 public:
  Run(const RunConfig& config, const RunPlace& place)
      : config_(settled(config, place)),
        place_(place),
        world_(experiment_world(config, place.info)),
        rank_(config.placement.simulate_world ? config.placement.simulate_rank : place.info.rank),
        device_(choose_device(config, place.info)),
        space_(space_of(device_)) {}

  Record measure() {
    describe();
    set_arithmetic(config_);
    ModelSource source = model_source(config_);
    if (!config_.data.path.empty()) samples_ = load_text(config_, source).samples;
    Model model = make_model(config_, source, world_);
    if (config_.placement.simulate_world && world_ > 1) vary_constants(model);
    describe_model(source, model);
    const int64_t batch = rank_batch(config_, world_);
    if (const std::string message = beyond_host_memory(model, batch); !message.empty())
      return out_of_memory(message);
    if (samples_)
      feed_ = std::make_unique<TextFeed>(samples_, batch * config_.step.accumulation, config_.seed,
                                         rank_, world_);
    Batch data = make_data(config_, model, batch * config_.step.accumulation, rank_, device_);
    synchronize(device_);
    stage("after data creation");

    const StepOptions step = step_options(config_, world_, device_.is_cuda());
    const ModelShape shape = model.shape(batch, step.compute, device_.is_cuda());
    Ranks ranks = make_ranks(config_, place_.info, device_);
    std::optional<PrivateParts> privacy;
    if (config_.privacy.is_private())
      privacy = measured_privacy(
          config_, shape, step,
          method_of_rank_0(chosen_method(shape, step), device_, ranks.reduce.get()));
    describe_clipping(privacy, shape);
    ExecutorOptions settings = executor_options(config_, world_, device_, privacy);
    const InitialWeights initial = initial_weights(source, model);
    settings.initial = initial.fill;
    record_.weights = weights_text(source, initial);
    if (source.has_weights()) record_.notices = initial.notices;
    Executor executor(model, batch, settings, device_, std::move(data), std::move(ranks));
    stage("after model creation");

    executor.prepare();
    record_.graph = executor.graph_state();
    if (const std::string& why = executor.schedule().not_deferred; !why.empty())
      add_notice("the update is not deferred: " + why);
    if (const std::string& why = executor.schedule().not_exchanged; !why.empty())
      add_notice("ranks do not exchange kept gradients: " + why);
    // A step like those before and after it has an update to run that was deferred.
    const int64_t least = executor.schedule().defers_update ? 1 : 0;
    for (int64_t i = 0; i < std::max(least, config_.measure.warmup); ++i) {
      if (feed_) feed_->load_next(executor);
      executor.step(config_.optimizer.learning_rate);
      progress("warm-up", i + 1);
    }
    executor.wait();
    stage("after warmup");
    memory::reset_peak(space_);
    memory::reset_peak(Space::pinned);

    timed_steps(executor, settings.time_rows);
    record_.end_to_end_seconds = (steady_ms() - begin_ms_) / 1e3;
    stage("end");
    record_.step_snapshots.emplace();
    if (config_.measure.wants(ProfileKind::memory))
      record_.step_snapshots = step_snapshots(executor, space_);
    summarise_run(executor);
    if (config_.measure.wants(ProfileKind::kernels)) kernels(executor);
    return record_;
  }

  Record out_of_memory(const std::string& message) {
    record_.outcome = "oom";
    record_.message = message;
    record_.remedies = remedies(config_, world_, device_.is_cuda());
    return record_;
  }

 private:
  void describe() {
    record_.outcome = "ok";
    record_.mode = name_of(config_.privacy.method.mode);
    record_.batch_size = rank_batch(config_, world_);
    record_.total_batch_size = rank_batch(config_, world_) * world_ * config_.step.accumulation;
    record_.num_gpus = device_.is_cuda() ? world_ : 0;
    record_.world = world_;
    record_.simulated = config_.placement.simulate_world.has_value();
    record_.device = device_.is_cuda() ? "cuda" : "cpu";
    record_.rng = name_of(config_.privacy.rng);
    record_.precision = {.storage = name_of(config_.step.storage),
                         .compute = name_of(config_.step.compute),
                         .reduce = name_of(config_.step.reduce),
                         .moments = name_of(config_.step.moments),
                         .tf32 = config_.step.tf32,
                         .deterministic = config_.step.deterministic};
    record_.build = build_json();
    record_.machine = machine_json(this_machine());
  }

  // A simulated peer's part of a unit is made of the own one (comm/communicator_simulated.cpp),
  // which may hold a norm's weights or biases alone. If these were all alike, the weights of a
  // classifier's labels would be too, and every gradient 0, which a GPU multiplies faster.
  static void vary_constants(Model& model) {
    constexpr double kSpread = 0.1;
    for (ParamShape& param : model.params) {
      if (param.init.kind == Init::Kind::constant && param.dims.size() == 1)
        param.init = {Init::Kind::normal, kSpread};
    }
  }

  void describe_model(const ModelSource& source, const Model& model) {
    tokens_ = source.diffusion ? source.diffusion->tokens() : config_.model.seq_length;
    if (!source.diffusion && !source.config) return;
    record_.seq_length = tokens_;
    record_.attention =
        attention_backend(config_.model.attention, dtype_of(config_.step.compute), device_);
    record_.parameters =
        model.shape(1, dtype_of(config_.step.compute), device_.is_cuda()).param_count();
    if (source.diffusion) {
      const DitConfig& dit = *source.diffusion;
      record_.diffusion = {.image_size = dit.image_size,
                           .patch_size = dit.patch,
                           .in_channels = dit.channels,
                           .num_classes = dit.classes,
                           .hidden_dim = dit.hidden,
                           .num_layers = dit.layers,
                           .num_heads = dit.heads,
                           .tokens = dit.tokens()};
      return;
    }
    record_.task = name_of(source.config->task);
    record_.fused_kernels = device_.is_cuda() ? "on" : "off: no GPU";
    record_.vocab_size = source.config->vocabulary;
    if (source.name != config_.model.name)
      record_.notices = {fmt::format("{} was not fetched: the shape of {} with random weights",
                                     config_.model.name, source.name)};
  }

  void describe_clipping(const std::optional<PrivateParts>& privacy, const ModelShape& shape) {
    if (!privacy) return;
    const privacy::ClipMethod& method = privacy->method;
    record_.clip = {.pass_plan = name_of(method.pass),
                    .function = name_of(config_.privacy.clip),
                    .clip_norm = config_.privacy.clip_norm.value_or(1),
                    .sigma = config_.privacy.sigma.value_or(1),
                    .tile = method.tile,
                    .combine_every = method.combine_every > 1
                                         ? std::optional<int64_t>(method.combine_every)
                                         : std::nullopt,
                    .rules = {}};
    if (method.pass == privacy::PassKind::keep) return;
    for (size_t id = 0; id < shape.params.size(); ++id)
      record_.clip->rules.emplace_back(shape.params[id].name, name_of(method.rules[id]));
  }

  // An operating system promises more memory than it has, and ends the process that takes it at its
  // word: what cannot fit is told before. "" if it fits.
  std::string beyond_host_memory(const Model& model, int64_t batch) const {
    if (device_.is_cuda()) return "";
    StepOptions step = step_options(config_, world_, /*on_gpu=*/false);
    const ModelShape shape = model.shape(batch, step.compute, /*on_gpu=*/false);
    if (config_.privacy.is_private()) step.clip = chosen_method(shape, step);
    return beyond_host_memory_text(config_, build_schedule(shape, step), place_.info.local_world);
  }

  privacy::ClipMethod chosen_method(const ModelShape& shape, const StepOptions& step) const {
    return clip_method(config_.privacy.method, shape, step, config_.privacy.by_layer(),
                       step_prices(config_, device_.is_cuda()));
  }

  void add_notice(const std::string& line) {
    if (!record_.notices) record_.notices.emplace();
    record_.notices->push_back(line);
  }

  void stage(const std::string& name) {
    record_.stages.push_back(stage_line(take_stage_memory(name, rank_, device_)));
    if (place_.on_stage) place_.on_stage(record_.stages.back());
  }

  void progress(const char* what, int64_t done) {
    const int64_t total = config_.measure.warmup + config_.measure.iterations;
    if (place_.on_progress && place_.info.rank == 0)
      place_.on_progress(fmt::format("{} {}/{}", what, done, total), done, total);
  }

  void timed_steps(Executor& executor, bool rows) {
    if (feed_) feed_->begin_counting();
    GpuSampler sampler(device_.is_cuda() ? device_.index() : -1);
    std::vector<Marker> begins, ends;
    for (int64_t i = 0; i < config_.measure.iterations; ++i) {
      const Marker begin = executor.mark();
      if (feed_) feed_->load_next(executor);
      executor.step(config_.optimizer.learning_rate);
      ends.push_back(executor.mark());
      begins.push_back(begin);
      losses_.push_back(executor.loss_sum());
      if (rows) steps_.push_back(executor.read_times());
      progress("step", config_.measure.warmup + i + 1);
    }
    executor.wait();
    for (size_t i = 0; i < ends.size(); ++i) times_.push_back(ends[i].ms_since(begins[i]));
    if (const auto gpu = sampler.stop()) {
      utilisation_ = gpu->mean.utilisation_percent;
      record_.gpu_state = {.utilisation_percent = gpu->mean.utilisation_percent,
                           .sm_clock_mhz = gpu->mean.sm_clock_mhz,
                           .temperature_c = gpu->mean.temperature_c,
                           .power_w = gpu->mean.power_w};
    }
  }

  void summarise_run(Executor& executor) {
    const double samples =
        static_cast<double>(rank_batch(config_, world_)) * config_.step.accumulation;
    for (double sum : losses_) {
      const std::vector<double> all = of_every_rank(executor, device_, sum);
      record_.losses.push_back(std::accumulate(all.begin(), all.end(), 0.0) /
                               (samples * static_cast<double>(all.size())));
    }
    const CategoryBytes peak = memory::peak(space_);
    record_.times_ms = times_;
    record_.avg_time_ms = mean(times_);
    record_.std_time_ms = deviation(times_);
    record_.peak_memory_bytes = static_cast<double>(peak.total());
    record_.breakdown = amounts_of(peak);
    record_.pinned_peak_bytes = static_cast<double>(memory::peak(Space::pinned).total());
    const MemoryEstimate estimate = estimate_memory(executor.schedule());
    record_.estimated_peak_bytes = static_cast<double>(estimate.peak(space_).total());
    predict(executor);
    if (config_.measure.wants(ProfileKind::memory))
      record_.memory_rows = memory_rows(executor, space_);
    if (!steps_.empty()) {
      if (place_.on_steps) place_.on_steps(executor, steps_);
      const PhaseTimes times = summarise(steps_, executor.schedule(), executor.shape());
      record_.phases = times.compute_ms;
      record_.phases["gap"] = times.gap_ms;
      if (config_.measure.wants(ProfileKind::layers)) record_.layer_ms = times.row_ms;
      if (feed_) record_.phases["data"] = feed_->load_ms();
      record_.communication = transfers(times, config_.placement.simulate_world.has_value());
      record_.phase_sum_ms = times.sum_ms() + (feed_ ? feed_->load_ms() : 0);
      if (config_.placement.simulate_world) model_communication(executor.schedule());
      if (!place_.trace_folder.empty())
        record_.traces.push_back(
            write_trace(executor, steps_, rank_, world_, place_.trace_folder, space_));
    }
    if (record_.parameters) throughput(executor.shape());
    if (feed_) record_.data = feed_->record(config_.data.path);
    const double mean_memory = mean_bytes(executor, steps_, space_);
    if (config_.measure.wants(ProfileKind::memory))
      record_.memory_mean_bytes = std::round(mean_memory);
    describe_ranks(executor, static_cast<double>(peak.total()), mean_memory);
  }

  // What `veil plan --time` would have said of this step.
  void predict(const Executor& executor) {
    if (config_.placement.prices_file.empty()) return;
    record_.predicted_step_ms = estimate_time(executor.schedule(), executor.shape(),
                                              step_prices(config_, device_.is_cuda()))
                                    .ms;
  }

  // Collectives as the link would carry them; a batch is loaded before the first row, so its time
  // is added.
  void model_communication(const Schedule& schedule) {
    std::vector<double> steps;
    std::map<std::string, double> exposed;
    for (const StepTime& step : steps_) {
      const ModelledStep modelled = modelled_step(step, schedule);
      steps.push_back(modelled.ms + (feed_ ? feed_->load_ms() : 0));
      for (const auto& [lane, ms] : modelled.exposed_ms)
        exposed[lane] += ms / static_cast<double>(steps_.size());
    }
    for (auto& [lane, transfer] : record_.communication) {
      if (transfer.modelled_ms) transfer.modelled_exposed_ms = exposed[lane];
    }
    record_.modelled_step_ms = mean(steps);
    record_.link_gb_per_s = config_.placement.link_gb_per_s;
  }

  void describe_ranks(Executor& executor, double peak, double mean_memory) {
    const std::vector<double> rank_times = of_every_rank(executor, device_, mean(times_));
    const std::vector<double> rank_peaks = of_every_rank(executor, device_, peak);
    const std::vector<double> rank_means = of_every_rank(executor, device_, mean_memory);
    const std::vector<double> rank_busy = of_every_rank(executor, device_, utilisation_);
    for (size_t r = 0; r < rank_times.size(); ++r) {
      RecordRank line;
      line.rank = config_.placement.simulate_world ? rank_ : static_cast<int64_t>(r);
      line.avg_time_ms = rank_times[r];
      line.peak_memory_bytes = rank_peaks[r];
      if (config_.measure.wants(ProfileKind::memory))
        line.memory_mean_bytes = std::round(rank_means[r]);
      if (rank_busy[r] >= 0) line.utilisation_percent = rank_busy[r];
      record_.ranks.push_back(line);
    }
  }

  // Tokens of all ranks per second (in a simulated world of its modelled step), and how much of the
  // device's peak the model's own FLOPs are (models/flops.h).
  void throughput(const ModelShape& shape) {
    const double seconds = record_.modelled_step_ms.value_or(mean(times_)) / 1e3;
    const double micro_batches = static_cast<double>(config_.step.accumulation) * world_;
    record_.tokens_per_second =
        static_cast<double>(shape.batch * tokens_) * micro_batches / std::max(1e-9, seconds);
    const double flops = 3.0 * static_cast<double>(shape.model_flops()) * config_.step.accumulation;
    record_.tflops_per_second_a_rank = flops / seconds / 1e12;
    const double peak = device_.is_cuda() ? peak_tflops(dtype_of(config_.step.compute)) : 0;
    if (peak > 0) {
      record_.mfu = flops / seconds / 1e12 / peak;
      record_.mfu_convention = fmt::format(
          "3 x forward FLOPs of products and causal attention / {} TFLOP/s dense peak", peak);
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
    for (int i = 0; i < 2; ++i) executor.step(config_.optimizer.learning_rate);
    executor.wait();
    const std::string path = join_path(place_.trace_folder, "kernels_" + trace_file_name());
    profile.stop_and_save(path);
    record_.traces.push_back(path);
    std::vector<RecordKernel>& top = record_.kernels.emplace();
    for (const OperatorTime& op : profile.operators()) {
      if (top.size() >= 40) break;
      top.push_back({op.name, op.on_gpu, op.calls, op.total_ms});
    }
  }

  static RunConfig settled(RunConfig config, const RunPlace& place) {
    settle_batch(config, experiment_world(config, place.info));
    return config;
  }

  const RunConfig config_;
  const RunPlace& place_;
  int world_, rank_;
  Device device_;
  Space space_;
  Record record_;
  int64_t tokens_ = 0;  // per sample
  double begin_ms_ = steady_ms(), utilisation_ = -1;
  std::shared_ptr<const data::Samples> samples_;
  std::unique_ptr<TextFeed> feed_;  // none: synthetic data, the same every step
  std::vector<double> times_, losses_;
  std::vector<StepTime> steps_;
};

}  // namespace

Record run_experiment(const RunConfig& config, const RunPlace& place) {
  check_config(config);
  Run run(config, place);
  // On this rank, whatever the others do: "oom_rank" tells it from an outcome that all ranks agree
  // on.
  auto here = [&](const std::string& message) {
    Record record = run.out_of_memory(message);
    record.oom_rank = place.info.rank;
    return record;
  };
  try {
    return run.measure();
  } catch (const std::exception& error) {
    const std::optional<std::string> reason = out_of_memory_reason(error);
    if (!reason) throw;
    return here(*reason);
  }
}

}  // namespace veil
