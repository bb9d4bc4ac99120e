#!/usr/bin/env bash
# Removes what `make install` installed: uninstall.sh MANIFEST. Only files listed there, and Veil's own folders once empty.
set -euo pipefail
manifest=$1
[[ -f $manifest ]] || { echo "uninstall: there is no $manifest, so nothing was installed from this checkout" >&2; exit 2; }
while IFS= read -r file || [[ -n $file ]]; do
  [[ -n $file ]] || continue
  rm -f -- "$file"
  folder=$(dirname -- "$file")
  while [[ ${folder##*/} == *[vV]eil* || $folder == *[vV]eil/* ]] && rmdir -- "$folder" 2>/dev/null; do folder=$(dirname -- "$folder"); done
done <"$manifest"
rm -f -- "$manifest"
echo 'uninstalled'
