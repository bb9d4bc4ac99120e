#include "engine/test_run.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "kernels/random.h"
#include "models/adapters.h"
#include "models/dit.h"
#include "models/family.h"
#include "models/linear_stack.h"

namespace veil {

StepOptions TestCase::all_of(DType dtype) {
  StepOptions step;
  step.storage = step.compute = step.reduce = dtype;
  step.min_params = 300;  // between one and two layers of 182
  return step;
}

std::string TestCase::name() const {
  return (lora ? fmt::format("adapters of {} on {} ", lora->rank, join(lora->targets, ",")) : "") +
         (frozen.empty() ? "" : fmt::format("without {} ", join(frozen, ","))) +
         (model.empty()
              ? ""
              : fmt::format("{} {} {} tokens {} pieces of {} clipped at {} ", model, name_of(task),
                            tokens, name_of(attention), logit_piece_bytes, max_grad_norm)) +
         (clipped ? fmt::format("{} {} {} tile {} noise {} ",
                                privacy::plan_name(clipped->pass, clipped->combine_every),
                                name_of(clipped->rule), name_of(clipped->clip), clipped->tile,
                                clipped->noise_multiplier)
                  : "") +
         fmt::format(
             "{} world {} forward {} backward {} wrap {} offload {}{} checkpointing {} "
             "micro-batches {} accumulate {} exchange {} "
             "{} "
             "storage {} compute {} reduce {} moments {}",
             name_of(step.strategy), step.world, step.forward_prefetch,
             name_of(step.backward_prefetch), name_of(step.wrap), step.offload_params,
             step.offload_optimizer, name_of(step.checkpointing), step.micro_batches,
             name_of(step.accumulate_in), name_of(step.exchange), name_of(optimizer.kind),
             dtype_name(step.storage), dtype_name(step.compute), dtype_name(step.reduce),
             dtype_name(step.moments));
}

namespace {

Model test_model(const TestCase& test) {
  if (test.model.empty()) return linear_stack(test.width, test.layers);
  if (std::optional<DitConfig> config = dit_preset(test.model)) {
    config->image_size = 8;
    config->patch = 2;
    config->hidden = 24;
    config->heads = 3;
    config->time_features = 10;
    config->zero_deviation = 0.2;
    return dit_model(*config, test.attention);
  }
  LanguageConfig config = preset_config(test.model).value();
  config.task = test.task;
  config.padding_id = 7;
  // as small as shows everything: two layers, grouped heads, sizes that no world divides evenly
  config.hidden = 24;
  const bool ungrouped = config.family == Family::gpt2 || config.family == Family::roberta;
  config.heads = ungrouped ? 3 : test.heads;
  config.kv_heads = ungrouped ? 3 : test.kv_heads;
  config.head_dim = 8;
  config.feed = 20;
  config.vocabulary = 37;
  config.initial_deviation = 0.2;
  return language_model(config, {.tokens = test.tokens,
                                 .attention = test.attention,
                                 .logit_piece_bytes = test.logit_piece_bytes,
                                 .lora = test.lora});
}

}  // namespace

TestRun::TestRun(const TestCase& test, Ranks ranks, int64_t first_sample)
    : model(test_model(test)), test_(test) {
  if (model.lora) train_adapters(model, test.train_also);
  if (!test.frozen.empty()) freeze(model, test.frozen, /*others=*/false);
  const int64_t samples = test.batch * test.step.micro_batches;
  const int64_t first = first_sample + samples * ranks.rank();
  const Batch data = this->samples(samples, first);
  ExecutorOptions options;
  options.step = test.step;
  if (test.clipped) {
    const TestCase::Private& wish = *test.clipped;
    const ModelShape shape = model.shape(test.batch, test.step.compute, test.device.is_cuda());
    options.step.clip = privacy::uniform_method(shape, wish.pass, wish.rule);
    options.step.clip->tile = wish.tile;
    options.step.clip->combine_every = wish.combine_every;
    options.step.clip->layers = wish.clip == privacy::ClipFunction::per_layer;
    options.privacy.emplace();
    options.privacy->clip = wish.clip;
    options.privacy->clip_norms = privacy::equal_layer_norms(
        wish.clip_norm, privacy::clip_layers(shape, options.step.clip->layers).count);
    options.privacy->noise_multiplier = wish.noise_multiplier;
    options.privacy->expected_batch = wish.expected_batch;
    options.privacy->noise.generator = wish.generator;
    for (uint32_t i = 0; i < 8; ++i) options.privacy->noise.key.word[i] = 77 + i;
  }
  options.step.grad_norm = test.max_grad_norm > 0;
  options.max_grad_norm = test.max_grad_norm;
  options.optimizer = test.optimizer;
  options.seed = test.seed;
  options.initial = test.initial;
  options.graph = test.graph;
  options.time_rows = test.time_rows;
  options.watch_memory = memory::installed();
  executor =
      std::make_unique<Executor>(model, test.batch, options, test.device, data, std::move(ranks));
  executor->prepare();
}

Batch TestRun::samples(int64_t count, int64_t first) const {
  auto make = [&](const DataShape& data, RandomDomain domain) {
    CategoryScope scope(Category::data);
    std::vector<int64_t> dims{count};
    dims.insert(dims.end(), data.dims.begin(), data.dims.end());
    // Made on CPU: a GPU's logarithm has other last bits, and runs on both are compared.
    Tensor tensor = empty_tensor(dims, data.dtype.value_or(test_.step.compute), cpu_device());
    if (data.classes > 0) {
      fill_whole(tensor, data.classes, test_.seed, domain, first * data.elements());
    } else {
      fill_normal(tensor, 1.0, test_.seed, domain, first * data.elements());
    }
    return tensor.to(test_.device);
  };
  Batch batch{make(model.input, RandomDomain::inputs), make(model.target, RandomDomain::targets)};
  if (model.condition) batch.conditions = make(*model.condition, RandomDomain::conditions);
  return batch;
}

void TestRun::steps(int count) {
  for (int i = 0; i < count; ++i)
    executor->step(executor->schedule().options.optimizer == OptimizerKind::adamw ? 1e-3 : 0.1);
}

std::vector<Tensor> TestRun::parameters() {
  std::vector<Tensor> all;
  for (size_t p = 0; p < model.params.size(); ++p)
    all.push_back(executor->parameter(static_cast<ParamId>(p)));
  return all;
}

void expect_equal_bits(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (size_t p = 0; p < a.parameters.size(); ++p)
    EXPECT_TRUE(at::equal(a.parameters[p], b.parameters[p])) << p;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  return a.to(at::kDouble).sub(b.to(at::kDouble)).abs().max().item<double>();
}

Ranks simulated_ranks(const TestCase& test, int rank) {
  if (test.step.world == 1) return {};
  return {make_simulated_communicator(rank, test.step.world, test.device),
          make_simulated_communicator(rank, test.step.world, test.device)};
}

namespace {

// The families of language models, a way of being built each.
const std::vector<std::string> kLanguageModels = {
    "llama-tiny",   "llama-tiny-tied", "qwen2-tiny", "qwen2-tiny-tied", "gpt2-tiny",   "qwen3-tiny",
    "mistral-tiny", "phi3-tiny",       "olmo2-tiny", "gemma3-tiny",     "roberta-tiny"};

bool only_classifies(const std::string& model) {
  return model == "roberta-tiny";
}

std::vector<TestCase> grid_of(const std::vector<std::string>& models, int world, DType dtype) {
  std::vector<TestCase> grid;
  for (const std::string& model : models) {
    for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
      for (Checkpointing checkpointing :
           {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
        for (int micro_batches : {1, 2}) {
          TestCase test;
          test.model = model;
          if (only_classifies(model)) test.task = Task::sequence_classification;
          test.step = TestCase::all_of(dtype);
          test.step.min_params = 3000;
          test.step.strategy = strategy;
          test.step.world = world;
          test.step.checkpointing = checkpointing;
          test.step.micro_batches = micro_batches;
          test.optimizer.kind = OptimizerKind::adamw;
          test.optimizer.weight_decay = 0.1;
          // The rest in turn, so that each meets each.
          const size_t i = grid.size();
          test.step.wrap = i % 5 == 3   ? WrapPolicy::size
                           : i % 7 == 5 ? WrapPolicy::none
                                        : WrapPolicy::module;
          test.step.forward_prefetch = static_cast<int>(i % 3);
          test.step.backward_prefetch = static_cast<BackwardPrefetch>(i / 3 % 3);
          test.step.offload_params = i % 11 == 6;
          test.logit_piece_bytes = i % 2 == 1 ? 640 : 0;
          grid.push_back(test);
        }
      }
    }
  }
  return grid;
}

}  // namespace

std::vector<TestCase> language_grid(int world, DType dtype) {
  return grid_of(kLanguageModels, world, dtype);
}

std::vector<TestCase> diffusion_grid(int world, DType dtype) {
  return grid_of({"dit-tiny"}, world, dtype);
}

std::vector<TestCase> private_grid(DType dtype) {
  using privacy::ClipFunction, privacy::NormRule, privacy::PassKind;
  std::vector<TestCase> grid;
  std::vector<std::string> models = kLanguageModels;
  models.insert(models.begin(), "");
  models.push_back("dit-tiny");
  for (const std::string& model : models) {
    for (PassKind pass :
         {PassKind::keep, PassKind::book, PassKind::two_pass, PassKind::per_layer}) {
      for (NormRule rule : {NormRule::materialize, NormRule::ghost, NormRule::flash}) {
        for (Checkpointing checkpointing :
             {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
          for (int micro_batches : {1, 3}) {
            TestCase test;
            const size_t i = grid.size();
            test.model = model;
            if (only_classifies(model) || (!model.empty() && i % 4 == 3))
              test.task = Task::sequence_classification;
            test.step = TestCase::all_of(dtype);
            test.step.min_params = model.empty() ? 300 : 3000;
            test.step.checkpointing = checkpointing;
            test.step.micro_batches = micro_batches;
            test.batch = kPrivateGridSamples / micro_batches;
            test.step.strategy = static_cast<Strategy>(i % 3);
            test.step.wrap = i % 5 == 3   ? WrapPolicy::size
                             : i % 7 == 5 ? WrapPolicy::none
                                          : WrapPolicy::module;
            test.step.forward_prefetch = static_cast<int>(i % 3);
            test.step.backward_prefetch = static_cast<BackwardPrefetch>(i / 3 % 3);
            test.step.offload_params = i % 11 == 6;
            test.logit_piece_bytes = i % 2 == 1 ? 640 : 0;
            test.clipped.emplace();
            test.clipped->pass = pass;
            test.clipped->rule = rule;
            test.clipped->tile = i % 2 ? 5 : 256;
            if (pass == PassKind::keep) test.clipped->combine_every = static_cast<int>(1 + i % 4);
            test.clipped->clip = pass == PassKind::per_layer || i % 9 == 4 ? ClipFunction::per_layer
                                 : i % 4 == 1                              ? ClipFunction::automatic
                                 : i % 4 == 3                              ? ClipFunction::psac
                                                                           : ClipFunction::abadi;
            grid.push_back(test);
          }
        }
      }
    }
  }
  return grid;
}

std::vector<TestCase> full_grid(int world, DType dtype) {
  std::vector<TestCase> grid;
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    for (int forward : {0, 1, 2}) {
      for (BackwardPrefetch backward :
           {BackwardPrefetch::pre, BackwardPrefetch::post, BackwardPrefetch::none}) {
        // Prefetching means something for zero3 alone.
        if (strategy != Strategy::zero3 && (forward > 0 || backward != BackwardPrefetch::pre))
          continue;
        for (WrapPolicy wrap : {WrapPolicy::module, WrapPolicy::size, WrapPolicy::none}) {
          for (int offload = 0; offload < 4; ++offload) {
            for (Checkpointing checkpointing : {Checkpointing::none, Checkpointing::full}) {
              for (int accumulation = 0; accumulation < 3;
                   ++accumulation) {  // one micro-batch, two into shards, two whole
                for (OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adamw}) {
                  TestCase test;
                  test.step = TestCase::all_of(dtype);
                  test.step.world = world;
                  test.step.strategy = strategy;
                  test.step.forward_prefetch = forward;
                  test.step.backward_prefetch = backward;
                  test.step.wrap = wrap;
                  test.step.offload_params = offload & 1;
                  test.step.offload_optimizer = offload & 2;
                  test.step.checkpointing = checkpointing;
                  test.step.micro_batches = accumulation == 0 ? 1 : 2;
                  test.step.accumulate_in =
                      accumulation == 2 ? AccumulateIn::whole : AccumulateIn::shard;
                  test.optimizer.kind = kind;
                  grid.push_back(test);
                }
              }
            }
          }
        }
      }
    }
  }
  return grid;
}

