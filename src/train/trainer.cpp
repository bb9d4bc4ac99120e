#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "train/checkpoint.h"

namespace veil {
namespace {

Tensor whole_numbers(const std::vector<int64_t>& values, c10::IntArrayRef dims) {
  Tensor tensor = empty_tensor(dims, at::kLong, cpu_device());
  std::memcpy(tensor.data_ptr<int64_t>(), values.data(), values.size() * sizeof(int64_t));
  return tensor;
}

}  // namespace

double EvaluationLine::perplexity() const {
  return std::exp(loss);
}

Batch batch_tensors(const data::Batch& batch) {
  const auto targets = static_cast<int64_t>(batch.targets.size());
  const std::vector<int64_t> dims =
      targets == batch.rows ? std::vector{batch.rows} : std::vector{batch.rows, batch.length};
  return {whole_numbers(batch.inputs, {batch.rows, batch.length}), whole_numbers(batch.targets, dims)};
}

Trainer::Trainer(Executor& executor, std::shared_ptr<const data::Samples> samples,
                 std::shared_ptr<const data::Samples> held_out, TrainOptions options, TrainEvents events)
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

bool Trainer::run(data::Position start) {
  const int world = executor_.schedule().options.world;
  const int rank = executor_.communicator() ? executor_.communicator()->rank() : 0;
  data::Batches batches(
      samples_,
      std::make_unique<data::ShuffledOrder>(samples_->count(), rank_samples() * world, options_.seed, rank, world),
      start);
  const double batch_samples = static_cast<double>(rank_samples() * world);
  const double tokens = batch_samples * static_cast<double>(samples_->length());
  bool stopped = false;
  for (int64_t step = executor_.steps() + 1; step <= options_.steps && !stopped; ++step) {
    const double begin_ms = steady_ms(), waited_before = batches.statistics().waited_ms;
    const std::optional<data::Batch> batch = batches.next();
    VEIL_CHECK(batch, "a shuffled order has no end");
    StepLine line;
    line.step = step;
    line.epoch = batch->position.epoch;
    line.learning_rate = options_.learning_rate(step);
    executor_.load(batch_tensors(*batch));
    executor_.step(line.learning_rate);
    // The loss waits for the step; ranks also agree on whether to stop.
    const bool asked_to_stop = options_.stop && options_.stop();
    const std::vector<double> sums = sum_over_ranks({executor_.loss_sum(), asked_to_stop ? 1.0 : 0.0});
    line.loss = sums[0] / batch_samples;
    stopped = sums[1] > 0;
    if (executor_.schedule().options.grad_norm) line.grad_norm = executor_.grad_norm();
    line.seconds = (steady_ms() - begin_ms) / 1e3;
    line.tokens_per_second = tokens / std::max(1e-9, line.seconds);
    line.waited_for_data_seconds = (batches.statistics().waited_ms - waited_before) / 1e3;
    line.peak_bytes = ledger::peak(executor_.schedule().options.on_gpu ? Space::device : Space::host).total();
    if (events_.on_step) events_.on_step(line);
    if (!std::isfinite(line.loss)) {
      throw UserError(
          fmt::format("the loss is {} at step {}: lower --learning-rate or raise --warmup-steps", line.loss, step),
          kExitFailed);
    }
    // The checkpoint comes last: where it is whole, all that is to be said of its step has been said.
    const bool last = step == options_.steps;
    auto due = [&](int64_t every) { return last || (every > 0 && step % every == 0); };
    if (held_out_ && due(options_.evaluate_every)) evaluate();
    if (stopped || due(options_.checkpoint_every)) checkpoint(*batches.position());
  }
  loader_statistics_ = batches.statistics();
  return executor_.steps() >= options_.steps;
}

void Trainer::checkpoint(const data::Position& next) {
  if (options_.folder.empty()) return;
  nlohmann::ordered_json state;
  state["schema"] = 1;
  state["steps"] = executor_.steps();
  state["global_batch"] = rank_samples() * executor_.schedule().options.world;
  state["position"] = data::position_json(next);
  state["settings"] = options_.settings;
  save_checkpoint(options_.folder, executor_, state, options_.keep_checkpoints);
  if (events_.on_checkpoint) events_.on_checkpoint(executor_.steps());
}

EvaluationLine Trainer::evaluate() {
  VEIL_CHECK(held_out_, "evaluation without held-out samples");
  const int world = executor_.schedule().options.world;
  const int rank = executor_.communicator() ? executor_.communicator()->rank() : 0;
  const int64_t batch = executor_.shape().batch;
  const int64_t count =
      options_.evaluation_samples > 0 ? std::min(options_.evaluation_samples, held_out_->count()) : held_out_->count();
  data::Batches batches(held_out_, std::make_unique<data::SequentialOrder>(count, batch * world, rank, world));
  double loss = 0, weight = 0, samples = 0, correct = 0;
  bool labelled = false;
  while (const std::optional<data::Batch> made = batches.next()) {
    const Evaluation evaluation = executor_.evaluate(batch_tensors(*made));
    const double* losses = evaluation.losses.data_ptr<double>();
    const int64_t targets = static_cast<int64_t>(made->targets.size()) / made->rows;
    labelled = evaluation.correct.defined();
    for (int64_t i = 0; i < made->rows; ++i) {
      if (made->samples[static_cast<size_t>(i)] == data::kNoSample) continue;
      const auto first = made->targets.begin() + i * targets;
      const auto valid = static_cast<double>(targets - std::count(first, first + targets, data::kIgnoredTarget));
      loss += losses[i] * valid;
      weight += valid;
      samples += 1;
      if (labelled) correct += evaluation.correct.data_ptr<bool>()[i] ? 1 : 0;
    }
  }
  const std::vector<double> sums = sum_over_ranks({loss, weight, samples, correct});
  EvaluationLine line;
  line.step = executor_.steps();
  line.loss = sums[1] > 0 ? sums[0] / sums[1] : 0;
  line.tokens = static_cast<int64_t>(sums[1]);
  line.samples = static_cast<int64_t>(sums[2]);
  if (labelled) line.accuracy = sums[2] > 0 ? sums[3] / sums[2] : 0;
  if (events_.on_evaluation) events_.on_evaluation(line);
  return line;
}

}  // namespace veil
