#!/usr/bin/env bash
# Synthetic text from private records, end to end on a CPU: see README.md in this folder.
#
#   run.sh [--small] [FOLDER]    FOLDER (default synthetic_text) gets everything; it must not exist, or be an earlier run's
#
# VEIL    the program (default: veil on the PATH, else build/veil)
# BASE    a language model to start from (default: a small one that is trained on public text first)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
veil=${VEIL:-$(command -v veil || echo "$here/../../build/veil")}
python=${VEIL_PYTHON:-python3}

# The sizes of the full and of the small version.
records=4000 public=6000 base_steps=500 steps=40 batch=300 written=500 classifier_steps=80 budgets='1 3 8 inf'
if [[ ${1:-} == --small ]]; then
  shift
  records=600 public=1000 base_steps=80 steps=8 batch=100 written=45 classifier_steps=20 budgets='1 8 inf'
fi
folder=${1:-synthetic_text}
if [[ -e $folder && ! -f $folder/made_by_synthetic_text ]]; then
  echo "run.sh: $folder exists and is not an earlier run's folder; choose another" >&2
  exit 2
fi
rm -rf "$folder"
mkdir -p "$folder"
touch "$folder/made_by_synthetic_text"
"$python" "$here/make_data.py" --records $records --public $public --output "$folder/data"
cd "$folder"
show() { printf '\n$ veil'; printf ' %s' "$@"; echo; "$veil" "$@"; }
quiet() { "$veil" "$@" >>log.txt 2>&1 || { tail -n 20 log.txt >&2; exit 1; }; }

echo '== A base model learns from public text'
base=${BASE:-base}
if [[ $base == base ]]; then
  mkdir -p shape
  cp "$here/base_config.json" shape/config.json
  quiet train --model shape --from-scratch --tokenizer bytes --data data/public --samples document --seq-length 96 --batch-size 32 --steps $base_steps \
    --learning-rate 3e-3 --warmup-steps 20 --log-every 50 --device cpu --export base
fi
quiet train --model "$base" --task sequence-classification --labels 3 --data data/labelled --label-key label --seq-length 96 --batch-size 32 --steps $classifier_steps \
  --learning-rate 1e-3 --held-out 0 --device cpu --export classifier_real
quiet evaluate --model classifier_real --data data/test --label-key label --seq-length 96 --device cpu --json accuracy_real.json

per_kind=$((written / 3 + 1))
for epsilon in $budgets; do
  echo
  if [[ $epsilon == inf ]]; then
    echo '== Fine-tuning without privacy, to compare'
    private=()
  else
    echo "== Fine-tuning at epsilon $epsilon"
    private=(--epsilon "$epsilon" --delta 1e-5 --privacy-unit document)
  fi
  show train --model "$base" --lora 8 --data data/private --samples document --seq-length 96 --total-batch-size $batch --batch-size 50 --steps $steps \
    --learning-rate 1e-2 --log-every $((steps / 4)) --held-out 0 --device cpu "${private[@]}" --export "tuned_$epsilon" | grep -E '^(step|private|  spends|model|\$)' || true
  [[ -f tuned_$epsilon/adapter_model.safetensors ]] || { echo "run.sh: training failed" >&2; exit 1; }
  "$veil" sample --model "$base" --adapter "tuned_$epsilon" --prompts data/prompts.txt --count $per_kind --batch-size 64 --max-new-tokens 90 --temperature 0.8 --top-p 0.95 --device cpu \
    --format jsonl --output "written_$epsilon.jsonl"
  quiet evaluate --model "$base" --adapter "tuned_$epsilon" --data data/secrets --samples document --seq-length 96 --batch-size 64 --device cpu --losses "secrets_$epsilon.jsonl"
  "$python" "$here/label.py" "written_$epsilon.jsonl" "labelled_$epsilon/records.jsonl"
  quiet train --model "$base" --task sequence-classification --labels 3 --data "labelled_$epsilon" --label-key label --seq-length 96 --batch-size 32 --steps $classifier_steps \
    --learning-rate 1e-3 --held-out 0 --device cpu --export "classifier_$epsilon"
  quiet evaluate --model "classifier_$epsilon" --data data/test --label-key label --seq-length 96 --device cpu --json "accuracy_$epsilon.json"
done
echo
"$python" "$here/compare.py" .
