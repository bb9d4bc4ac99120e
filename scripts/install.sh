#!/usr/bin/env bash
# Installs what is built in build/: install.sh PREFIX. Called by the Makefile with build/env.sh read.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
prefix=$1
program=$prefix/bin/veil
if [[ -e $program ]] && [[ $("$program" --version 2>/dev/null) != "veil "* ]]; then
  echo "install: $program exists and is not Veil; choose another folder with PREFIX=DIR" >&2
  exit 2
fi
"$VEIL_CMAKE" --install build --prefix "$prefix" >build/install.log || { cat build/install.log >&2; exit 1; }
echo "installed: $program"
case :$PATH: in *:"$prefix/bin":*) ;; *) echo "add $prefix/bin to PATH to start it as veil" ;; esac
