// A folder with an adapter. The first line is adapter_config.json, the rest the file of weights as
// fuzz::safetensors_bytes makes it.
#include <cmath>

#include "fuzz/fuzz.h"
#include "models/peft.h"
#include "models/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  std::string_view text = fuzz::text_of(data, size);
  fuzz::input_file(kAdapterConfig, fuzz::take_line(text));
  const std::string weights = fuzz::input_file(std::string(kAdapterWeights) + ".safetensors",
                                               fuzz::safetensors_bytes(text));
  fuzz::allow_user_error([&] {
    const PeftAdapter adapter = read_adapter(fuzz::work_folder());
    const LoraSettings& lora = adapter.lora;
    fuzz::require(lora.rank > 0, "a rank is positive");
    fuzz::require(std::isfinite(lora.scale()) && lora.scale() >= 0, "adapters have a scale");
    fuzz::require(adapter.config.is_object(), "the config is kept");
    fuzz::require(!lora.targets.empty(), "an adapter adapts something");
    const SafetensorsFile file(weights);
    for (const std::string& target : lora.targets) {
      fuzz::require(!target.empty(), "a target has a name");
      const StoredTensor* const a = file.find(adapter_name(target + kLoraA));
      fuzz::require(a && a->dims.size() == 2 && a->dims[0] == lora.rank,
                    "a target is a whole name, and its A has the rank");
      fuzz::require(adapts(lora, target), "a target means itself");
      fuzz::require(!adapts(lora, "no." + target + ".such"), "a target means no other module");
    }
    for (const std::string& name : adapter.also)
      fuzz::require(!name.empty() && file.find(adapter_name(name)), "what is whole is stored");
    fuzz::require(lora.targets.size() + adapter.also.size() <= file.tensors().size(),
                  "a tensor counts once");
  });
  return 0;
}
