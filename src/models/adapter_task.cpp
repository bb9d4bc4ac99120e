#include "models/adapter_task.h"

#include "models/config_fields.h"

namespace veil {

const char* peft_task(Task task) {
  return task == Task::sequence_classification ? "SEQ_CLS" : "CAUSAL_LM";
}

std::optional<Task> adapter_task(const nlohmann::ordered_json& config) {
  const std::string where = "adapter_config.json",
                    type = ConfigFields(config, where).text("task_type");
  for (const Task task : {Task::causal_lm, Task::sequence_classification}) {
    if (type == peft_task(task)) return task;
  }
  return {};
}

}  // namespace veil
