// Private training from a C++ program of your own: trains llama-tiny on a folder of text, prints
// epsilon after each step, and reads the checkpoint back.
//
//   embed TEXT_FOLDER OUTPUT_FOLDER
#include <veil/profile/memory.h>
#include <veil/run/train.h>

#include <cstdio>
#include <exception>

int run(const char* texts, const char* output) {
  veil::memory::install();  // before the first tensor, so that peaks are known by category

  veil::RunConfig config = veil::training_config("llama-tiny");
  config.model.from_scratch = true;  // a preset has no weights
  config.model.seq_length = 32;
  config.placement.device = veil::DeviceKind::cpu;
  config.data.path = texts;
  // The unit of privacy is then a sequence; the default, one sample per document, needs more texts.
  config.data.samples = veil::data::SampleKind::packed;
  config.step.total_batch_size = 64;  // samples of a logical batch, expected under Poisson sampling
  config.step.batch_size = 16;        // samples per micro-batch
  config.optimizer.learning_rate = 3e-3;
  config.privacy.epsilon = 8;  // the noise that this budget needs is computed
  config.privacy.delta = 1e-5;
  config.privacy.clip_norm = 1;
  config.training.steps = 10;
  config.training.output_dir = output;

  veil::TrainingEvents events;
  events.on_step = [](const veil::StepEvent& event) {
    // Epsilon is covered by the guarantee; the loss is not, and is for your eyes only.
    std::printf("step %lld  epsilon %.3f  loss %.3f\n", static_cast<long long>(event.line.step),
                event.line.privacy->epsilon, event.line.loss);
  };
  const veil::TrainResult result = veil::train(config, events);
  if (!result.finished || !result.privacy) return 1;
  std::printf("%s\n", result.privacy->guarantee.c_str());

  const veil::TrainedModel model = veil::read_trained(config, result.folder);
  int64_t numbers = 0;
  for (const auto& [name, tensor] : model.parameters) numbers += tensor.numel();
  std::printf("checkpoint of step %lld: %zu tensors, %lld parameters\n",
              static_cast<long long>(model.steps), model.parameters.size(),
              static_cast<long long>(numbers));
  return model.steps == result.steps ? 0 : 1;
}

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: embed TEXT_FOLDER OUTPUT_FOLDER\n");
    return 2;
  }
  try {
    return run(arguments[1], arguments[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "embed: %s\n", error.what());
    return 1;
  }
}
