// veil plan: a step's program and its bytes, without running it.
#include "base/quantity.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/run_options.h"
#include "estimate/estimator.h"
#include "estimate/method_prices.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

struct PlanCommand {
  RunConfig config;
  int world = 1;
  bool schedule = false, memory = false, buffers = false, clip = false, json = false;
};

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
  const RunConfig& e = command.config;
  if (!e.privacy.is_private()) return {};
  const MethodWish wish =
      method_wish(e.privacy.method, e.privacy.clip == privacy::ClipFunction::per_layer);
  const bool here = !step.on_gpu || gpu_count() > 0;
  const Roofline roofline =
      here ? cached_roofline(e.placement.roofline_cache, step.on_gpu ? gpu_device(0) : cpu_device(),
                             step.compute)
           : assumed_roofline(step.on_gpu, step.compute);
  if (command.clip && !command.json)
    fmt::print("priced with {:.3g} TFLOP/s and {:.3g} GB/s ({})\n\n",
               roofline.flops_per_second / 1e12, roofline.bytes_per_second / 1e9, roofline.source);
  return price_methods(shape, step, wish, roofline);
}

void print_prices(const std::vector<MethodPrice>& prices, const ModelShape& shape) {
  Table plans({"pass plan", "extra ms", "peak memory", "why"});
  for (const MethodPrice& price : prices)
    plans.row({name_of(price.method.pass), fmt::format("{:.2f}", price.extra_ms),
               format_bytes(price.peak_bytes), price.reason});
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
                 {"extra_ms", price.extra_ms},
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

int run_plan(const std::vector<std::string>& arguments) {
  PlanCommand command;
  Options options("plan", "shows a step's program and its bytes without running it");
  options.add("schedule", command.schedule, {.help = "print the program: rows, lanes, waits"});
  options.add("buffers", command.buffers,
              {.help = "with the buffers that each row makes and frees"});
  options.add("memory", command.memory, {.help = "print the bytes by category after each row"});
  options.add(
      "clip", command.clip,
      {.help = "print what clipping costs by every pass plan and rule, which are taken, and why"});
  add_step_options(options, command.config);
  add_private_step_options(options, command.config, "clip-function");
  add_experiment_presets(options, /*measuring=*/false);
  options.add("world", command.world,
              {.aliases = {"ranks", "num_gpus", "nproc_per_node"},
               .help = "ranks",
               .minimum = 1,
               .maximum = 65536});
  add_device_option(options, command.config, "what it is planned for; auto is a GPU");
  options.add("json", command.json, {.help = "print both as JSON"});
  if (!options.parse(arguments)) return kExitDone;
  use_model_defaults(options, command.config);
  if (command.clip && !command.config.privacy.is_private())
    command.config.privacy.method.mode = Mode::automatic;
  check_config(command.config);
  const std::optional<int>& simulated = command.config.placement.simulate_world;
  if (simulated && options.given("world") && *simulated != command.world)
    user_error("--simulate-world {} with --world {}: both say how many ranks; give one", *simulated,
               command.world);
  const int world = simulated.value_or(command.world);
  settle_batch(command.config, world);
  const bool on_gpu = command.config.placement.device != DeviceKind::cpu;
  StepOptions step = step_options(command.config, world, on_gpu);
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
    fmt::print("{}\n", json.dump(1));
    return kExitDone;
  }
  fmt::print("{} of {} parameters, {}, {}\n\n", shape.name,
             format_count(static_cast<double>(shape.param_count())), quantity(world, "rank"),
             name_of(step.strategy));
  if (command.clip) print_prices(prices, shape);
  if (command.schedule || command.buffers || (!command.memory && !command.clip))
    fmt::print("{}\n", print_schedule(schedule, shape, command.buffers));
  if (command.memory) {
    for (Space space : {Space::device, Space::host, Space::pinned})
      print_memory(schedule, shape, estimate, space);
  }
  return kExitDone;
}

}  // namespace veil
