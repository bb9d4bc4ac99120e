// veil plan: a step's program and its bytes, without running it.
#include <algorithm>

#include "base/quantity.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/plan_time.h"
#include "cli/run_options.h"
#include "estimate/estimator.h"
#include "estimate/method_prices.h"
#include "run/machine.h"
#include "run/remedies.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

struct PlanCommand {
  RunConfig config;
  int world = 1;
  bool schedule = false, memory = false, table = false, buffers = false, json = false;
  std::string clip;              // "", "costs" or a clip function
  std::optional<double> budget;  // GiB that a rank may take
  TimeWish time;

  bool prices() const { return !clip.empty(); }
};

// GPUs that people rent, and what a program can use of their memory.
struct RentedGpu {
  const char* name;
  double gib;
};
constexpr RentedGpu kRentedGpus[] = {{"RTX 4090 (24 GB)", 23.5}, {"A100 (40 GB)", 39.4},
                                     {"L40S (48 GB)", 44.4},     {"A100 or H100 (80 GB)", 79.1},
                                     {"H200 (141 GB)", 139.8},   {"B200 (180 GB)", 178.3}};

std::vector<Category> used_categories(const MemoryEstimate& estimate, Space space) {
  std::vector<Category> used;
  for (int c = 0; c < kCategories; ++c) {
    const auto category = static_cast<Category>(c);
    int64_t most = estimate.after_model[static_cast<size_t>(space)][category];
    for (const MemoryRow& row : estimate.rows)
      most = std::max(most, row.peak[static_cast<size_t>(space)][category]);
    if (most > 0) used.push_back(category);
  }
  return used;
}

void print_memory(const Schedule& schedule, const ModelShape& shape, const MemoryEstimate& estimate,
                  Space space) {
  const std::vector<Category> categories = used_categories(estimate, space);
  if (categories.empty()) return;
  std::vector<std::string> header = {"part", "#", "op", "on"};
  for (Category category : categories) header.push_back(category_name(category));
  header.insert(header.end(), {"after", "peak"});
  Table table(header);
  auto add = [&](std::vector<std::string> cells, const SpaceBytes& after, const SpaceBytes& peak) {
    const CategoryBytes& bytes = after[static_cast<size_t>(space)];
    for (Category category : categories) cells.push_back(format_bytes(bytes[category]));
    cells.push_back(format_bytes(bytes.total()));
    cells.push_back(format_bytes(peak[static_cast<size_t>(space)].total()));
    table.row(cells);
  };
  add({"data", "", "", ""}, estimate.after_data, estimate.after_data);
  add({"model", "", "", ""}, estimate.after_model, estimate.after_model);
  for (const MemoryRow& row : estimate.rows) {
    const Op& op = schedule.part(row.part)[row.op];
    add({row.op == 0 ? name_of(row.part) : "", std::to_string(row.op), name_of(op.kind),
         op_target(op, schedule, shape)},
        row.after, row.peak);
  }
  fmt::print("{} memory, a rank\n{}peak {}\n\n", space_name(space), table.text(),
             format_bytes(estimate.peak(space).total()));
}

// What the peak consists of, largest first.
std::string peak_parts(const MemoryEstimate& estimate, Space space) {
  const CategoryBytes& peak = estimate.peak(space);
  std::vector<std::pair<int64_t, std::string>> parts;
  for (int c = 0; c < kCategories; ++c) {
    const auto category = static_cast<Category>(c);
    if (peak[category] > 0) parts.emplace_back(peak[category], category_name(category));
  }
  std::sort(parts.rbegin(), parts.rend());
  std::vector<std::string> words;
  for (const auto& [bytes, name] : parts)
    words.push_back(fmt::format("{} {}", name, format_bytes(bytes)));
  return join(words, ", ");
}

