// What decides the bits of a private run's steps besides its options and its data: the parameters
// it starts from, the program and its libraries, and every rank's processor, threads and
// environment. A nonce is kept only if all of it is the same (privacy/journal.h).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "base/sha256.h"
#include "comm/communicator.h"
#include "comm/launch.h"
#include "models/load.h"
#include "models/shape.h"
#include "run/model_source.h"

namespace veil {

// Build, program and loaded libraries. Nothing if they cannot be told apart from others.
std::optional<nlohmann::json> program_facts();
// Of this rank, by names that fit into a sentence "the threads is 2, it was 1".
nlohmann::json rank_facts(const RankInfo& info, Device device);
// A digest of all ranks' facts; every rank calls it. "" in a world of one.
std::string facts_of_all_ranks(Communicator* lane, Device device, const nlohmann::json& mine);

// Of what a model computes besides its weights: its configuration as the data has completed it, with
// all that its file says, and its adapters' settings.
Sha256Digest model_digest(const ModelSource& source, const Model& model);
// Of the parameters as they are loaded, in the type that they are stored in: names, shapes and
// values in order. Those that start by their own rule stand by their names and that rule, and the
// seed decides them.
Sha256Digest weights_digest(const InitialWeights& initial, const std::vector<ParamShape>& params,
                            DType storage);
// The same of frozen parameters alone, as fp32, whatever they are stored in; with the seed, which
// decides those that start by their own rule.
Sha256Digest frozen_digest(const InitialWeights& initial, const std::vector<ParamShape>& params,
                           int64_t seed);

}  // namespace veil
