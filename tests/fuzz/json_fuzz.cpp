// Every JSON text that Veil reads goes through base/json.h.
#include "base/json.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  const std::string_view text = fuzz::text_of(data, size);
  const nlohmann::json tried = try_json(text);
  try {
    const nlohmann::json parsed = parse_json(text);
    fuzz::require(!tried.is_discarded(), "both entries accept the same texts");
    fuzz::require(parse_json(parsed.dump()) == parsed, "what was read can be written and read");
  } catch (const nlohmann::json::exception&) {
    fuzz::require(tried.is_discarded(), "both entries refuse the same texts");
  }
  return 0;
}