std::vector<TestCase> memory_grid() {
  std::vector<TestCase> all;
  for (int world : {1, 3}) {
    std::vector<TestCase> grid = full_grid(world, at::kFloat);
    all.insert(all.end(), grid.begin(), grid.end());
    // Wide enough for libraries to choose their large products' paths.
    for (TestCase test : grid) {
      const StepOptions& step = test.step;
      if (step.forward_prefetch > 0 || step.wrap != WrapPolicy::module || step.offload_params ||
          step.offload_optimizer)
        continue;
      test.width = 256;
      test.batch = 64;
      all.push_back(test);
      test.step.compute = at::kBFloat16;
      all.push_back(test);
    }
    // Mixed types over every strategy and accumulation, without the rest of the grid.
    for (TestCase test : grid) {
      if (test.step.forward_prefetch > 0 || test.step.wrap != WrapPolicy::module) continue;
      test.step.compute = at::kBFloat16;
      all.push_back(test);
      test.step.storage = at::kBFloat16;
      all.push_back(test);
      test.step.reduce = test.step.moments = at::kBFloat16;
      all.push_back(test);
      // More samples than columns: a bias's sum takes more than a weight's product.
      test.step.storage = test.step.reduce = test.step.moments = at::kFloat;
      test.width = 5;
      test.batch = 40;
      all.push_back(test);
    }
  }
  return all;
}

}  // namespace veil
