#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "comm/call_place.h"
#include "comm/wait_watch.h"
#include "privacy/invariants.h"
#include "privacy/sampler.h"
#include "train/checkpoint.h"

namespace veil {

double EvaluationLine::perplexity() const {
  return std::exp(loss);
}

Trainer::Trainer(Executor& executor, std::shared_ptr<const Feed> samples,
                 std::shared_ptr<const Feed> held_out, TrainOptions options, TrainEvents events)
    : executor_(executor),
      samples_(std::move(samples)),
      held_out_(std::move(held_out)),
      options_(std::move(options)),
      events_(std::move(events)) {}

int64_t Trainer::rank_samples() const {
  return executor_.shape().batch * executor_.schedule().options.micro_batches;
}

std::vector<double> Trainer::sum_over_ranks(const std::vector<double>& values) {
  Communicator* lane = executor_.communicator();
  if (!lane) return values;
  Tensor all = empty_tensor({static_cast<int64_t>(values.size())}, at::kDouble, cpu_device());
  std::memcpy(all.data_ptr<double>(), values.data(), values.size() * sizeof(double));
  all = all.to(executor_.device());
  lane->all_reduce(all)->wait();
  all = all.cpu();
  return {all.data_ptr<double>(), all.data_ptr<double>() + all.numel()};
}

int64_t Trainer::last_step() const {
  return options_.privacy ? std::min(options_.steps, options_.privacy->last_step) : options_.steps;
}

std::unique_ptr<data::Order> Trainer::make_order() const {
  const int world = executor_.schedule().options.world;
  const int rank = executor_.communicator() ? executor_.communicator()->rank() : 0;
  if (!options_.privacy ||
      options_.privacy->mechanism.request().sampler == privacy::SamplerKind::shuffled)
    return std::make_unique<data::ShuffledOrder>(samples_->count(), rank_samples() * world,
                                                 options_.seed, rank, world);
  const PrivateTraining& p = *options_.privacy;
  VEIL_CHECK((p.users != nullptr) == (p.mechanism.request().unit == privacy::PrivacyUnit::user) &&
                 (!p.users || p.users->samples() == samples_->count()),
             "users of other samples, or a unit that is not drawn");
  return std::make_unique<privacy::PoissonOrder>(
      p.sampling, p.users ? p.users->count() : samples_->count(), p.mechanism.q(),
      executor_.shape().batch, rank, world,
      privacy::DrawOptions{p.mechanism.batch_maximum(), p.users});
}

bool Trainer::run(data::Position start) {
  const int world = executor_.schedule().options.world;
  const std::unique_ptr<FeedStream> batches = samples_->open(
      make_order(), start, options_.privacy ? options_.privacy->draws : options_.seed);
  const int64_t end = last_step();
  bool stopped = false;
  Communicator* const lane = executor_.communicator();
  WaitWatch waits(options_.waits, lane ? lane->rank() : 0);
  const bool by_nccl = lane && lane->backend() == "nccl";
  for (int64_t step = executor_.steps() + 1; step <= end && !stopped; ++step) {
    const CallPlaceScope place(step);
    const double begin_ms = steady_ms(), waited_before = batches->statistics().waited_ms;
    std::optional<FedBatch> batch =
        waits.wait_for("its data loader", [&] { return batches->next(step); });
    VEIL_CHECK(batch, "a training order has no end");
    StepLine line;
    line.step = step;
    line.epoch = batch->position.epoch;
    line.learning_rate = options_.learning_rate(step);
    if (options_.privacy && options_.privacy->before_step) options_.privacy->before_step(step);
    if (options_.privacy) batch->batch.counted = counted_rows(batch->samples);
    executor_.load(batch->batch);
    executor_.step(line.learning_rate);
    // Counted while a GPU computes: the next step need not wait for it.
    const PrivateTraining* const p = options_.privacy ? &*options_.privacy : nullptr;
    const double epsilon = p && p->epsilon ? p->epsilon(step) : 0;
    // The loss waits for the step; ranks also agree on whether to stop.
    const bool asked_to_stop = options_.stop && options_.stop();
    const auto read_sums = [&] {
      const double loss = executor_.loss_sum();
      const Executor::ClipFacts facts =
          options_.privacy ? executor_.clip_facts() : Executor::ClipFacts{};
      return sum_over_ranks({loss, asked_to_stop ? 1.0 : 0.0, static_cast<double>(facts.samples),
                             static_cast<double>(facts.bad_samples), facts.clip_count});
    };
    // Ranks that communicate by NCCL wait for each other on the GPU, where nobody sees it.
    const std::vector<double> sums =
        by_nccl ? waits.wait_in("collectives by NCCL", read_sums) : read_sums();
    const double samples = options_.privacy ? sums[2] : static_cast<double>(rank_samples() * world);
    line.loss = sums[0] / samples;
    stopped = sums[1] > 0;
    if (options_.average) options_.average->update();
    if (p) finish_private_step(line, epsilon, sums[2], sums[3], sums[4]);
    if (executor_.schedule().options.grad_norm) line.grad_norm = executor_.grad_norm();
    line.seconds = (steady_ms() - begin_ms) / 1e3;
    line.tokens_per_second =
        samples * static_cast<double>(samples_->tokens()) / std::max(1e-9, line.seconds);
    line.waited_for_data_seconds = (batches->statistics().waited_ms - waited_before) / 1e3;
    line.peak_bytes =
        memory::peak(executor_.schedule().options.on_gpu ? Space::device : Space::host).total();
    if (events_.on_step) events_.on_step(line);
    // A private run continues: bad samples contribute nothing, and an end that depends on one would
    // tell of it.
    if (!options_.privacy && !std::isfinite(line.loss)) {
      throw UserError(
          fmt::format("the loss is {} at step {}: lower `learning_rate` or raise `warmup_steps`",
                      line.loss, step),
          kExitFailed);
    }
    // The checkpoint comes last: if it is whole, all that is to be said of its step has been
    // said.
    const bool last = step == end;
    auto due = [&](int64_t every) { return last || (every > 0 && step % every == 0); };
    if (held_out_ && due(options_.evaluate_every)) evaluate();
    if (stopped || due(options_.checkpoint_every)) checkpoint(*batches->position());
  }
  loader_statistics_ = batches->statistics();
  return executor_.steps() >= end;
}

void Trainer::finish_private_step(StepLine& line, double epsilon, double samples,
                                  double bad_samples, double clip_count) {
  PrivateTraining& p = *options_.privacy;
  privacy::expect_drawn(p.mechanism, p.users ? p.users->count() : samples_->present(),
                        std::llround(samples));
  const double good = samples - bad_samples;
  line.privacy = PrivateLine{.epsilon = epsilon,
                             .clip_norm = p.clip_norm,
                             .samples = static_cast<int64_t>(samples),
                             .bad_samples = static_cast<int64_t>(bad_samples),
                             .below_clip_norm = good > 0 ? clip_count / good + 0.5 : 0};
  if (p.mechanism.request().clip != privacy::ClipFunction::adaptive) return;
  const privacy::AdaptiveClip& adaptive = p.mechanism.request().adaptive;
  const double noisy =
      privacy::noisy_clip_count(clip_count, adaptive, p.generator, p.clip_count, line.step);
  p.clip_norm = privacy::next_clip_norm(adaptive, p.clip_norm, noisy, p.mechanism.expected_batch());
  executor_.set_clip_norms({p.clip_norm});
}

void Trainer::checkpoint(const data::Position& next) {
  if (options_.folder.empty()) return;
  nlohmann::ordered_json state;
  state["schema"] = 1;
  state["steps"] = executor_.steps();
  const PrivateTraining* const p = options_.privacy ? &*options_.privacy : nullptr;
  state["global_batch"] = p ? std::llround(p->mechanism.expected_batch())
                            : rank_samples() * executor_.schedule().options.world;
  state["position"] = data::position_json(next);
  state["settings"] = options_.settings;
  if (!options_.base.is_null()) state["base"] = options_.base;
  if (!options_.frozen.empty()) state["frozen"] = options_.frozen;
  if (p) {
    state["privacy"] = p->state ? p->state(executor_.steps()) : nlohmann::ordered_json::object();
    state["privacy"]["clip_norm"] = p->clip_norm;
  }
  if (events_.before_checkpoint) events_.before_checkpoint();
  save_checkpoint(options_.folder, executor_, state, options_.keep_checkpoints, options_.average,
                  [&](const std::string& folder) {
                    if (p && p->checkpoint_written)
                      p->checkpoint_written(executor_.steps(), folder);
                  });
  if (events_.on_checkpoint) events_.on_checkpoint(executor_.steps());
}

EvaluationLine Trainer::evaluate() {
  VEIL_CHECK(held_out_, "evaluation without held-out samples");
  const int world = executor_.schedule().options.world;
  const int rank = executor_.communicator() ? executor_.communicator()->rank() : 0;
  const int64_t batch = executor_.shape().batch;
  const int64_t count = options_.evaluation_samples > 0
                            ? std::min(options_.evaluation_samples, held_out_->count())
                            : held_out_->count();
  const std::unique_ptr<FeedStream> batches =
      held_out_->open(std::make_unique<data::SequentialOrder>(count, batch * world, rank, world),
                      {}, options_.seed);
  double loss = 0, weight = 0, samples = 0, correct = 0, tokens = 0;
  bool labelled = false;
  std::optional<AverageInPlace> average;
  if (options_.average) average.emplace(executor_, *options_.average);
  while (const std::optional<FedBatch> made = batches->next(/*step=*/0)) {
    const Evaluation evaluation = executor_.evaluate(made->batch);
    const double* losses = evaluation.losses.data_ptr<double>();
    labelled = evaluation.correct.defined();
    for (size_t i = 0; i < made->samples.size(); ++i) {
      if (made->samples[i] == data::kNoSample) continue;
      const double valid = made->weights.empty() ? 1 : static_cast<double>(made->weights[i]);
      loss += losses[i] * valid;
      weight += valid;
      if (!made->weights.empty()) tokens += valid;
      samples += 1;
      if (labelled) correct += evaluation.correct.data_ptr<bool>()[i] ? 1 : 0;
    }
  }
  average.reset();
  const std::vector<double> sums = sum_over_ranks({loss, weight, samples, correct, tokens});
  EvaluationLine line;
  line.step = executor_.steps();
  line.loss = sums[1] > 0 ? sums[0] / sums[1] : 0;
  line.samples = static_cast<int64_t>(sums[2]);
  line.tokens = static_cast<int64_t>(sums[4]);
  line.of_average = options_.average != nullptr;
  if (labelled) line.accuracy = sums[2] > 0 ? sums[3] / sums[2] : 0;
  if (events_.on_evaluation) events_.on_evaluation(line);
  return line;
}

}  // namespace veil
