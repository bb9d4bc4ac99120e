#include "audit/audited_run.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/philox.h"
#include "privacy/sampler.h"
#include "train/canary_feed.h"

namespace veil::audit {
namespace {

constexpr double kHugeRow = 1e4;
constexpr int64_t kSamplesOfAUser = 3;         // more than one, so that one too many is seen
constexpr int64_t kFirstDrawnLimit = 1 << 22;  // steps that are looked through for a drawn sample

RunConfig audited_config(RunConfig config) {
  if (!config.privacy.is_private() && !config.privacy.epsilon && !config.privacy.sigma)
    user_error(
        "the options after -- are not a private run's: add `epsilon` or `sigma`, and "
        "`delta`");
  if (!config.training.resume.empty())
    field_error("resume", "{}: an audit starts from the model's own parameters; leave it out",
                config.training.resume);
  config.training.export_folder.clear();
  config.training.profile_step.reset();
  config.measure.profile = {ProfileKind::none};
  return config;
}

double planned_on_gradient(const privacy::Mechanism& mechanism) {
  if (!(mechanism.sigma() > 0))
    field_error("sigma", "is 0: nothing is private, and there is no claim to audit");
  return mechanism.noise_deviation() / mechanism.expected_batch();
}

// Hands out the order that a trainer makes; its stream is never read.
class OrderTaker final : public Feed {
 public:
  OrderTaker(int64_t count, std::unique_ptr<data::Order>& taken) : count_(count), taken_(taken) {}
  int64_t count() const override { return count_; }
  int64_t tokens() const override { return 0; }
  std::unique_ptr<FeedStream> open(std::unique_ptr<data::Order> order, data::Position,
                                   uint64_t) const override {
    taken_ = std::move(order);
    return std::make_unique<NoStream>();
  }

