#!/usr/bin/env bash
# Builds Veil with each optional backend left out, and checks that configuring says so and that the program runs: check_configurations.sh [JOBS]
# Each folder is removed when its turn is over.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=${1:-2}
for choice in "VEIL_CUDA cuda" "VEIL_NCCL nccl" "VEIL_MPI mpi" "VEIL_UNICODE unicode" "VEIL_CURL curl" "VEIL_IMAGES images" "VEIL_ZLIB zlib" "VEIL_ZSTD zstd"; do
  read -r option backend <<<"$choice"
  folder=build-configurations/no_$backend
  rm -rf "$folder"
  mkdir -p "$folder"
  echo "configurations: -D$option=OFF"
  "$VEIL_CMAKE" -S . -B "$folder" -G Ninja -DCMAKE_MAKE_PROGRAM="$VEIL_NINJA" -DPython3_EXECUTABLE="$VEIL_PYTHON" -D"$option"=OFF >"$folder/log" 2>&1 ||
    { cat "$folder/log" >&2; exit 1; }
  grep -q "left out: $backend: it is switched off" "$folder/log" || { echo "configurations: $backend is left out unsaid" >&2; exit 1; }
  "$VEIL_NINJA" -C "$folder" -j "$jobs" --quiet
  "$folder/veil" --version >/dev/null
  "$folder/tests/veil_tests" --gtest_brief=1
  rm -rf "$folder"
done
echo "configurations: each builds and runs"
