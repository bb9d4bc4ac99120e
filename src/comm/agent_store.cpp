#include "comm/agent_store.h"

#include <sstream>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"

namespace veil {
namespace {

constexpr auto kAgentPatience = std::chrono::seconds(120);

// Of this attempt: ranks that are started again find the agent, and what earlier ones have told it.
std::string port_key(const RankInfo& info) {
  return fmt::format("veil/attempt_{}/port", info.attempt);
}

template <typename Ask>
auto ask_agent(const RankInfo& info, Ask ask) {
  try {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(info.master_port);
    options.waitWorkers = false;
    options.timeout = kAgentPatience;
    const auto store = c10::make_intrusive<c10d::TCPStore>(info.master_address, options);
    return ask(*store);
  } catch (const c10::Error& error) {
    user_error("torchrun's store at {}:{} does not answer: {}", info.master_address,
               info.master_port, error.what_without_backtrace());
  }
}

}  // namespace

void tell_agent(const RankInfo& info, const AgentsWord& word) {
  const std::string text = fmt::format("{} {}", word.port, word.token);
  ask_agent(info, [&](c10d::Store& store) {
    store.set(port_key(info), std::vector<uint8_t>(text.begin(), text.end()));
  });
}

AgentsWord word_from_agent(const RankInfo& info) {
  return ask_agent(info, [&](c10d::Store& store) {
    const std::vector<uint8_t> told = store.get(port_key(info));
    AgentsWord word;
    std::istringstream(std::string(told.begin(), told.end())) >> word.port >> word.token;
    return word;
  });
}

}  // namespace veil
