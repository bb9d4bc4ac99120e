// Says in one line that a processor lacks the instructions that the program is compiled for; without
// it the program would end by an illegal instruction. Compiled for every processor of its kind, and
// run before anything else of the program.
#if defined(VEIL_X86_64_LEVEL)

#include <unistd.h>

namespace {

bool processor_suffices() {
  __builtin_cpu_init();
  if (VEIL_X86_64_LEVEL >= 4 &&
      !(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")))
    return false;
  if (VEIL_X86_64_LEVEL >= 3 && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                  __builtin_cpu_supports("bmi2")))
    return false;
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
}

[[gnu::constructor(101)]] void check_processor() {
  if (processor_suffices()) return;
  constexpr char kText[] =
      "veil: this processor lacks instructions that this build needs (x86-64-v3 has AVX2, FMA and "
      "BMI2): build with CONFIGURE=-DVEIL_X86_64_LEVEL=1\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  _exit(3);
}

}  // namespace

#endif