// Whether a rank's peak fits: in the budget, in this machine's memory, or on which GPUs. Answers
// false if it does not fit.
bool print_fit(const PlanCommand& command, int64_t peak, bool on_gpu) {
  const auto judge = [&](int64_t room, const std::string& where) {
    const bool fits = peak <= room;
    fmt::print("verdict  {} {}: {} {}\n", fits ? "fits in" : "does not fit in", where,
               format_bytes(fits ? room - peak : peak - room), fits ? "to spare" : "too much");
    return fits;
  };
  if (command.budget)
    return judge(static_cast<int64_t>(*command.budget * kGiB),
                 fmt::format("the {:g} GiB of --memory-budget", *command.budget));
  if (!on_gpu)
    return judge(this_machine().memory_bytes,
                 fmt::format("this machine's {}", format_bytes(this_machine().memory_bytes)));
  if (gpu_count() > 0)
    return judge(gpus()[0].memory_bytes, fmt::format("this machine's {} ({})", gpus()[0].name,
                                                     format_bytes(gpus()[0].memory_bytes)));
  std::vector<std::string> large_enough, too_small;
  for (const RentedGpu& gpu : kRentedGpus)
    (to_gib(peak) <= gpu.gib ? large_enough : too_small).emplace_back(gpu.name);
  if (large_enough.empty()) {
    fmt::print("verdict  does not fit on any GPU up to {}\n", too_small.back());
  } else {
    fmt::print("verdict  fits on {}{}{}\n", join(large_enough, ", "),
               too_small.empty() ? "" : "; does not fit on ", join(too_small, ", "));
  }
  return !large_enough.empty() && too_small.empty();
}

// The bytes that remedies have to fit in.
int64_t planned_room(const PlanCommand& command, bool on_gpu) {
  if (command.budget) return static_cast<int64_t>(*command.budget * kGiB);
  if (!on_gpu) return this_machine().memory_bytes;
  if (gpu_count() > 0) return gpus()[0].memory_bytes;
  double largest = 0;
  for (const RentedGpu& gpu : kRentedGpus) largest = std::max(largest, gpu.gib);
  return static_cast<int64_t>(largest * kGiB);
}

void print_verdict(const PlanCommand& command, const MemoryEstimate& estimate, int world,
                   bool on_gpu) {
  for (Space space : {Space::device, Space::host, Space::pinned}) {
    const int64_t peak = estimate.peak(space).total();
    if (peak > 0)
      fmt::print("{} memory per rank: peak {} ({})\n", space_name(space), format_bytes(peak),
                 peak_parts(estimate, space));
  }
  const int64_t peak = estimate.peak(on_gpu ? Space::device : Space::host).total();
  if (print_fit(command, peak, on_gpu)) return;
  const std::vector<std::string> list =
      remedy_texts(priced_remedies(command.config, world, on_gpu, planned_room(command, on_gpu)));
  if (!list.empty()) fmt::print("change   {}\n", join(list, "\n         "));
}

Json buffers_json(const std::vector<Buffer>& buffers) {
  Json list = Json::array();
  for (const Buffer& buffer : buffers) {
    list.push_back({{"role", name_of(buffer.role)},
                    {"index", buffer.index},
                    {"bytes", buffer.bytes},
                    {"category", category_name(buffer.category)},
                    {"space", space_name(buffer.space)}});
  }
  return list;
}

Json bytes_json(const SpaceBytes& bytes) {
  Json json = Json::object();
  for (int s = 0; s < kSpaces; ++s) {
    for (int c = 0; c < kCategories; ++c) {
      const int64_t n = bytes[s][static_cast<Category>(c)];
      if (n) json[space_name(static_cast<Space>(s))][category_name(static_cast<Category>(c))] = n;
    }
  }
  return json;
}

Json plan_json(const Schedule& schedule, const ModelShape& shape, const MemoryEstimate& estimate) {
  Json json;
  json["resident"] = buffers_json(schedule.resident);
  json["rows"] = Json::array();
  for (const MemoryRow& row : estimate.rows) {
    const Op& op = schedule.part(row.part)[row.op];
    json["rows"].push_back({{"part", name_of(row.part)},
                            {"row", row.op},
                            {"lane", name_of(op.lane)},
                            {"op", name_of(op.kind)},
                            {"on", op_target(op, schedule, shape)},
                            {"after", op.after},
                            {"note", op.note},
                            {"creates", buffers_json(op.creates)},
                            {"frees", buffers_json(op.frees)},
                            {"bytes_after", bytes_json(row.after)},
                            {"bytes_peak", bytes_json(row.peak)}});
  }
  json["after_model"] = bytes_json(estimate.after_model);
  for (int s = 0; s < kSpaces; ++s)
    json["peak_bytes"][space_name(static_cast<Space>(s))] =
        estimate.peak(static_cast<Space>(s)).total();
  return json;
}

