#!/usr/bin/env bash
# Configures (where needed) and builds one preset: build.sh PRESET JOBS [--configure-only | --program] [cmake arguments].
# --program builds the program alone, and leaves CUDA code out where there is no GPU, unless the folder is configured
# already. Otherwise CUDA code is compiled there too, but not assembled (PTX alone, which is quicker): to build on one
# machine for the GPUs of another, give -DCMAKE_CUDA_ARCHITECTURES. Called by the Makefile with build/env.sh read.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1 jobs=$2
shift 2
only=
[[ ${1:-} == --* ]] && only=${1#--} && shift
case $preset in release) folder=build ;; *) folder=build-$preset ;; esac
mkdir -p "$folder"
cuda=()
if [[ $preset == release ]]; then
  cuda=(-DVEIL_CUDA=AUTO)
  if ! ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
    [[ $only == program ]] && cuda=(-DVEIL_CUDA=OFF)
    cuda+=(-DCMAKE_CUDA_ARCHITECTURES=90-virtual)
  fi
fi
compiler=()
if [[ $preset == fuzz ]]; then
  [[ -n $VEIL_CLANGXX ]] || { echo "build: the fuzz targets need clang: apt-get install clang libclang-rt-dev" >&2; exit 3; }
  compiler=(-DCMAKE_C_COMPILER="$VEIL_CLANG" -DCMAKE_CXX_COMPILER="$VEIL_CLANGXX")
fi

# cmake runs once, and again when it is called with other arguments; ninja runs it by itself when its files change.
asked="$VEIL_CMAKE $VEIL_NINJA $VEIL_PYTHON ${cuda[*]} ${compiler[*]} $*"
configured=$(cat "$folder/asked" 2>/dev/null || true)
[[ $only == program && $configured == "${asked/VEIL_CUDA=OFF/VEIL_CUDA=AUTO}" ]] && asked=$configured
if [[ ! -f $folder/build.ninja || $configured != "$asked" ]]; then
  "$VEIL_CMAKE" --preset "$preset" -DCMAKE_MAKE_PROGRAM="$VEIL_NINJA" -DPython3_EXECUTABLE="$VEIL_PYTHON" "${cuda[@]}" "${compiler[@]}" "$@" \
    >"$folder/configure.log" 2>&1 ||
    { cat "$folder/configure.log" >&2; exit 1; }
  grep -E '^-- Veil:' "$folder/configure.log" || true
  echo "$asked" >"$folder/asked"
fi
[[ $only != configure-only ]] || exit 0
# Clones share the compiler cache: paths inside the checkout are hashed relative to it.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true
export NINJA_STATUS='[%f/%t] '
targets=()
[[ $only == program ]] && targets=(veil)
"$VEIL_NINJA" -C "$folder" -j "$jobs" --quiet "${targets[@]}"
