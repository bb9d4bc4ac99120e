// Activation checkpointing: how much memory it saves and how much time it costs, in a step that is
// private or not.
#include "suite/suite.h"

namespace veil {

Suite checkpointing_suite() {
  Suite suite{.name = "checkpointing",
              .help =
                  "activation checkpointing on a language model: none, selective or full, "
                  "memory against time",
              .private_step = true,
              .told = {"model", "seq-length", "batch-size", "optimizer"},
              .experiments = [](const std::vector<std::string>& common) {
                return with_common(
                    {{"none", "every activation held", {"--checkpointing", "none"}},
                     {"selective", "selective checkpointing", {"--checkpointing", "selective"}},
                     {"full", "full checkpointing", {"--checkpointing", "full"}}},
                    common, "a kind of checkpointing");
              }};
  suite.page.question = "Which activation checkpointing, for my memory and my time?";
  suite.config.model.name = "llama3.2-1b";
  suite.config.model.seq_length = 2048;
  suite.config.step.batch_size = 4;
  suite.config.optimizer.kind = OptimizerKind::adamw;
  suite.refused = {{{"checkpointing"}, "the suite compares all three kinds"},
                   {{"input-size"}, "it is the linear stack's; this suite takes a language model"}};
  return suite;
}

}  // namespace veil
