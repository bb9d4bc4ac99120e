#include "record/batch_search.h"

#include "record/fields.h"

namespace veil {

using Json = nlohmann::ordered_json;

template <typename Visit>
void fields(BatchTrial& t, Visit& visit) {
  visit("batch_size", t.batch_size);
  visit("fits", t.fits);
  visit("by", t.by);
  visit("peak_memory_bytes", t.peak_memory_bytes);
}

template <typename Visit>
void fields(StrategyBatch& s, Visit& visit) {
  visit("strategy", s.strategy);
  visit("max_batch_size", s.max_batch_size);
  visit("max_total_batch_size", s.max_total_batch_size);
  visit("peak_memory_bytes", s.peak_memory_bytes);
  visit("tokens_per_second", s.tokens_per_second);
  visit("too_large", s.too_large);
  visit("remedies", s.remedies);
  visit.always_if(true, "trials", s.trials);
}

template <typename Visit>
void fields(BatchSearch& s, Visit& visit) {
  visit("command", s.command);
  visit("model", s.model);
  visit("seq_length", s.seq_length);
  visit("world", s.world);
  visit("memory_limit_bytes", s.memory_limit_bytes);
  visit.always_if(true, "strategies", s.strategies);
}

Json to_json(const BatchSearch& search) {
  Json json = {{"schema", 1}};
  FieldWriter writer(json);
  fields(const_cast<BatchSearch&>(search), writer);
  return json;
}

BatchSearch batch_search_from_json(const Json& json) {
  BatchSearch search;
  FieldReader::read("max_batch_sizes", json, search);
  return search;
}

}  // namespace veil