// Of a private step: every plan that is allowed, the one that is taken first.
std::vector<MethodPrice> clip_prices(const PlanCommand& command, const ModelShape& shape,
                                     const StepOptions& step) {
  const PrivacyConfig& privacy = command.config.privacy;
  if (!privacy.is_private()) return {};
  const StepPrices prices = planned_prices(command.time, command.config, step);
  if (command.prices() && !command.json)
    fmt::print("priced by {}: {}\n\n", prices.machine.machine, prices.machine.source);
  return price_methods(shape, step, method_wish(privacy.method, privacy.by_layer()), prices);
}

void print_prices(const std::vector<MethodPrice>& prices, const ModelShape& shape) {
  Table plans({"pass plan", "step", "peak memory", "why"});
  for (const MethodPrice& price : prices)
    plans.row({privacy::plan_name(price.method.pass, price.method.combine_every),
               format_ms(price.time.ms), format_bytes(price.peak_bytes), price.reason});
  fmt::print("{}\n", plans.text());
  const MethodPrice& taken = prices.front();
  if (taken.rules.empty()) {
    fmt::print(
        "every parameter: norms of the kept gradients themselves; tables and vectors by their own "
        "kernels\n");
    return;
  }
  Table rules({"parameter", "rule", "materialize ms", "ghost ms", "flash ms", "why"});
  for (const RulePrice& rule : taken.rules) {
    rules.row({shape.params[static_cast<size_t>(rule.param)].name, name_of(rule.rule),
               fmt::format("{:.3f}", rule.milliseconds[0]),
               fmt::format("{:.3f}", rule.milliseconds[1]),
               fmt::format("{:.3f}", rule.milliseconds[2]), rule.reason});
  }
  fmt::print(
      "{}every other parameter: biases and norms by their sums over tokens, tables by grouping "
      "equal tokens\n",
      rules.text());
}

Json clip_json(const std::vector<MethodPrice>& prices, const ModelShape& shape) {
  Json list = Json::array();
  for (const MethodPrice& price : prices) {
    Json plan = {{"pass_plan", name_of(price.method.pass)},
                 {"combine_every", price.method.combine_every},
                 {"ms", price.time.ms},
                 {"peak_bytes", price.peak_bytes},
                 {"fits", price.fits},
                 {"reason", price.reason}};
    for (const RulePrice& rule : price.rules) {
      plan["rules"].push_back({{"parameter", shape.params[static_cast<size_t>(rule.param)].name},
                               {"rule", name_of(rule.rule)},
                               {"materialize_ms", rule.milliseconds[0]},
                               {"ghost_ms", rule.milliseconds[1]},
                               {"flash_ms", rule.milliseconds[2]},
                               {"reason", rule.reason}});
    }
    list.push_back(plan);
  }
  return list;
}

}  // namespace

