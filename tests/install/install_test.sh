#!/usr/bin/env bash
# Installs to a temporary folder, moves the tree and runs the program from its new place: install_test.sh CMAKE BUILD
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" --install "$2" --prefix "$folder/first" >/dev/null
mkdir "$folder/deeper"
mv "$folder/first" "$folder/deeper/second"
cd /
tree=$folder/deeper/second
[[ $(env -u LD_LIBRARY_PATH "$tree/bin/veil" --version) == "veil "* ]]
[[ -f $tree/LICENSE && -f $tree/share/doc/veil/building.md ]]
if ldd "$tree/bin/veil" | grep 'not found'; then exit 1; fi
