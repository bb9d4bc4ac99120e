#include "estimate/work.h"

#include <algorithm>
#include <cmath>

#include "kernels/sample_products.h"

namespace veil {
namespace {

constexpr double kGiga = 1e9;
// A product of fewer is bound by its operands on a GPU, not by its FLOPs (adapters of a small rank).
constexpr double kThin = 64;

// Of products of `one` FLOPs each.
void add_flops(Work& work, double flops, double one) {
  constexpr double kSmallest = 7, kLargest = 12;  // log10 of Amount::product_10m and _1t
  const double size = std::clamp(std::log10(one), kSmallest, kLargest) - kSmallest;
  const auto below = static_cast<int>(std::min(size, kLargest - kSmallest - 1));
  const double part = size - below;
  work.of[static_cast<size_t>(below)] += (1 - part) * flops / kGiga;
  work.of[static_cast<size_t>(below) + 1] += part * flops / kGiga;
}

// `pieces`: made as so many products, one after another or as a library's batch. `share`: of its
// FLOPs.
void add_product(Work& work, const WeightProduct& product, const StepOptions& step,
                 double pieces = 1, double share = 1) {
  const double flops = product.flops() * share;
  if (flops <= 0) return;
  const double rows = product.samples * product.tokens;
  if (step.on_gpu && std::min({rows, product.rows, product.columns}) <= kThin) {
    work[Amount::moved_forward] +=
        (rows * (product.rows + product.columns) + product.rows * product.columns) *
        static_cast<double>(dtype_bytes(step.compute)) * share / kGiga;
    return;
  }
  add_flops(work, flops, flops / pieces);
}

// Attention by whole matrices of scores: `products` in the place of forward's two, and how often
// the matrices are read or written.
void add_scores(Work& work, const Scores& scores, double products, double passes, Amount moved) {
  if (scores.matrices == 0) return;
  const double product = static_cast<double>(scores.flops) / 2;
  add_flops(work, products * product, product / static_cast<double>(scores.matrices));
  work[moved] += passes * static_cast<double>(scores.bytes) / kGiga;
}

bool by_sample_products(const WeightProduct& p, const StepOptions& step) {
  return step.sample_products &&
         sample_products_fit(step.compute, static_cast<int64_t>(p.tokens),
                             static_cast<int64_t>(p.rows), static_cast<int64_t>(p.columns));
}

double created_bytes(const std::vector<Buffer>& buffers) {
  double sum = 0;
  for (const Buffer& buffer : buffers) sum += static_cast<double>(buffer.bytes);
  return sum;
}

}  // namespace

const NameTable<Amount>& names(Amount) {
  static const NameTable<Amount> table = {{Amount::product_10m, "product_10m"},
                                          {Amount::product_100m, "product_100m"},
                                          {Amount::product_1g, "product_1g"},
                                          {Amount::product_10g, "product_10g"},
                                          {Amount::product_100g, "product_100g"},
                                          {Amount::product_1t, "product_1t"},
                                          {Amount::attention_forward, "attention_forward"},
                                          {Amount::attention_backward, "attention_backward"},
                                          {Amount::gram, "gram"},
                                          {Amount::tile, "tile"},
                                          {Amount::clip, "clip"},
                                          {Amount::logits, "logits"},
                                          {Amount::moved_forward, "moved_forward"},
                                          {Amount::moved_backward, "moved_backward"},
                                          {Amount::gram_moved, "gram_moved"},
                                          {Amount::tile_moved, "tile_moved"},
                                          {Amount::clip_moved, "clip_moved"},
                                          {Amount::kept, "kept"},
                                          {Amount::combined, "combined"},
                                          {Amount::updated, "updated"},
                                          {Amount::copied, "copied"},
                                          {Amount::updated_numbers, "updated_numbers"},
                                          {Amount::noise_philox, "noise_philox"},
                                          {Amount::noise_secure, "noise_secure"},
                                          {Amount::noise_hardened, "noise_hardened"},
                                          {Amount::forward_rows, "forward_rows"},
                                          {Amount::backward_rows, "backward_rows"},
                                          {Amount::loss_rows, "loss_rows"},
                                          {Amount::update_rows, "update_rows"},
                                          {Amount::other_rows, "other_rows"},
                                          {Amount::norm_launches, "norm_launches"},
                                          {Amount::steps, "steps"}};
  return table;
}

Bound bound_of(Amount amount) {
  if (amount <= Amount::clip) return Bound::compute;
  if (amount >= Amount::updated_numbers && amount <= Amount::noise_hardened) return Bound::compute;
  return amount < Amount::forward_rows ? Bound::memory : Bound::launches;
}

Work& Work::operator+=(const Work& other) {
  for (size_t i = 0; i < of.size(); ++i) of[i] += other.of[i];
  return *this;
}

std::vector<WeightProduct> normed_products(const ModelShape& shape) {
  std::vector<WeightProduct> products;
  auto collect = [&](const BlockShape& block) {
    for (const Report& report : block.reports) {
      if (report.by != Report::By::linear || report.tokens <= 1) continue;
      const ParamShape& param = shape.params[static_cast<size_t>(report.param)];
      // One piece of the loss's rows stands for all of them.
      const auto whole = static_cast<double>(std::max(param.numel(), report.rows * report.columns));
      products.push_back({report.param, static_cast<double>(shape.batch),
                          static_cast<double>(report.tokens),
                          whole / static_cast<double>(report.columns),
                          static_cast<double>(report.columns), !param.frozen});
    }
  };
  for (const BlockShape& block : shape.blocks) collect(block);
  collect(shape.loss);
  return products;
}

Work norm_work(const WeightProduct& p, privacy::NormRule rule, int64_t tile_side,
               const StepOptions& step) {
  const auto tile = static_cast<double>(tile_side);
  constexpr double kReal = 4;
  Work work;
  switch (rule) {
    case privacy::NormRule::materialize:
      add_product(work, p, step, p.samples);
      work[Amount::kept] += 2 * p.numbers() * kReal / kGiga;
      break;
    case privacy::NormRule::flash:
      work[Amount::tile] += p.flops() / kGiga;
      work[Amount::tile_moved] += 2 * p.numbers() * kReal / kGiga;
      work[Amount::norm_launches] += 3 * std::max(1.0, p.rows / tile);
      break;
    case privacy::NormRule::ghost: {
      const double side = std::max(1.0, p.tokens / tile),
                   pairs = p.samples * p.tokens * p.tokens / 2;
      work[Amount::gram] += 2 * pairs * (p.rows + p.columns) / kGiga;
      if (by_sample_products(p, step)) {
        work[Amount::norm_launches] += 2;
        break;
      }
      work[Amount::gram_moved] += 4 * pairs * kReal / kGiga;
      work[Amount::norm_launches] += 4 * side * (side + 1) / 2;
      break;
    }
  }
  return work;
}

StepWork::StepWork(const Schedule& schedule, const ModelShape& shape, NoiseGenerator noise)
    : schedule_(schedule), shape_(shape), noise_(noise) {
  auto most_tokens = [&](const BlockShape& block) {
    for (const Report& report : block.reports)
      tokens_ = std::max(tokens_, static_cast<double>(report.tokens));
  };
  for (const BlockShape& block : shape.blocks) most_tokens(block);
  most_tokens(shape.loss);
  for (const BlockShape& block : shape.blocks) blocks_.push_back(block_work(block));
  blocks_.push_back(block_work(shape.loss));
}

// The weights of a block are its parameters with two dimensions; joined ones are one product. What
// is left of its FLOPs is attention.
StepWork::BlockWork StepWork::block_work(const BlockShape& block) const {
  BlockWork work;
  work.moved = static_cast<double>(block.saved_bytes + block.kept_bytes + block.output_bytes);
  work.reports = static_cast<int>(block.reports.size());
  for (const ParamId id : block.params) {
    const ParamShape& param = shape_.params[static_cast<size_t>(id)];
    if (param.dims.size() != 2) continue;
    const auto rows = static_cast<double>(param.in_out ? param.dims[1] : param.dims[0]),
               columns = static_cast<double>(param.in_out ? param.dims[0] : param.dims[1]);
    if (param.joined && !work.products.empty()) {
      work.products.back().rows += rows;
      continue;
    }
    double tokens = tokens_;
    for (const Report& report : block.reports) {
      if (report.param == id) tokens = static_cast<double>(report.tokens);
    }
    work.products.push_back(
        {id, static_cast<double>(shape_.batch), tokens, rows, columns, !param.frozen});
  }
  double sum = 0;
  for (const WeightProduct& product : work.products) sum += product.flops();
  const auto flops = static_cast<double>(block.forward_flops - block.repeated_flops);
  if (sum > flops * 1.001) {  // some are tables, which are looked up
    std::erase_if(work.products, [&](const WeightProduct& product) {
      return std::any_of(block.reports.begin(), block.reports.end(), [&](const Report& report) {
        return report.by == Report::By::embedding && report.param == product.param;
      });
    });
    sum = 0;
    for (const WeightProduct& product : work.products) sum += product.flops();
    for (WeightProduct& product : work.products) {
      if (sum > flops * 1.001) product.tokens *= flops / sum;
    }
  } else if (&block != &shape_.loss) {
    if (block.scores.matrices == 0) work.attention = flops - sum;
    work.scores = block.scores;
  }
  return work;
}

void StepWork::add_forward(Work& work, const BlockWork& block) const {
  for (const WeightProduct& product : block.products) add_product(work, product, schedule_.options);
  work[Amount::attention_forward] += block.attention / kGiga;
  // made, scaled, hidden, normalised, read
  add_scores(work, block.scores, 2, 8, Amount::moved_forward);
  work[Amount::moved_forward] += block.moved / kGiga;
}

void StepWork::add_input_grads(Work& work, const BlockWork& block) const {
  for (const WeightProduct& product : block.products) add_product(work, product, schedule_.options);
  work[Amount::attention_backward] += 2.5 * block.attention / kGiga;
  // as in forward, but for the last reading; their gradient is made, multiplied, summed by rows,
  // lessened, multiplied and scaled; and three products read them
  add_scores(work, block.scores, 5, 22, Amount::moved_backward);
  work[Amount::moved_backward] += block.moved / kGiga;
}

bool StepWork::booked(const WeightProduct& product) const {
  const auto& booked = schedule_.booked_param;
  return static_cast<size_t>(product.param) < booked.size() &&
         booked[static_cast<size_t>(product.param)];
}

// A product for each sample, added to the sum with its coefficient.
void StepWork::add_clipped(Work& work, const WeightProduct& p) const {
  const auto sum_bytes = static_cast<double>(dtype_bytes(schedule_.grad_dtype));
  work[Amount::clip] += p.flops() / kGiga;
  if (by_sample_products(p, schedule_.options)) {
    work[Amount::clip_moved] +=
        p.rows * p.columns * sum_bytes * (schedule_.accumulates_whole ? 2 : 1) / kGiga;
    return;
  }
  work[Amount::clip_moved] += 2 * p.numbers() * sum_bytes / kGiga;
}

void StepWork::add_weight_grads(Work& work, const BlockWork& block, GradUse use) const {
  const auto element = static_cast<double>(dtype_bytes(schedule_.options.compute));
  const std::optional<privacy::ClipMethod>& clip = schedule_.options.clip;
  if (use == GradUse::norm || use == GradUse::book || use == GradUse::keep)
    work[Amount::norm_launches] += block.reports;
  for (const WeightProduct& product : block.products) {
    if (!product.trained) continue;
    switch (use) {
      case GradUse::sum:
        add_product(work, product, schedule_.options);
        break;
      case GradUse::clip:
        add_clipped(work, product);
        break;
      case GradUse::keep:
        if (booked(product)) break;
        if (by_sample_products(product, schedule_.options)) {  // its norms are found on the way
          add_product(work, product, schedule_.options);
          work[Amount::kept] += product.numbers() * element / kGiga;
        } else {
          add_product(work, product, schedule_.options, product.samples);
          work[Amount::kept] += 2 * product.numbers() * element / kGiga;
        }
        break;
      case GradUse::norm:
      case GradUse::book:
        work += norm_work(product, clip->rules[static_cast<size_t>(product.param)], clip->tile,
                          schedule_.options);
        break;
      case GradUse::none:
        break;
    }
  }
}

Work StepWork::combine(const Op& op) const {
  Work work;
  work[Amount::other_rows] = 1;
  const UnitLayout& unit = schedule_.layout.units[static_cast<size_t>(op.unit)];
  const auto sum_bytes = static_cast<double>(dtype_bytes(schedule_.grad_dtype));
  if (op.use != GradUse::clip) {  // a reduced shard is added
    work[Amount::combined] = 3 * static_cast<double>(unit.shard_numel) * sum_bytes / kGiga;
    return work;
  }
  const bool exchanged = schedule_.exchanges(op.unit);
  const auto kept = static_cast<double>(
      exchanged ? unit.shard_numel : schedule_.kept_numel[static_cast<size_t>(op.unit)]);
  const int runs = exchanged ? schedule_.options.world : schedule_.combine_every;
  work[Amount::combined] =
      kept *
      (static_cast<double>(runs * shape_.batch * dtype_bytes(schedule_.options.compute)) +
       sum_bytes * (exchanged || schedule_.accumulates_whole ? 2 : 1)) /
      kGiga;
  return work;
}

Work StepWork::update(const Op& op) const {
  const StepOptions& options = schedule_.options;
  const UnitLayout& unit = schedule_.layout.units[static_cast<size_t>(op.unit)];
  const bool sharded = options.world > 1 && options.strategy != Strategy::ddp;
  const auto numbers = static_cast<double>(sharded ? unit.shard_numel : unit.padded_numel);
  // A fused update reads the samples' own gradients, of this rank or of all.
  const auto frees = [&](BufferRole role) {
    return std::any_of(op.frees.begin(), op.frees.end(),
                       [role](const Buffer& buffer) { return buffer.role == role; });
  };
  const int64_t samples = frees(BufferRole::sample_grads) ? shape_.batch
                          : frees(BufferRole::received)   ? options.world * shape_.batch
                                                          : 0;
  const int64_t grads = samples > 0 ? samples * dtype_bytes(options.compute)
                                    : dtype_bytes(schedule_.grad_shard_dtype);
  const int64_t bytes =
      2 * dtype_bytes(schedule_.stored(op.unit).dtype) + grads +
      2 * optimizer_states(options.optimizer) * dtype_bytes(options.optimizer_state());
  Work work;
  work[Amount::update_rows] = 1;
  work[Amount::updated] = numbers * static_cast<double>(bytes) / kGiga;
  work[Amount::updated_numbers] = numbers / kGiga;
  if (!options.clip) return work;
  const Amount drawn = noise_ == NoiseGenerator::philox     ? Amount::noise_philox
                       : noise_ == NoiseGenerator::hardened ? Amount::noise_hardened
                                                            : Amount::noise_secure;
  work[drawn] = numbers / kGiga;
  return work;
}

Work StepWork::of(const Op& op) const {
  Work work;
  const bool selective = schedule_.options.checkpointing == Checkpointing::selective;
  switch (op.kind) {
    case OpKind::forward:
      work[Amount::forward_rows] = 1;
      add_forward(work, block(op.block));
      break;
    case OpKind::recompute: {
      BlockWork again = block(op.block);
      if (selective) again.attention = 0, again.scores = {};
      if (shape_.blocks[static_cast<size_t>(op.block)].recompute_skips_output &&
          !again.products.empty())
        again.products.pop_back();
      work[Amount::forward_rows] = 1;
      add_forward(work, again);
      break;
    }
    case OpKind::loss: {
      const BlockWork& loss = block(op.block);
      const auto forward = static_cast<double>(shape_.loss.forward_flops),
                 once = forward - static_cast<double>(shape_.loss.repeated_flops);
      work[Amount::loss_rows] = 1;
      for (const WeightProduct& product : loss.products) {
        add_product(work, product, schedule_.options, 1, once > 0 ? forward / once : 1);
        add_product(work, product, schedule_.options);  // the gradient of its input
        if (product.columns > 0)
          work[Amount::logits] += product.flops() / (2 * product.columns) / kGiga;
      }
      work[Amount::moved_backward] += loss.moved / kGiga;
      add_weight_grads(work, loss, op.use);
      break;
    }
    case OpKind::backward:
      work[Amount::backward_rows] = 1;
      add_input_grads(work, block(op.block));
      add_weight_grads(work, block(op.block), op.use);
      break;
    case OpKind::weight_grad:
      work[Amount::other_rows] = 1;
      for (const WeightProduct& product : block(op.block).products) {
        if (product.trained && (schedule_.booked_param.empty() || booked(product) ||
                                schedule_.options.clip->pass != privacy::PassKind::keep))
          add_clipped(work, product);
      }
      break;
    case OpKind::combine:
      return combine(op);
    case OpKind::update:
      return update(op);
    case OpKind::zero:
      work[Amount::steps] = 1;
      work[Amount::combined] = created_bytes(op.creates) / kGiga;
      break;
    case OpKind::gather:  // on the compute lane: a cast
      if (op.lane != Lane::compute) break;
      work[Amount::other_rows] = 1;
      work[Amount::combined] =
          static_cast<double>(schedule_.layout.units[static_cast<size_t>(op.unit)].padded_numel *
                              (dtype_bytes(schedule_.stored(op.unit).dtype) +
                               dtype_bytes(schedule_.options.compute))) /
          kGiga;
      break;
    case OpKind::norm:
      work[Amount::other_rows] = 1;
      work[Amount::combined] =
          static_cast<double>(schedule_.layout.units[static_cast<size_t>(op.unit)].shard_numel *
                              dtype_bytes(schedule_.grad_shard_dtype)) /
          kGiga;
      break;
    case OpKind::copy_in:
    case OpKind::copy_out: {
      const UnitLayout& unit = schedule_.layout.units[static_cast<size_t>(op.unit)];
      const StepOptions& options = schedule_.options;
      const bool sharded = options.world > 1 && options.strategy != Strategy::ddp;
      int64_t bytes = options.offload_params ? dtype_bytes(options.storage) : 0;
      if (op.note != "params" && options.offload_optimizer)
        bytes += optimizer_states(options.optimizer) * dtype_bytes(options.optimizer_state());
      work[Amount::copied] =
          static_cast<double>((sharded ? unit.shard_numel : unit.padded_numel) * bytes) / kGiga;
      break;
    }
    case OpKind::load:
    case OpKind::coefficients:
      work[Amount::other_rows] = 1;
      break;
    case OpKind::release:
    case OpKind::reduce:
    case OpKind::exchange:
      break;
  }
  return work;
}

}  // namespace veil
