#!/usr/bin/env bash
# The main job, small enough for a laptop without a GPU: what this machine has, a step's program, and seed 003's question on two local ranks, with a page to
# look at.
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
