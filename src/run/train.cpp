#include "run/train.h"

#include "base/error.h"
#include "comm/rank_link.h"
#include "run/resources.h"
#include "run/train_run.h"
#include "tensor/out_of_memory.h"
#include "train/checkpoint.h"

namespace veil {

TrainResult train(const RunConfig& config, const TrainingEvents& events, const RankInfo& info) {
  const PreparedRun prepared = prepare_training(config, info);
  try {
    return TrainRun(prepared, events, info).run();
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    const std::optional<std::string> reason = out_of_memory_reason(error);
    if (!reason) throw;
    throw UserError(
        out_of_memory_text(prepared.config, info.world, prepared.device.is_cuda(), *reason),
        kExitFailed);
  }
}

TrainedModel read_trained(const RunConfig& config, const std::string& folder) {
  const auto checkpoint = newest_checkpoint(folder);
  if (!checkpoint) user_error("{}: the folder has no checkpoint", folder);
  RunConfig alone = config;  // any world reads it
  alone.placement = {};
  alone.placement.device = DeviceKind::cpu;
  alone.step.strategy = Strategy::ddp;
  alone.step.accumulation = 1;
  alone.step.graph = GraphMode::off;
  alone.measure.profile = {ProfileKind::none};
  const ModelSource source = model_source(alone);
  const Model model = make_model(alone, source, 1);
  ExecutorOptions options = executor_options(alone, 1, cpu_device());
  if (!frozen_names(model).empty()) options.initial = initial_weights(source, model).fill;
  Executor executor(model, 1, options, cpu_device(),
                    empty_batch(model, 1, options.step.compute, cpu_device()), {});
  TrainedModel trained;
  trained.state = load_checkpoint(*checkpoint, executor);
  trained.steps = executor.steps();
  for (size_t i = 0; i < model.params.size(); ++i)
    trained.parameters[model.params[i].name] = executor.parameter(static_cast<ParamId>(i));
  return trained;
}

}  // namespace veil
