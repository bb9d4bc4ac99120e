// What the environment says about model hubs. Only src/cli reads it.
#pragma once

#include <string>

#include "data/hub.h"

namespace veil {

HubVariables hub_variables_from_environment();
// Where Veil keeps what it can make again: XDG_CACHE_HOME/veil, else ~/.cache/veil.
std::string cache_root_from_environment();
std::string prices_file_from_environment();  // there: what `veil doctor --calibrate` measured

// The folder of `--model NAME`, if NAME is no preset: a folder with config.json, or a hub's
// model in the cache. UserError otherwise.
std::string model_folder_from_environment(const std::string& name);

// HF_TOKEN, else the file that the hub's own login leaves; "" if there is neither. A secret: it
// goes into requests and nowhere else.
std::string hub_token_from_environment();
std::string hub_endpoint_from_environment();  // HF_ENDPOINT, else https://huggingface.co
std::string authorities_from_environment();   // SSL_CERT_FILE, "" if it is not set

}  // namespace veil
