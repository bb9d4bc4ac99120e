#include "estimate/method_prices.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "estimate/estimator.h"

namespace veil {
namespace {

using privacy::NormRule;
using privacy::PassKind;

// Small tiles are many launches. A booked step of Llama-3.1-8B at 4096 tokens on an H200 took 1699
// ms by ghost with 256, 1027 with 1024 and 1037 with 2048; by flash 1055, 1010 and 1005.
int64_t tile_of(const MethodWish& wish, const StepOptions& step) {
  return wish.tile.value_or(step.on_gpu ? 1024 : privacy::ClipMethod{}.tile);
}

// The cheaper of pairs of tokens and tiles of the gradient for each weight, unless the wish says.
std::vector<RulePrice> price_rules(const ModelShape& shape, const StepOptions& step,
                                   const MethodWish& wish, const MachinePrices& prices) {
  std::vector<RulePrice> rules;
  for (const WeightProduct& product : normed_products(shape)) {
    RulePrice price{product.param, wish.rule.value_or(NormRule::ghost), {}, {}};
    auto ms = [&](NormRule rule) -> double& { return price.milliseconds[static_cast<int>(rule)]; };
    for (NormRule rule : {NormRule::materialize, NormRule::ghost, NormRule::flash})
      ms(rule) = prices.seconds_of(norm_work(product, rule, tile_of(wish, step), step)) * 1e3;
    // A whole gradient for every sample is what the other two are there to avoid.
    if (!wish.rule && ms(NormRule::flash) < ms(NormRule::ghost)) price.rule = NormRule::flash;
    const double ratio =
        product.tokens * (product.rows + product.columns) / (product.rows * product.columns);
    price.reason = wish.rule ? "as requested"
                             : fmt::format("T (p + d) / (p d) = {:.2f}: {}", ratio,
                                           price.rule == NormRule::ghost
                                               ? "pairs of tokens are cheaper"
                                               : "tiles of the gradient are cheaper");
    rules.push_back(price);
  }
  return rules;
}

MethodPrice priced(const ModelShape& shape, const StepOptions& step, const MethodWish& wish,
                   const StepPrices& prices, PassKind pass, int combine_every) {
  MethodPrice price;
  price.method = privacy::uniform_method(shape, pass, wish.rule.value_or(NormRule::ghost));
  price.method.layers = wish.by_layer;
  price.method.tile = tile_of(wish, step);
  price.method.combine_every = combine_every;
  if (pass != PassKind::keep) price.rules = price_rules(shape, step, wish, prices.machine);
  for (const RulePrice& rule : price.rules) {
    const auto first = static_cast<size_t>(rule.param);
    for (size_t id = first; id < shape.params.size(); ++id) {
      if (id != first && !shape.params[id].joined) break;
      price.method.rules[id] = rule.rule;
    }
  }
  StepOptions with = step;
  with.clip = price.method;
  const Schedule schedule = build_schedule(shape, with);
  price.method.combine_every = schedule.combine_every;  // no more than there are micro-batches
  price.time = estimate_time(schedule, shape, prices);
  price.peak_bytes =
      estimate_memory(schedule).peak(step.on_gpu ? Space::device : Space::host).total();
  price.fits = !wish.budget_bytes || price.peak_bytes <= *wish.budget_bytes;
  return price;
}

// Of a pass. Beyond eight micro-batches at once the sum's own share is small.
std::vector<int> combined_at_once(PassKind pass, const StepOptions& step, const MethodWish& wish) {
  if (pass != PassKind::keep) return {1};
  if (wish.combine_every || !wish.budget_bytes) return {wish.combine_every.value_or(1)};
  std::vector<int> numbers = {1};
  for (int number : {2, 3, 4, 6, 8}) {
    if (number <= step.micro_batches) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

std::vector<MethodPrice> price_methods(const ModelShape& shape, const StepOptions& step,
                                       const MethodWish& wish, const StepPrices& prices) {
  if (wish.pass == PassKind::per_layer && !wish.by_layer)
    field_error("pass_plan",
                "per-layer needs `clip` per-layer: other coefficients need all layers' norms");
  std::vector<PassKind> passes = {PassKind::keep, PassKind::book, PassKind::two_pass};
  if (wish.by_layer) passes.push_back(PassKind::per_layer);
  if (wish.pass) passes = {*wish.pass};
  std::vector<MethodPrice> found;
  for (PassKind pass : passes) {
    for (int every : combined_at_once(pass, step, wish))
      found.push_back(priced(shape, step, wish, prices, pass, every));
  }
  std::stable_sort(found.begin(), found.end(), [](const MethodPrice& a, const MethodPrice& b) {
    if (a.fits != b.fits) return a.fits;
    return a.fits ? a.time.ms < b.time.ms : a.peak_bytes < b.peak_bytes;
  });
  for (size_t i = 0; i < found.size(); ++i) {
    MethodPrice& price = found[i];
    if (!price.fits) {
      price.reason = fmt::format("{}beyond the budget of {}", i == 0 ? "smallest, but " : "",
                                 format_bytes(*wish.budget_bytes));
    } else if (i == 0) {
      price.reason = found.size() == 1   ? "as requested"
                     : wish.budget_bytes ? "fastest that fits"
                                         : "fastest";
    } else {
      price.reason =
          fmt::format("{} slower than {}", format_ms(price.time.ms - found[0].time.ms),
                      privacy::plan_name(found[0].method.pass, found[0].method.combine_every));
    }
  }
  return found;
}

}  // namespace veil
