// What a bug report needs to say of the build and the machine, without what is nobody's business:
// no value of an environment variable, no name of a person or a host, no path below a home folder.
#pragma once

#include <nlohmann/json.hpp>

namespace veil {

// From what `veil doctor --json` writes, and from this process's surroundings.
nlohmann::ordered_json bug_report(const nlohmann::json& health);

}  // namespace veil
