// Errors, by who can fix them. Exit codes: 0 done, 1 failed work or failed verification, 2 wrong
// usage or bad input, 3 missing device or backend.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace veil {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitMissing = 3;

// Something a person can fix. One line: what was given, what is allowed, a hint. An error about one
// setting carries the name of its field, and its text begins with that name: a front end may put
// the name of its own option in the field's place.
class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& message, int exit_code = kExitUsage)
      : std::runtime_error(message), exit_code_(exit_code) {}
  // what() is "<field> <message>".
  UserError(const std::string& field, const std::string& message, int exit_code = kExitUsage)
      : std::runtime_error(field + " " + message), field_(field), exit_code_(exit_code) {}

  // The field at fault ("clip_norm"); empty if the error is not about one.
  const std::string& field() const { return field_; }
  int exit_code() const { return exit_code_; }

 private:
  std::string field_;
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

// field_error("clip_norm", "must be positive, got {}", x): "clip_norm must be positive, got -1".
template <typename... Args>
[[noreturn]] void field_error(std::string_view field, fmt::format_string<Args...> format,
                              Args&&... args) {
  throw UserError(std::string(field), fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace veil

// For what only a programmer can fix: no user input may reach it.
#define VEIL_CHECK(condition, ...)                                                    \
  do {                                                                                \
    if (!(condition))                                                                 \
      ::veil::check_failed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
  } while (false)
