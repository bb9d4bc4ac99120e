#include "estimate/method_prices.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "estimate/estimator.h"

namespace veil {
namespace {

using privacy::NormRule;
using privacy::PassKind;

// A product's gradient: T tokens of B samples, [p, d].
struct Product {
  ParamId param;
  double samples, tokens, rows, columns, element_bytes;
  double flops() const { return 2 * samples * tokens * rows * columns; }
  double numbers() const { return samples * rows * columns; }  // of all samples' gradients
};

class Prices {
 public:
  Prices(const ModelShape& shape, const StepOptions& step, const Roofline& roofline, int64_t tile)
      : shape_(shape), step_(step), r_(roofline), tile_(static_cast<double>(tile)) {
    auto collect = [&](const BlockShape& block) {
      for (const Report& report : block.reports) {
        if (report.by != Report::By::linear || report.tokens <= 1) continue;
        // One piece of the loss's rows stands for all of them.
        const double whole = static_cast<double>(std::max(
            shape.params[static_cast<size_t>(report.param)].numel(), report.rows * report.columns));
        products_.push_back(
            {report.param, static_cast<double>(shape.batch), static_cast<double>(report.tokens),
             whole / static_cast<double>(report.columns), static_cast<double>(report.columns),
             static_cast<double>(dtype_bytes(step.compute))});
      }
    };
    for (const BlockShape& block : shape.blocks) collect(block);
    collect(shape.loss);
  }

  const std::vector<Product>& products() const { return products_; }

  double norm_seconds(const Product& p, NormRule rule) const {
    switch (rule) {
      case NormRule::materialize:
        return compute(p.flops()) + 2 * moved(p.numbers() * real());
      case NormRule::flash: {
        const double tiles = std::max(1.0, p.rows / tile_);
        return compute(p.flops()) + moved(p.numbers() * real()) / kCacheIsFaster * 2 +
               3 * tiles * launch();
      }
      case NormRule::ghost: {
        const double side = std::max(1.0, p.tokens / tile_), tiles = side * (side + 1) / 2;
        const double pairs = p.samples * p.tokens * p.tokens / 2;
        return compute(2 * pairs * (p.rows + p.columns)) +
               moved(4 * pairs * real()) / kCacheIsFaster + 4 * tiles * launch();
      }
    }
    return 0;
  }

  // What a method adds to the step that is not private, norms by a rule left out.
  double pass_seconds(PassKind pass) const {
    double seconds = 0;
    const bool several = step_.micro_batches > 1 || step_.varying;
    for (const Product& p : products_) {
      const double kept = p.numbers() * p.element_bytes, one = kept / p.samples;
      switch (pass) {
        // Written and read for B samples instead of one, read once more for the norms; sums over
        // micro-batches.
        case PassKind::keep:
          seconds += moved(2 * (kept - one) + kept) +
                     (several ? moved(2 * one / p.element_bytes * real()) : 0);
          break;
        case PassKind::two_pass:
          seconds += compute(p.flops());  // the inputs' gradients once more
          [[fallthrough]];
        case PassKind::book:
        case PassKind::per_layer:  // samples' products through a cache-sized buffer
          seconds += moved(2 * p.numbers() * real()) / kCacheIsFaster;
          break;
      }
    }
    if (pass == PassKind::book && step_.checkpointing != Checkpointing::none)
      seconds += compute(static_cast<double>(shape_.forward_flops()));  // the inputs once more
    if (pass == PassKind::two_pass) {
      double linear = 0;
      for (const Product& p : products_) linear += p.flops();
      const double attention = std::max(0.0, static_cast<double>(shape_.model_flops()) - linear);
      seconds += compute(2.5 * attention);
      if (step_.checkpointing != Checkpointing::none)
        seconds += compute(static_cast<double>(shape_.forward_flops()));
    }
    if (pass != PassKind::keep)
      seconds += compute(static_cast<double>(shape_.loss.forward_flops));  // the loss is made twice
    return seconds;
  }

 private:
  static constexpr double kCacheIsFaster = 3;
  double real() const { return step_.compute == at::kDouble ? 8 : 4; }
  double compute(double flops) const { return flops / r_.flops_per_second; }
  double moved(double bytes) const { return bytes / r_.bytes_per_second; }
  double launch() const { return r_.launch_seconds; }

