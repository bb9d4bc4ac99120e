// Errors, by who can mend them. Exit codes: 0 done, 1 failed work or failed verification, 2 wrong usage or bad input, 3 missing device or backend.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace veil {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitMissing = 3;

// Something a person can mend. One line: what was given, what is allowed, a hint.
class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& message, int exit_code = kExitUsage)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// A device or backend that this build or this machine does not have.
class MissingBackend : public UserError {
 public:
  explicit MissingBackend(const std::string& message) : UserError(message, kExitMissing) {}
};

template <typename... Args>
[[noreturn]] void user_error(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace veil

// For what only a programmer can mend: no user input may reach it.
#define VEIL_CHECK(condition, ...)                                                                    \
  do {                                                                                                \
    if (!(condition)) ::veil::check_failed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
  } while (false)
