#!/usr/bin/env bash
# Configures (where needed) and builds one preset: build.sh PRESET JOBS [--configure-only] [cmake arguments]. Called by the Makefile with build/env.sh read.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1 jobs=$2
shift 2
only=
[[ ${1:-} == --configure-only ]] && only=yes && shift
case $preset in release) folder=build ;; *) folder=build-$preset ;; esac
mkdir -p "$folder"

# Configuring is said only once, and again where it is asked with other words; ninja runs cmake again by itself when its files change.
asked="$VEIL_CMAKE $VEIL_NINJA $VEIL_PYTHON $*"
if [[ ! -f $folder/build.ninja || $(cat "$folder/asked" 2>/dev/null) != "$asked" ]]; then
  "$VEIL_CMAKE" --preset "$preset" -DCMAKE_MAKE_PROGRAM="$VEIL_NINJA" -DPython3_EXECUTABLE="$VEIL_PYTHON" "$@" >"$folder/configure.log" 2>&1 ||
    { cat "$folder/configure.log" >&2; exit 1; }
  grep -E '^-- Veil:' "$folder/configure.log" || true
  echo "$asked" >"$folder/asked"
fi
[[ -z $only ]] || exit 0
# Clones share what the compiler cache holds: paths inside the checkout are hashed relative to it.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true
export NINJA_STATUS='[%f/%t] '
"$VEIL_NINJA" -C "$folder" -j "$jobs" --quiet
