#!/usr/bin/env bash
# Runs every benchmark that is built. Arguments go to Google Benchmark (--benchmark_filter=...).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ! -x build/bench/veil_bench ]]; then
  echo "bench: bench/ holds no benchmarks"
  exit 0
fi
build/bench/veil_bench "$@"
