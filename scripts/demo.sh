#!/usr/bin/env bash
# The main job, small enough for a laptop without a GPU: what this machine has, and a collective over two local ranks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build/veil doctor --ranks 2