int run_plan(const CommandCall& call) {
  PlanCommand command;
  Options options("plan", "shows a step's program and its bytes without running it");
  options.add("schedule", command.schedule,
              {.help = "print the step's schedule: rows, lanes, waits"});
  options.add("buffers", command.buffers,
              {.help = "with --schedule: also the buffers that each row creates and frees"});
  options.add("memory", command.memory,
              {.help = "print a rank's peak memory, whether it fits, and what to change if not"});
  options.add("table", command.table,
              {.help = "with --memory: print the bytes by category after each row too"});
  options.add(
      "clip", command.clip,
      {.help = "print what clipping costs by every pass plan and rule, which are taken, and why; "
               "with a value, for this clip function, as --clip-function sets it",
       .bare = "costs",
       .value = "FUNCTION"});
  add_time_options(options, command.time);
  add_step_options(options, command.config);
  add_private_step_options(options, command.config, "clip-function");
  add_experiment_presets(options, /*measuring=*/false);
  options.section("run");
  options.add("world", command.world,
              {.aliases = {"ranks", "num_gpus", "nproc_per_node"},
               .help = "ranks",
               .minimum = 1,
               .maximum = 65536});
  add_device_option(options, command.config, "what it is planned for; auto is a GPU");
  options.add("json", command.json, {.help = "print it as JSON"});
  show_defaults(options, command.config, measuring_defaults());
  if (!options.parse_call(call)) return kExitDone;
  if (command.prices() && command.clip != "costs") {
    if (options.given("clip-function"))
      user_error("--clip {} and --clip-function: allowed is one of them", command.clip);
    if (const std::string wrong =
            option_values::read(command.clip, {}, command.config.privacy.clip);
        !wrong.empty())
      user_error("--clip {}: {}", command.clip, wrong);
  }
  if (command.time.gpu && !options.given("device"))
    command.config.placement.device = DeviceKind::gpu;
  use_model_defaults(options, command.config);
  if (command.prices() && !command.config.privacy.is_private())
    command.config.privacy.method.mode = Mode::automatic;
  ClipChoice& method = command.config.privacy.method;
  command.budget = method.memory_budget_gib;
  // The verdict compares any step with the budget; only a private one is planned by it.
  if ((command.memory || command.table) && !command.config.privacy.is_private())
    method.memory_budget_gib.reset();
  check_config(command.config);
  const std::optional<int>& simulated = command.config.placement.simulate_world;
  if (simulated && options.given("world") && *simulated != command.world)
    user_error("--simulate-world {} with --world {}: both say how many ranks; give one", *simulated,
               command.world);
  if (command.time.price && !command.time.steps)
    user_error("--price without --steps: pass the number of steps that are to be paid");
  if (command.time.gpus && (simulated || options.given("world")))
    user_error("--gpus {} with --world or --simulate-world: both say how many ranks; give one",
               *command.time.gpus);
  if (command.time.gpus) {
    print_ranking(command.time, command.config, command.config.placement.device != DeviceKind::cpu,
                  command.json);
    return kExitDone;
  }
  const int world = simulated.value_or(command.world);
  settle_batch(command.config, world);
  const bool on_gpu = command.config.placement.device != DeviceKind::cpu;
  StepOptions step = planned_step(command.time, command.config, world, on_gpu);
  const Model model = make_model(command.config, model_source(command.config), world);
  const ModelShape shape =
      model.shape(rank_batch(command.config, world), step.compute, step.on_gpu);
  const std::vector<MethodPrice> prices = clip_prices(command, shape, step);
  if (!prices.empty()) step.clip = prices.front().method;
  const Schedule schedule = build_schedule(shape, step);
  const MemoryEstimate estimate = estimate_memory(schedule);
  if (command.json) {
    Json json = plan_json(schedule, shape, estimate);
    if (!prices.empty()) json["clip"] = clip_json(prices, shape);
    if (command.time.wanted())
      json["time"] = time_json(command.time, command.config, schedule, shape);
    fmt::print("{}\n", json.dump(1));
    return kExitDone;
  }
  fmt::print("{} of {} parameters, {}, {}\n\n", shape.name,
             format_count(static_cast<double>(shape.param_count())), quantity(world, "rank"),
             name_of(step.strategy));
  if (command.prices()) print_prices(prices, shape);
  if (command.schedule || command.buffers ||
      (!command.memory && !command.table && !command.prices() && !command.time.wanted()))
    fmt::print("{}\n", print_schedule(schedule, shape, command.buffers));
  if (command.table) {
    for (Space space : {Space::device, Space::host, Space::pinned})
      print_memory(schedule, shape, estimate, space);
  }
  if (command.memory || command.table) print_verdict(command, estimate, world, on_gpu);
  if (command.time.wanted()) print_time(command.time, command.config, schedule, shape);
  return kExitDone;
}

}  // namespace veil
