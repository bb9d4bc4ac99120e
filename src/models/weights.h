// A model's weights on disk: one safetensors file, or several with an index. No LibTorch;
// models/weight_tensors.h reads into tensors.
//
//   Weights weights("llama-3.1-8b");  // a folder, a .safetensors or an .index.json
//   check_weights(weights, {{"model.norm.weight", {4096}}, ...}, {.prefix = "model."});
//   weights.read(*weights.find("model.norm.weight"), first, count, out, StoredType::bf16);
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/safetensors.h"

namespace veil {

class Weights {
 public:
  // A folder with model.safetensors, or with model.safetensors.index.json and the files that it
  // names; or one such file itself. Where a folder has both, the single file is taken, as
  // transformers does. UserError for whatever is missing or unsound; the index and its files must
  // name the same tensors.
  explicit Weights(const std::string& path);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;                   // sorted
  const StoredTensor* find(const std::string& name) const;  // null if there is none

  // The elements [first, first + count) of a tensor that find() gave, as numbers of another type.
  // Only their pages are read from disk. UserError if the tensor's own type is not F64, F32,
  // BF16 or F16.
  void read(const StoredTensor& tensor, int64_t first, int64_t count, void* out,
            StoredType out_type) const;

  // The same of the matrix's transpose, counted in the transpose's rows: for weights stored [in,
  // out].
  void read_transposed(const StoredTensor& tensor, int64_t first, int64_t count, void* out,
                       StoredType out_type) const;

 private:
  void open_indexed(const std::string& index);
  const std::byte* checked_bytes(const StoredTensor& tensor, int64_t first, int64_t count) const;

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, size_t> file_of_;  // by tensor name
};

// How a model's names relate to those in a file. A name is looked for as it is; then, if it begins
// with `prefix`, without it; otherwise with it. So "transformer.wte.weight" finds "wte.weight", and
// the other way round.
struct WeightNames {
  std::string prefix = "";
  // patterns ('*' is any characters) of tensors in the file that are no parameters, with or without
  // the prefix
  std::vector<std::string> ignored = {};
};
const StoredTensor* find_weight(const Weights& weights, const std::string& name,
                                const WeightNames& rule);

struct WantedTensor {
  std::string name;
  std::vector<int64_t> dims;
};

// In what a file differs from what a model wants; names as the model spells them, `extra` as the
// file does.
struct WeightDifference {
  std::vector<std::string> missing, extra;
  std::vector<std::string> unfit;  // "NAME is F32 [2, 3], the model wants [3, 2]"
  bool none() const { return missing.empty() && extra.empty() && unfit.empty(); }
};
WeightDifference compare_weights(const Weights& weights, const std::vector<WantedTensor>& wanted,
                                 const WeightNames& rule);
// UserError, one line with the first few names of each kind and their count, unless there is no
// difference.
void expect_no_difference(const Weights& weights, const WeightDifference& difference);
void check_weights(const Weights& weights, const std::vector<WantedTensor>& wanted,
                   const WeightNames& rule = {});

}  // namespace veil
