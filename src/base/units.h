// Quantities as people write and read them. GiB is 2^30 bytes, GB is 10^9.
#pragma once

#include <cstdint>
#include <string>

namespace veil {

inline constexpr int64_t kKiB = int64_t{1} << 10;
inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;

inline double to_gib(int64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(kGiB);
}

// "11.02 GiB", "64.00 MiB", "1.50 KiB", "12 B": the largest of these units of which there is at
// least one.
std::string format_bytes(int64_t bytes);

// "1935 ms", "14.8 ms", "0.123 ms": at least three digits that mean something.
std::string format_ms(double ms);

// "1 h 02 min", "3 min 05 s", "12.3 s": for progress and elapsed times.
std::string format_duration(double seconds);

// "8.5 G", "100 M", "16.4 k", "12": counts of parameters, tokens, FLOPs in powers of 1000.
std::string format_count(double count);

// An epsilon as a guarantee states it: rounded up to so many decimals, or to three digits where they
// would be fewer ("2.0033", "3.41e-05").
std::string format_epsilon(double epsilon, int places = 4);
// One that an audit found to be exceeded: rounded down to four decimals.
std::string format_lower_epsilon(double epsilon);

// "64MiB", "1.5 GiB", "2GB", "4096": bytes. A bare number is bytes; the letters' case does not
// matter. `what` names the option in the UserError.
int64_t parse_bytes(const std::string& text, const std::string& what = "size");

}  // namespace veil
