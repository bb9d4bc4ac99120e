#!/usr/bin/env bash
# make_fixtures.sh PROGRAM FOLDER: a private run and its export in the formats of this version, as small as
# possible, for tests/fixtures (tests/cli/formats_test.cpp reads them). Run it when a format gets a new number, into a
# new folder: those of earlier versions stay, so that every later version is tested with them.
set -euo pipefail
[[ $# == 2 ]] || { sed -n 2,4p "$0" >&2; exit 2; }
program=$(realpath "$1")
[[ ! -e $2 ]] || { echo "make_fixtures.sh: $2 is there already" >&2; exit 2; }
mkdir -p "$2/base"
cd "$2"
cat >base/config.json <<'CONFIG'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 264, "hidden_size": 4,
 "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
 "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "max_position_embeddings": 64, "tie_word_embeddings": true}
CONFIG
for i in {1..20}; do echo "{\"text\": \"document $i\"}"; done >data.jsonl
mkdir run
# No path of the machine that makes them.
HOME=/home/nobody XDG_CACHE_HOME='' HF_HOME='' OMP_NUM_THREADS=1 "$program" train --model base --from-scratch --data data.jsonl --tokenizer bytes --seq-length 12 \
  --device cpu --held-out 0 --sigma 1 --delta 1e-3 --accountant rdp --total-batch-size 4 --batch-size 2 \
  --optimizer sgd-momentum --learning-rate 0.01 --steps 2 --ema 0.5 --keep-checkpoints 1 --resume run --export exported
# Not read by a resume.
rm -r run/tensorboard run/metrics.jsonl run/.veil_export_owner run/.lock