  const ModelShape& shape_;
  const StepOptions& step_;
  Roofline r_;
  double tile_;
  std::vector<Product> products_;
};

// Small tiles are many launches. A booked step of Llama-3.1-8B at 4096 tokens on an H200 took 1699
// ms by ghost with 256, 1027 with 1024 and 1037 with 2048; by flash 1055, 1010 and 1005.
int64_t tile_of(const MethodWish& wish, const StepOptions& step) {
  return wish.tile.value_or(step.on_gpu ? 1024 : privacy::ClipMethod{}.tile);
}

MethodPrice priced(const ModelShape& shape, const StepOptions& step, const MethodWish& wish,
                   const Prices& prices, PassKind pass) {
  MethodPrice price;
  price.method = privacy::uniform_method(shape, pass, wish.rule.value_or(NormRule::ghost));
  price.method.layers = wish.by_layer;
  price.method.tile = tile_of(wish, step);
  double seconds = prices.pass_seconds(pass);
  for (const Product& product : prices.products()) {
    if (pass == PassKind::keep) break;
    RulePrice rule{product.param, wish.rule.value_or(NormRule::ghost), {}, {}};
    for (NormRule candidate : {NormRule::materialize, NormRule::ghost, NormRule::flash}) {
      double& ms = rule.milliseconds[static_cast<int>(candidate)];
      ms = prices.norm_seconds(product, candidate) * 1e3;
      if (!wish.rule && ms < rule.milliseconds[static_cast<int>(rule.rule)]) rule.rule = candidate;
    }
    // A whole gradient for every sample is what the other rules are there to avoid.
    if (!wish.rule && rule.rule == NormRule::materialize)
      rule.rule = rule.milliseconds[1] <= rule.milliseconds[2] ? NormRule::ghost : NormRule::flash;
    const double ratio =
        product.tokens * (product.rows + product.columns) / (product.rows * product.columns);
    rule.reason =
        wish.rule ? "as requested"
                  : fmt::format("T (p + d) / (p d) = {:.2f}: {}", ratio,
                                rule.rule == NormRule::ghost ? "pairs of tokens are cheaper"
                                                             : "tiles of the gradient are cheaper");
    for (size_t id = static_cast<size_t>(product.param); id < shape.params.size(); ++id) {
      if (id != static_cast<size_t>(product.param) && !shape.params[id].joined) break;
      price.method.rules[id] = rule.rule;
    }
    seconds += rule.milliseconds[static_cast<int>(rule.rule)] / 1e3;
    price.rules.push_back(rule);
  }
  price.extra_ms = seconds * 1e3 * std::max(1, step.micro_batches);
  StepOptions with = step;
  with.clip = price.method;
  const MemoryEstimate estimate = estimate_memory(build_schedule(shape, with));
  price.peak_bytes = estimate.peak(step.on_gpu ? Space::device : Space::host).total();
  price.fits = !wish.budget_bytes || price.peak_bytes <= *wish.budget_bytes;
  return price;
}

}  // namespace

std::vector<MethodPrice> price_methods(const ModelShape& shape, const StepOptions& step,
                                       const MethodWish& wish, const Roofline& roofline) {
  if (wish.pass == PassKind::per_layer && !wish.by_layer)
    field_error("pass_plan",
                "per-layer needs `clip` per-layer: other coefficients need all layers' norms");
  std::vector<PassKind> passes = {PassKind::keep, PassKind::book, PassKind::two_pass};
  if (wish.by_layer) passes.push_back(PassKind::per_layer);
  if (wish.pass) passes = {*wish.pass};
  const Prices prices(shape, step, roofline, tile_of(wish, step));
  std::vector<MethodPrice> found;
  for (PassKind pass : passes) found.push_back(priced(shape, step, wish, prices, pass));
  std::stable_sort(found.begin(), found.end(), [](const MethodPrice& a, const MethodPrice& b) {
    if (a.fits != b.fits) return a.fits;
    return a.fits ? a.extra_ms < b.extra_ms : a.peak_bytes < b.peak_bytes;
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
      price.reason = fmt::format("{:.1f} ms slower than {}", price.extra_ms - found[0].extra_ms,
                                 name_of(found[0].method.pass));
    }
  }
  return found;
}

}  // namespace veil
