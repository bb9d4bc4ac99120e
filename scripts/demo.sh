#!/usr/bin/env bash
# The main jobs, small enough for a laptop without a GPU: what this machine has, a step's program, seed 003's question on two local ranks, with a page to
# look at, and a tiny language model that learns from a folder of text.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
veil=build/veil
echo '== veil doctor'
$veil doctor
echo
echo '== veil plan: what one training step does, sharded over two ranks (zero3)'
$veil plan --schedule --preset tiny --layers 3 --world 2
echo '== veil suite linear: DDP or FSDP? Four set-ups on two ranks, each in its own processes'
rm -rf demo
$veil suite linear --preset tiny --ranks 2 --input-size 512 --batch-size 512 --output-dir demo | sed -n '/^\[/,$p'
echo
echo '== veil train: a tiny language model learns from 32 short texts, byte by byte'
$veil train --model llama-tiny --data examples/text --tokenizer byte --device cpu --seq-length 128 --batch-size 16 --steps 200 --learning-rate 5e-3 --warmup-steps 20 \
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
