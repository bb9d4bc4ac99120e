#!/bin/sh
# Loss against epsilon: a byte-level language model, trained on public text, is tuned privately to 12,000 invented reviews, a review being the unit of privacy.
#
#     examples/private_reviews.sh [DIR]       VEIL=build/veil, some ten minutes on one CPU core
#
# The secret is fixed so that the figures can be repeated on the same kind of machine. That is for an example whose data is invented: a secret in a script protects nobody.
set -eu
cd "$(dirname "$0")/.."
veil=${VEIL:-build/veil}
out=${1:-private_reviews}
export OMP_NUM_THREADS=1
mkdir -p "$out"
python3 examples/make_reviews.py --count 12000 --output "$out/reviews"
(umask 077 && printf '%064d\n' 20240607 >"$out/secret_of_the_example")

"$veil" train --model llama-tiny --from-scratch --data examples/text --tokenizer byte --device cpu --seq-length 80 --batch-size 16 --steps 150 --learning-rate 5e-3 --warmup-steps 10 \
  --log-every 50 --output-dir "$out/runs" --export "$out/public"

tune() {
  name=$1
  shift
  mkdir -p "$out/$name"
  "$veil" train --model "$out/public" --data "$out/reviews" --samples document --seq-length 80 --device cpu --held-out 0.05 --weight-decay 0 --log-every 10 \
    --resume "$out/$name" --export "$out/${name}_model" "$@"
}
private="--total-batch-size 256 --batch-size 16 --learning-rate 3e-3 --steps 40 --delta 1e-5 --privacy-unit document --secret-file $out/secret_of_the_example"
tune as_it_was --batch-size 16 --steps 1 --learning-rate 0
for epsilon in 1 3 8; do
  tune "epsilon_$epsilon" --epsilon "$epsilon" $private
done
tune not_private --batch-size 16 --accumulation 16 --learning-rate 3e-3 --steps 40

python3 - "$out" <<'PYTHON'
import json, pathlib, sys
out = pathlib.Path(sys.argv[1])
print("\n| | epsilon | sigma | held-out loss | perplexity |\n|---|---|---|---|---|")
for name in ("as_it_was", "epsilon_1", "epsilon_3", "epsilon_8", "not_private"):
    last = [json.loads(line) for line in (out / name / "metrics.jsonl").read_text().splitlines()][-1]
    told = out / f"{name}_model" / "privacy.json"
    spent = json.loads(told.read_text()) if told.exists() else None
    epsilon, sigma = (f"{spent['epsilon']:.4f}", f"{spent['events'][0]['sigma']:.5f}") if spent else ("-", "-")
    print(f"| {name.replace('_', ' ')} | {epsilon} | {sigma} | {last['held_out_loss']:.4f} | {last['held_out_perplexity']:.3f} |")
PYTHON
