#include "cli/train_options.h"

#include "cli/hub_environment.h"
#include "cli/run_options.h"

namespace veil {

void add_train_options(Options& options, TrainCommand& command) {
  RunConfig& c = command.config;
  c.placement.prices_file = prices_file_from_environment();
  c.model.name = "";  // a person names the model
  add_data_options(options, c);
  add_corpus_options(options, c.data.corpus, "label-names");
  options.add(
      "samples", c.data.samples,
      {.help = "what one sample is: packed text (the default without privacy), one document "
               "per sequence (the default with it), or labelled, for classification"});
  options.add(
      "held-out", c.data.held_out,
      {.help =
           "fraction of documents or images kept for evaluation, chosen by a hash of their content",
       .minimum = 0,
       .maximum = 0.9});
  options.add("evaluation-samples", c.training.evaluation_samples,
              {.help = "held-out samples per evaluation; 0: all", .minimum = 0});
  options.section("diffusion transformers", "diffusion");
  options.add("shapes", c.data.shapes,
              {.help = "how many images --data shapes has", .minimum = 1, .maximum = 1 << 30});
  options.add("loader-threads", c.data.loader_threads,
              {.help = "batches of images that are decoded ahead", .minimum = 1, .maximum = 256});
  add_step_options(options, c);
  options.add("bf16", command.bf16, {.help = "the same as --compute bf16"});
  add_running_options(options, c);
  add_timeout_option(options, command.collective_timeout_s);
  options.section("training");
  options.add(
      "steps", c.training.steps,
      {.aliases = {"num_steps", "max_steps"}, .help = "total number of steps", .minimum = 1});
  options.add("epochs", c.training.epochs,
              {.aliases = {"num_train_epochs", "num_epochs"},
               .help = "passes over the data, instead of --steps",
               .minimum = 1e-9});
  options.section("optimizer");
  options.add("schedule", c.optimizer.schedule,
              {.aliases = {"lr_scheduler_type"},
               .help = "how the learning rate changes after the warm-up"});
  options.add("warmup-steps", c.optimizer.warmup_steps,
              {.help = "steps over which the learning rate rises from 0", .minimum = 0});
  options.add("minimum-lr", c.optimizer.minimum_ratio,
              {.help = "learning rate at the end of the schedule, as a fraction of --learning-rate",
               .minimum = 0,
               .maximum = 1});
  options.add("beta1", c.optimizer.beta1,
              {.aliases = {"adam_beta1"},
               .help = "AdamW's first-moment decay",
               .minimum = 0,
               .maximum = 1});
  options.add("beta2", c.optimizer.beta2,
              {.aliases = {"adam_beta2"},
               .help = "AdamW's second-moment decay",
               .minimum = 0,
               .maximum = 1});
  options.add("epsilon-adam", c.optimizer.epsilon,
              {.aliases = {"adam_epsilon"},
               .help = "AdamW's epsilon, added to the root of the second moment",
               .minimum = 0});
  options.add("max-grad-norm", c.optimizer.max_grad_norm,
              {.help = "of a run that is not private: scale the whole gradient down to this norm; "
                       "0: never. In a private run it means --clip-norm",
               .minimum = 0,
               .fallback = "1 not private"});
  options.section("diffusion transformers", "diffusion");
  options.add("label-drop", c.data.label_drop,
              {.help = "fraction of samples whose class is hidden, for classifier-free guidance",
               .minimum = 0,
               .maximum = 1});
  options.section("optimizer");
  options.add("ema", c.optimizer.average,
              {.aliases = {"ema_decay"},
               .help = "decay of the weights' moving average, which is then what --export writes; "
                       "0: none",
               .minimum = 0,
               .maximum = 0.999999});
  add_privacy_options(options, c.privacy);
  options.add("unit-key", c.data.corpus.user_key,
              {.help = "of --privacy-unit user: the key of the user in a JSON object; for images "
                       "folder (class/user/file), or a .jsonl listing with file and user",
               .value = "KEY"});
  options.section("output");
  options.add("evaluate-every", c.training.evaluate_every,
              {.aliases = {"eval_steps"},
               .help = "evaluate on held-out data every N steps; 0: only at the end",
               .minimum = 0});
  options.add("checkpoint-every", c.training.checkpoint_every,
              {.aliases = {"save_steps"},
               .help = "write a checkpoint every N steps; 0: only at the end",
               .minimum = 0});
  options.add("log-every", command.log_every,
              {.aliases = {"logging_steps"},
               .help = "print every N steps; metrics.jsonl has every step",
               .minimum = 1});
  options.add("keep-checkpoints", c.training.keep_checkpoints,
              {.aliases = {"save_total_limit"},
               .help = "number of newest checkpoints to keep",
               .minimum = 1,
               .maximum = 1000000});
  options.add("output-dir", c.training.output_dir,
              {.help = "parent of the run's folder", .value = "DIR"});
  options.add(
      "resume", c.training.resume,
      {.aliases = {"resume_from_checkpoint"},
       .help = "continue the run in this folder, or the newest of --output-dir, such as one that "
               "a signal stopped (exit code 4); auto: the newest if there is one, otherwise "
               "a new run",
       .bare = "latest",
       .value = "DIR"});
  options.add(
      "export", c.training.export_folder,
      {.help = "at the end, write the model here (with --ema its average): config.json, "
               "model.safetensors and the tokenizer's files. --model DIR takes it again, and "
               "transformers loads a language model. With --lora or --adapter only the adapters "
               "are written, as PEFT reads them",
       .value = "DIR"});
  options.add(
      "merge", c.training.merge,
      {.help = "let --export write the whole model with the adapters added to its weights"});
  add_overwrite_option(options, c.training.overwrite,
                       "let --export replace the files of an earlier export in its folder; other "
                       "files there stay");
  options.add("profile", command.profile,
              {.aliases = {"profile_step", "use_profiler"},
               .help = "write a trace of operators and kernels of this step and the next; the bare "
                       "flag and `kernels` are 3. `phases`: what the steps' time went to, at the "
                       "end",
               .bare = "3",
               .value = "STEP"});
  options.add("json", command.json, {.help = "print lines as JSON"});
  options.add(
      "dry-run", command.dry_run,
      {.help = "print the settings that the run would have, as JSON with --json, and stop"});
  options.replaces({{"steps", "epochs"},
                    {"epochs", "steps"},
                    {"layer-norms", "clip-norm"},
                    {"clip-norm", "layer-norms"},
                    {"freeze", "train-only"},
                    {"train-only", "freeze"},
                    {"lora", "adapter"},
                    {"adapter", "lora"}});
  show_defaults(options, c, training_defaults());
  options.defaults("privacy-unit", {{"document", "private, language model", "--samples is given"},
                                    {"sample", "private, diffusion"}});
  options.brief(
      {"data",     "model",         "seq-length", "task",          "batch-size", "total-batch-size",
       "strategy", "checkpointing", "compute",    "learning-rate", "device",     "ranks",
       "steps",    "epochs",        "epsilon",    "delta",         "clip-norm",  "output-dir",
       "resume",   "export",        "lora",       "adapter",       "dry-run"},
      {"veil train --model Qwen/Qwen2.5-0.5B --data my_texts --export tuned",
       "veil train --model Qwen/Qwen2.5-0.5B --data my_chats.jsonl --lora 16 --epsilon 8 "
       "--delta 1e-6 --export adapter"});
}

}  // namespace veil