 private:
  class NoStream final : public FeedStream {
   public:
    std::optional<FedBatch> next(int64_t) override { return {}; }
    std::optional<data::Position> position() const override { return {}; }
    data::LoaderStatistics statistics() const override { return {}; }
  };
  int64_t count_;
  std::unique_ptr<data::Order>& taken_;
};

// These users and one more, who owns `more` samples behind theirs.
std::shared_ptr<const data::Users> with_one_more(const data::Users* known, int64_t more) {
  const int64_t users = known ? known->count() : 0, samples = known ? known->samples() : 0;
  data::Owners owners;  // an item is a user here
  for (int64_t user = 0; user <= users; ++user) owners.add(std::to_string(user));
  std::vector<int64_t> items(static_cast<size_t>(samples + more), users);
  for (int64_t user = 0; user < users; ++user) {
    for (int64_t place = 0; place < known->samples_of(user); ++place)
      items[static_cast<size_t>(known->sample(user, place))] = user;
  }
  return std::make_shared<data::Users>(owners, items);
}

// The table that tokens are looked up in, if it is trained: its place among the model-wide
// indices, rows and width.
struct TokenTable {
  int64_t first = 0, rows = 0, width = 0;
  bool tied = false;
};
std::optional<TokenTable> token_table(Executor& executor) {
  const ModelShape& shape = executor.shape();
  const Layout& layout = executor.schedule().layout;
  for (const BlockShape& block : shape.blocks) {
    for (const ParamId id : block.params) {
      const ParamShape& param = shape.params[static_cast<size_t>(id)];
      if (param.dims.size() != 2 || param.dims[0] != shape.input.classes) continue;
      if (param.frozen) return {};  // its rows stay as they are
      const UnitLayout& unit =
          layout.units[static_cast<size_t>(layout.unit_of_param[static_cast<size_t>(id)])];
      return TokenTable{unit.base + layout.offset_of_param[static_cast<size_t>(id)], param.dims[0],
                        param.dims[1], executor.schedule().tied_table == id};
    }
  }
  return {};
}

}  // namespace

int64_t drawn_here(data::Order& order, int64_t step) {
  const std::vector<int64_t> samples = order.samples({0, step});
  return std::count_if(samples.begin(), samples.end(),
                       [](int64_t sample) { return sample != data::kNoSample; });
}

AuditedRun::AuditedRun(const AuditOptions& options, const AuditPlace& place)
    : options_(options),
      run_(audited_config(options.config), place.on_notice, place.info),
      probe_(run_.executor(), run_.optimizer(), planned_on_gradient(run_.mechanism())),
      data_{run_.samples(), run_.options().privacy->users} {}

AuditedData AuditedRun::one_unit() const {
  return {first_samples(data_.samples, 1), data_.users ? with_one_more(nullptr, 1) : nullptr};
}

AuditClaim AuditedRun::claim() const {
  const privacy::MechanismRequest& request = mechanism().request();
  AuditClaim claim;
  claim.steps = *request.steps;
  // Of these steps alone: what a model's earlier training cost is not audited here.
  claim.epsilon = privacy::make_accountant(request.accountant)
                      ->epsilon({mechanism().event(claim.steps)}, request.delta)
                      .epsilon;
  claim.delta = request.delta;
  claim.sigma = mechanism().sigma();
  claim.clip_norm = request.clip_norm;
  claim.slack = request.slack;
  claim.expected_batch = mechanism().expected_batch();
  claim.q = mechanism().q();
  claim.unit = name_of(request.unit);
  claim.sampler = name_of(request.sampler);
  claim.accountant = name_of(request.accountant);
  claim.optimizer = name_of(run_.optimizer().kind);
  claim.storage = name_of(run_.config().step.storage);
  claim.world = run_.info().world;
  for (const UpdateProbe::Place& at : probe_.places()) claim.parameters += at.numel;
  return claim;
}

Tensor AuditedRun::gradient(const AuditedData& data, int64_t step, bool silent,
                            const std::function<void(const Tensor&)>& change) {
  probe_.rewind(
      step - 1, change ? change : [](const Tensor&) {});
  run_.executor().silence_noise(silent);
  run_.train(data.samples, data.users, step,
             [&](double wanted) { return probe_.learning_rate(wanted); });
  run_.executor().silence_noise(false);
  if (run_.executor().steps() != step)
    throw UserError(fmt::format("step {} was not taken: the trainer left it out", step),
                    kExitFailed);
  return probe_.gradient();
}

Tensor AuditedRun::noise(int64_t step) {
  Executor& executor = run_.executor();
  probe_.rewind(step - 1);
  if (executor.schedule().options.varying) {
    executor.load({});
  } else {
    const int64_t rows = executor.shape().batch * executor.schedule().options.micro_batches;
    const Batch row = feed_row(*data_.samples, data::kNoSample, 0);
    Batch batch = row.each([&](const Tensor& tensor) {
      std::vector<int64_t> dims(static_cast<size_t>(tensor.dim()), 1);
      dims[0] = rows;
      return tensor.repeat(dims);
    });
    batch.counted = at::zeros({rows}, at::kByte);
    executor.load(batch);
  }
  executor.step(probe_.learning_rate(0));
  return probe_.gradient();
}

std::unique_ptr<data::Order> AuditedRun::order(const AuditedData& data) {
  std::unique_ptr<data::Order> taken;
  probe_.rewind(0);
  run_.train(std::make_shared<OrderTaker>(data.samples->count(), taken), data.users, 0,
             [](double wanted) { return wanted; });
  VEIL_CHECK(taken, "a trainer without an order");
  return taken;
}

double AuditedRun::sum_over_ranks(double value) {
  Communicator* const lane = run_.executor().communicator();
  if (!lane) return value;
  const Tensor all = at::zeros({1}, at::kDouble).fill_(value).to(run_.executor().device());
  lane->all_reduce(all)->wait();
  synchronize(run_.executor().device());
  return all.cpu().item<double>();
}

int64_t AuditedRun::step_that_draws(int64_t unit) {
  const ChaChaKey& key = run_.options().privacy->sampling;
  for (int64_t step = 1; step < kFirstDrawnLimit; ++step) {
    const std::vector<int64_t> drawn =
        privacy::poisson_draw(key, step - 1, unit + 1, mechanism().q());
    // The last rank's, so that every other rank has a sample in the same row.
    const bool last = drawn.size() % static_cast<size_t>(run_.info().world) == 0;
    if (!drawn.empty() && drawn.back() == unit && last) return step;
  }
  user_error("a sampling rate of {:g} draws a canary too seldom to be audited", mechanism().q());
}

AuditedData AuditedRun::data_with(const HardSample& sample, bool present) const {
  const std::shared_ptr<const Feed>& samples = data_.samples;
  if (mechanism().relation() != privacy::Relation::add_remove)
    return {with_canaries(samples, {{sample.row}, {present}, *replaced_})};
  if (!present) return data_;
  const int64_t count = data_.users ? kSamplesOfAUser : 1;
  const auto rows = static_cast<size_t>(count);
  return {with_canaries(samples, {std::vector<Batch>(rows, sample.row),
                                  std::vector<bool>(rows, true), samples->count()}),
          data_.users ? with_one_more(data_.users.get(), count) : nullptr};
}

AuditedRun::Move AuditedRun::move_by(const HardSample& sample) {
  if (!canary_step_) {
    if (mechanism().relation() == privacy::Relation::add_remove) {
      canary_step_ = step_that_draws(data_.units());
    } else {
      // The first sample that rank 0 takes in the first step.
      canary_step_ = 1;
      const int64_t first = order(data_)->samples({0, 0}).at(0);
      replaced_ = static_cast<int64_t>(
          sum_over_ranks(run_.info().rank == 0 ? static_cast<double>(first) : 0));
    }
  }
  const Tensor with = gradient(data_with(sample, true), *canary_step_, true, sample.change),
               without = gradient(data_with(sample, false), *canary_step_, true, sample.change);
  const double scale = expected_batch() / clip_norm();
  const auto norm = [&](const Tensor& of) { return scale * of.norm().item<double>(); };
  Move move{with.sub(without), 0, 0};
  move.distance = norm(move.difference);
  if (!std::isfinite(move.distance)) move.distance = HUGE_VAL;
  // What the sum is read with, besides.
  move.allowed = 1 + mechanism().request().slack;
  move.allowed += scale * (probe_.read_error(with) + probe_.read_error(without));
  return move;
}

std::vector<HardSample> AuditedRun::hard_samples() const {
  auto& run = const_cast<OpenedRun&>(run_);
  const uint64_t seed = run_.options().privacy->draws;
  const Batch ordinary = feed_row(*data_.samples, 0, seed),
              empty = feed_row(*data_.samples, data::kNoSample, seed);
  const auto copy = [](const Batch& of) {
    return of.each([](const Tensor& tensor) { return tensor.clone(); });
  };
  std::vector<HardSample> found = {{"ordinary", copy(ordinary)}};
  if (!ordinary.inputs.is_floating_point()) {
    const int64_t classes = std::max<int64_t>(2, run_.model().input.classes);
    const bool causal = ordinary.targets.dim() == ordinary.inputs.dim();
    const auto tokens = [&](const std::function<int64_t(int64_t)>& at) {
      Batch row = copy(ordinary);
      for (int64_t t = 0; t < row.inputs.numel(); ++t) {
        row.inputs.data_ptr<int64_t>()[t] = at(t);
        if (causal) row.targets.data_ptr<int64_t>()[t] = at(t + 1);
      }
      return row;
    };
    const int64_t token = ordinary.inputs.data_ptr<int64_t>()[0], last = classes - 1;
    found.push_back({"one token repeated", tokens([&](int64_t) { return token; })});
    found.push_back({"full length", tokens([&](int64_t t) {
                       const Philox4 words = philox4x32(17, static_cast<uint64_t>(t), 0);
                       return static_cast<int64_t>(words.word[0] % static_cast<uint64_t>(classes));
                     })});
    if (const std::optional<TokenTable> table = token_table(run.executor())) {
      const auto row_of = [table](int64_t id, const Tensor& start) {
        return start.narrow(0, table->first + id * table->width, table->width);
      };
      found.push_back({"huge embedding row", tokens([&](int64_t) { return token; }),
                       [=](const Tensor& start) { row_of(token, start).mul_(kHugeRow); }});
      // A tied table is the head's as well, and every sample's logits would be no numbers.
      if (!table->tied)
        found.push_back({"not a number", tokens([&](int64_t t) { return t == 0 ? last : token; }),
                         [=](const Tensor& start) { row_of(last, start).fill_(NAN); }});
    }
  } else {
    Batch constant = copy(ordinary), huge = copy(ordinary), broken = copy(ordinary);
    constant.inputs.fill_(1);
    huge.inputs.mul_(kHugeRow);
    broken.inputs.fill_(NAN);
    found.push_back({"one value repeated", constant});
    found.push_back({"huge values", huge});
    found.push_back({"not a number", broken});
  }
  found.push_back({"empty", copy(empty)});
  return found;
}

}  // namespace veil::audit
