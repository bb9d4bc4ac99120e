#!/usr/bin/env bash
# clang-tidy (.clang-tidy) over the sources that differ from the upstream branch, or over all of src/ with `lint.sh all`. Needs build/compile_commands.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ${1:-} == all ]] || ! base=$(git merge-base HEAD '@{upstream}' 2>/dev/null); then
  mapfile -t files < <(git ls-files 'src/*.cpp')
else
  mapfile -t files < <({ git diff --name-only --diff-filter=d "$base" -- 'src/*.cpp'; git ls-files --others --exclude-standard 'src/*.cpp'; } | sort -u)
fi
# A stub that this configuration does not build has no entry, and clang-tidy would guess its flags.
built=()
for file in "${files[@]}"; do grep -q "\"file\": \".*/$file\"" build/compile_commands.json && built+=("$file"); done
((${#built[@]})) || { echo "lint: nothing to check"; exit 0; }
echo "lint: ${#built[@]} files"
printf '%s\n' "${built[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p build --quiet --warnings-as-errors='*' 2> >(grep -vE 'warnings? (generated|treated)|^Suppressed|^Use -header-filter' >&2)
