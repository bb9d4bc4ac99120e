// Reads the sentences of a verdict and holds every claim in them against the records. It shares no
// code with what writes the sentences: an unknown sentence is an error, so that each new one gets
// its check here.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "record/folder.h"
#include "report/verdict.h"

namespace veil::verdict_claims {

// Pieces of `text` at the places of "{}" in the pattern, each as short as can be; nothing if it
// does not fit.
bool read_pattern(const std::string& text, const std::string& pattern,
                  std::vector<std::string>& pieces);

// What is false, a line each; "" if nothing is. `options` are those that the suite accepts.
std::string false_claims(const std::string& suite, const RecordFolder& folder,
                         const Verdict& verdict, const std::set<std::string>& options);

// The headline of two runs compared.
std::string false_change_claims(const std::string& headline, const std::vector<Record>& before,
                                const std::vector<Record>& after);

}  // namespace veil::verdict_claims
