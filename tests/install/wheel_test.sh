#!/usr/bin/env bash
# Installs dist/veil-*.whl into a clean virtual environment and takes a first private step with it: wheel_test.sh, with
# build/env.sh read. torch is several gigabytes and installed already, so the environment links to it instead of
# fetching it again; everything else is as a user has it: no build tools, no variables, no system -dev packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source=$PWD
wheel=$(ls "$source"/dist/veil-*.whl)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "wheel: $*" >&2; exit 1; }

"$VEIL_WHEEL_PYTHON" -m zipfile -l "$wheel" | awk 'NR > 1 {print $1}' >"$folder/files"
! grep -qE 'libtorch|libc10|libcud|libcublas|libmpi' "$folder/files" || fail 'libraries of torch, CUDA or MPI are inside'
grep -qE '^veil\.libs/libcurl' "$folder/files" || fail 'libcurl is not bundled'

began=$SECONDS
"$VEIL_WHEEL_PYTHON" -m venv "$folder/venv"
site=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
torch=$("$VEIL_PYTHON" -c 'import importlib.metadata as m; print(m.distribution("torch").locate_file(""))')
ln -s "$torch"/torch "$torch"/torch-*.dist-info "$site"
[[ ! -d $torch/nvidia ]] || ln -s "$torch/nvidia" "$site"
# Without an index pip fails if the requirement torch==2.11.* is not met by what is there; torch's own ones are not asked.
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps "$wheel"
"$folder/venv/bin/python" - <<'PY'
import importlib.metadata as m
assert m.requires("veil") == ["torch==2.11.*"], m.requires("veil")
assert m.version("torch").startswith("2.11."), m.version("torch")
PY
cd "$folder"
# The last one is what a machine's BLAS cannot do without (docs/troubleshooting.md).
veil=(env -i HOME="$folder" PATH="$folder/venv/bin:/usr/bin:/bin"
  ${NVPL_BLAS_DEBUG_CPU_TYPE:+"NVPL_BLAS_DEBUG_CPU_TYPE=$NVPL_BLAS_DEBUG_CPU_TYPE"} veil)
"${veil[@]}" doctor >doctor.txt || fail "veil doctor: $(cat doctor.txt)"
grep -q 'LibTorch' doctor.txt
program=$site/veil/bin/veil
ldd "$program" >libraries.txt
! grep 'not found' libraries.txt || fail 'a library is missing'
grep -q 'libcurl.* => .*/veil.libs/' libraries.txt || fail "libcurl is the system's"
"${veil[@]}" train --model llama-tiny --from-scratch --tokenizer byte --data "$source/examples/text" --samples packed --device cpu \
  --seq-length 64 --total-batch-size 32 --batch-size 16 --steps 3 --epsilon 8 --delta 1e-4 --output-dir runs --export model >train.txt ||
  fail "veil train: $(cat train.txt)"
grep -q '"epsilon"' model/privacy.json
spent=$((SECONDS - began))
echo "wheel: installed, and three private steps taken, in $spent s"
((spent <= 120)) || fail "that is more than two minutes"
