#!/usr/bin/env bash
# The main jobs, small enough for a laptop without a GPU: a tiny language model learns from public text and is then
# fine-tuned privately, and two suites answer a question each, with a page to look at. Called by `make demo`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
veil=build/veil
# demo/ is made anew each time, but only if an earlier demo made it.
if [[ -e demo && ! -f demo/made_by_veil_demo ]]; then
  echo 'demo: the folder demo/ exists and was not made by this script; move it away first' >&2
  exit 2
fi
rm -rf demo
mkdir demo
touch demo/made_by_veil_demo
show() { printf '\n$ veil'; printf ' %s' "$@"; echo; $veil "$@"; }

echo '== What this build and this machine have'
show doctor

echo
echo '== A tiny language model learns from 32 short public texts, byte by byte'
show train --model llama-tiny --from-scratch --tokenizer byte --data examples/text --device cpu --seq-length 128 --batch-size 16 \
  --steps 200 --learning-rate 5e-3 --warmup-steps 20 --log-every 40 --output-dir demo/training --export demo/model
goal=2.2
loss=$(sed -n 's/.*"held_out_loss":\([0-9.]*\).*/\1/p' demo/training/run_*/metrics.jsonl | tail -1)
if ! awk -v loss="$loss" -v goal="$goal" 'BEGIN { exit !(loss < goal) }'; then
  echo "demo: the loss on held-out text is $loss, it should be below $goal" >&2
  exit 1
fi
printf '\nOn texts it has never seen the loss is %.2f nats per byte; before training it was 5.6.\n' "$loss"
echo 'transformers loads the exported folder: AutoModelForCausalLM.from_pretrained("demo/model")'

echo
echo '== The model is fine-tuned on 4000 invented reviews, privately: epsilon 8, and the unit of privacy is a review'
"${VEIL_PYTHON:-python3}" examples/make_reviews.py --count 4000 --output demo/reviews
show train --model demo/model --data demo/reviews --device cpu --seq-length 80 --total-batch-size 128 --batch-size 16 \
  --learning-rate 3e-3 --steps 15 --epsilon 8 --delta 1e-5 --log-every 3 --output-dir demo/private --export demo/private_model

echo
echo '== DDP or FSDP? Four configurations as one rank of a simulated world of 8, each in its own process'
show suite linear --preset tiny --input-size 512 --batch-size 512 --output-dir demo/linear | sed -n '/^Take/p;/^page/p;/^set-up/,/^$/p'

echo
echo '== What does privacy cost? The plain step, two clipping modes of the literature and auto, the one to choose'
show suite llama3-dp --preset tiny --device cpu --output-dir demo/privacy | sed -n '/^\[.*: /p'
page=$(echo demo/privacy/run_*/index.html)
sed -n '1,2p' "${page%index.html}summary.txt" | cut -c1-400
echo
echo "The page: $page"
echo 'It shows time and memory of each mode at each sequence length, what privacy adds to both, and where they go.'
