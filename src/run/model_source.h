// What `--model` names: a preset, a folder with config.json, or a hub id that was fetched.
#pragma once

#include <optional>
#include <string>

#include "models/config.h"
#include "models/dit.h"
#include "models/load.h"
#include "models/peft.h"
#include "models/shape.h"

namespace veil {

struct ModelSource {
  std::string name;  // as the user gave it
  std::optional<LanguageConfig> config;
  std::optional<DitConfig> diffusion;  // neither: the linear stack
  std::string folder;                  // with weights and perhaps a tokenizer; "" for a preset
  bool from_scratch = false;           // weights of the folder are not read
  std::optional<PeftAdapter> adapter;  // on top of it

  bool is_language_model() const { return config.has_value(); }
  bool has_weights() const;  // in its folder, and to be read
};

// `hub_cache` is the Hugging Face cache's folder ("" for none). UserError with the known names
// if nothing fits.
ModelSource find_model(const std::string& name, const std::string& hub_cache);
// Those of its folder, for a model made of it; empty, so that the model's own rules fill it, if
// there are none. `check`: UserError if a file of an export, or of an adapter's, is not as it was
// written (models/export.h), which reads all of it; one rank per machine is enough.
InitialWeights initial_weights(const ModelSource& source, const Model& model, bool check = true);
// UserError that says what to do if the model would start with random weights and nobody asked
// for that: for whatever trains, releases or evaluates a model. `trains`: random weights are a way.
void require_weights(const ModelSource& source, bool trains);
// Where a model's parameters come from, in one line: "291 tensors from DIR", "random
// (--from-scratch)" or, of a run that only measures, "random (measured only)".
std::string weights_text(const ModelSource& source, const InitialWeights& initial);
// a folder, or a hub id in the cache
bool is_fetched(const std::string& name, const std::string& hub_cache);

}  // namespace veil
