// The presets that come with the program: the files presets/<suite>/<name>.toml of the source,
// built in.
#pragma once

#include <string>
#include <vector>

namespace veil {

struct PresetFile {
  std::string command;  // a suite's name
  std::string name;
  std::string text;  // TOML: keys are option names
};
const std::vector<PresetFile>& built_in_presets();

}  // namespace veil
