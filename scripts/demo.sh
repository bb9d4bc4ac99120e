#!/usr/bin/env bash
# The main jobs, small enough for a laptop without a GPU: what this machine has, a step's program, two questions answered by suites with a page each, and a tiny language model
# that learns from a folder of text and is then tuned privately.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
veil=build/veil
rm -rf demo
echo '== veil doctor'
$veil doctor
echo
echo '== veil plan: what one training step does, sharded over two ranks (zero3)'
$veil plan --schedule --preset tiny --layers 3 --world 2
echo '== veil suite linear: DDP or FSDP? Four set-ups on two ranks, each in its own processes'
$veil suite linear --preset tiny --ranks 2 --input-size 512 --batch-size 512 --output-dir demo/linear | sed -n '/^\[/,$p'
echo
echo '== veil train: a tiny language model learns from 32 short texts, byte by byte'
$veil train --model llama-tiny --from-scratch --data examples/text --tokenizer byte --device cpu --seq-length 128 --batch-size 16 --steps 200 --learning-rate 5e-3 --warmup-steps 20 \
  --log-every 20 --output-dir demo/training --export demo/model | sed -u -n '/^model /,$p'
goal=2.2
loss=$(sed -n 's/.*"held_out_loss":\([0-9.]*\).*/\1/p' demo/training/run_*/metrics.jsonl | tail -1)
echo
if ! awk -v loss="$loss" -v goal="$goal" 'BEGIN { exit !(loss < goal) }'; then
  echo "demo: the loss on held-out text is $loss, it should be below $goal" >&2
  exit 1
fi
printf 'On texts that it never saw, a byte now costs the model %.2f nats; it began at 5.6, as if all bytes were alike, and was to come below %s.\n' "$loss" "$goal"
echo 'transformers loads demo/model as it stands: AutoModelForCausalLM.from_pretrained("demo/model")'
echo
echo '== veil train --epsilon: the model is tuned to 4000 invented reviews; a review is the unit of privacy'
"${VEIL_PYTHON:-python3}" examples/make_reviews.py --count 4000 --output demo/reviews
$veil train --model demo/model --data demo/reviews --samples document --seq-length 80 --device cpu --held-out 0.05 --weight-decay 0 --total-batch-size 128 --batch-size 16 \
  --learning-rate 3e-3 --steps 15 --epsilon 8 --delta 1e-5 --privacy-unit document --log-every 5 --output-dir demo/private --export demo/private_model | sed -u -n '/^model /,$p'
echo
echo '== veil suite llama3-dp: what does privacy cost? Three modes by three sequence lengths'
$veil suite llama3-dp --preset tiny --device cpu --output-dir demo/privacy | sed -n '/^\[/p'
page=$(echo demo/privacy/run_*/index.html)
echo
echo "The page: $page"
sed -n '1,2p' "${page%index.html}summary.txt" | cut -c1-400
echo 'It shows memory and time of each mode at each length, what privacy adds to both, and where the bytes and milliseconds of a step go.'
