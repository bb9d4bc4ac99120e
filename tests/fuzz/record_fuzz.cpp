// Records of every kind, each read from the same text.
#include "fuzz/fuzz.h"
#include "record/audit_record.h"
#include "record/batch_search.h"
#include "record/fields.h"
#include "record/metrics_line.h"
#include "record/record.h"
#include "record/verify_record.h"

namespace {

template <typename Read>
void read_and_write(const nlohmann::ordered_json& json, Read read) {
  try {
    const auto record = read(json);
    const std::string text = veil::to_json(record).dump();
    veil::fuzz::require(veil::to_json(read(veil::parse_object(text))).dump() == text,
                        "what was read can be written and read");
  } catch (const veil::DamagedRecordError&) {
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  nlohmann::ordered_json json;
  try {
    json = parse_object(std::string(fuzz::text_of(data, size)));
  } catch (const DamagedRecordError&) {
    return 0;
  }
  read_and_write(json, record_from_json);
  read_and_write(json, verify_record_from_json);
  read_and_write(json, audit_record_from_json);
  read_and_write(json, batch_search_from_json);
  read_and_write(json, metrics_line_from_json);
  return 0;
}
