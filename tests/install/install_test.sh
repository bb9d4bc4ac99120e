#!/usr/bin/env bash
# Installs to a temporary folder, moves the tree, and from its new place runs the program and builds and runs
# examples/embed against the library: install_test.sh CMAKE BUILD SOURCE
set -euo pipefail
cmake=$1 build=$2 source=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$cmake" --install "$build" --prefix "$folder/first" >/dev/null
mkdir "$folder/deeper"
mv "$folder/first" "$folder/deeper/second"
cd /
tree=$folder/deeper/second
[[ $(env -u LD_LIBRARY_PATH "$tree/bin/veil" --version) == "veil "* ]]
grep -q learning "$tree/share/man/man1/veil.1"
bash -n "$tree/share/bash-completion/completions/veil"
[[ -s $tree/share/zsh/site-functions/_veil && -s $tree/share/fish/vendor_completions.d/veil.fish ]]
[[ -f $tree/share/doc/veil/LICENSE && -f $tree/share/doc/veil/building.md ]]
if ldd "$tree/bin/veil" | grep 'not found'; then exit 1; fi

# Only headers of the floors below the command line are part of the library.
[[ -f $tree/include/veil/run/train.h && ! -e $tree/include/veil/cli ]]
cp -r "$source/examples/embed" "$folder/embed"
"$cmake" -S "$folder/embed" -B "$folder/embed/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$tree" >"$folder/configure.log" ||
  { cat "$folder/configure.log"; exit 1; }
"$cmake" --build "$folder/embed/build"
"$folder/embed/build/embed" "$source/examples/text" "$folder/runs" | tee "$folder/said"
[[ $(grep -c '^step .* epsilon [0-9.]* ' "$folder/said") == 10 ]]
grep -q '^checkpoint of step 10: ' "$folder/said"
# Epsilon grows with every step and ends within the budget.
awk '/^step/ {if ($4 < last || $4 > 8) exit 1; last = $4} END {exit !(last > 0)}' "$folder/said"
