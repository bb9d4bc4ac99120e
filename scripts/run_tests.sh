#!/usr/bin/env bash
# Runs the tests of one built preset: run_tests.sh PRESET. Tests that need a GPU (label gpu) run where there is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
case $preset in release) folder=build ;; *) folder=build-$preset ;; esac
without_gpu=()
if ! ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
  without_gpu=(-LE gpu)
  echo "tests: no GPU here, those with label gpu are left out"
fi
# LibTorch and Open MPI keep what they allocate once until the process ends, so leaks are not looked for; everything else is.
# protect_shadow_gap=0: the CUDA driver maps memory where the sanitizer wants none. allocator_may_return_null=1: tests ask
# for more memory than there is, and look at the error.
# malloc_context_size: LibTorch's calls lie deep, and a report names the place of an error in full all the same.
export ASAN_OPTIONS=detect_leaks=0:protect_shadow_gap=0:allocator_may_return_null=1:malloc_context_size=12${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export UBSAN_OPTIONS=print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
# Every process of a test writes what the thread sanitizer finds in it to a file of its own: some ranks are meant to fail, and
# one more that does would not be noticed.
launcher=()
reports=
if [[ $preset == tsan ]]; then
  reports=$PWD/$folder/reports
  rm -rf "$reports"
  mkdir -p "$reports"
  export TSAN_OPTIONS="suppressions='$PWD/tests/threads/suppressions.txt':log_path='$reports/race':print_suppressions=0${TSAN_OPTIONS:+:$TSAN_OPTIONS}"
  # The sanitizer's memory has fixed places, which some systems' random addresses take.
  setarch -R true 2>/dev/null && launcher=(setarch -R)
fi
# One thread a test: several run at once, and threads of several pools that wait for each other cost more than they give.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
tests=("${launcher[@]}" "$VEIL_CTEST" --test-dir "$folder" --output-on-failure --no-tests=error)
failed=0
# One more than there are cores: ranks and signals are often waited for.
"${tests[@]}" --parallel "$(($(nproc) + 1))" --progress -LE "clock${without_gpu:+|gpu}" || failed=1
# Tests against a clock run alone. One that fails is repeated: a busy machine can spoil a measurement, a mistake spoils each.
if [[ $preset == release ]]; then
  "${tests[@]}" --repeat until-pass:3 -L clock "${without_gpu[@]}" || failed=1
fi
if [[ -n $reports ]] && compgen -G "$reports/*" >/dev/null; then
  cat "$reports"/* >&2
  echo "tests: the thread sanitizer's reports are in $reports" >&2
  failed=1
fi
exit $failed
