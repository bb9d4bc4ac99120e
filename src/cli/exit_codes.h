// What the program's exit codes mean, for its help and its man page.
#pragma once

#include "base/error.h"
#include "comm/rank_link.h"

namespace veil {

struct ExitCode {
  int code;
  const char* meaning;
};

inline constexpr ExitCode kExitCodes[] = {
    {kExitDone, "done"},
    {kExitFailed, "failed work or failed verification"},
    {kExitUsage, "wrong usage or bad input"},
    {kExitMissing, "a device or backend is missing"},
    {kExitStopped, "stopped early by a signal; --resume continues"},
};

}  // namespace veil
