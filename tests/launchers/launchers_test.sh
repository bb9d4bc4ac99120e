#!/usr/bin/env bash
# The real launchers start two ranks: launchers_test.sh PROGRAM PYTHON SOURCES [cpu|gpu]. On a GPU the ranks share it.
# mpirun, torchrun and srun each train a new private run, resume it, are stopped by a signal and started again with the same command.
# On CPU ranks the weights have the same bits whoever launches. A launcher that is missing fails the test: `make test` installs them.
set -euo pipefail
program=$1 python=$2 sources=$3 device=${4:-cpu}
. "$sources/tests/launchers/slurm.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/veil_launchers.XXXXXX")
trap 'stop_slurm; rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=1
unset MASTER_ADDR MASTER_PORT VEIL_PROFILE
torchrun=$(dirname "$python")/torchrun

fail() {
  echo "launchers: $*" >&2
  for log in "$work"/*.log; do echo "--- $log" >&2; tail -n 20 "$log" >&2; done
  exit 1
}
[[ -x $torchrun ]] || torchrun=$(command -v torchrun) || fail 'torchrun is missing: it comes with torch'
command -v mpirun >/dev/null || fail 'mpirun is missing: apt-get install openmpi-bin'
start_slurm "$work/slurm" || fail 'Slurm did not start'

as_root=()
((EUID == 0)) && as_root=(--allow-run-as-root)
declare -A start=(
  [mpirun]="mpirun -n 2 --oversubscribe --bind-to none ${as_root[*]} --mca plm isolated --mca btl vader,self
    --mca btl_vader_single_copy_mechanism none"
  [torchrun]="$torchrun --standalone --no-python --nproc_per_node=2"
  [srun]="srun --ntasks=2 --overcommit --quiet"
)
for ((i = 0; i < 32; ++i)); do printf '%02x' $((i * 7 + 3)); done >secret
chmod 600 secret
words=(train --model llama-tiny --from-scratch --tokenizer byte --samples packed --data "$sources/examples/text" --seq-length 16 --evaluation-samples 8
  --delta 1e-5 --accountant rdp --sigma 1 --total-batch-size 8 --batch-size 2 --clip-norm 0.5 --deterministic)
placed=(--device cpu) ranks='2 CPU ranks' many=300  # steps: enough to be stopped among them
[[ $device == cpu ]] || placed=(--device gpu --share-gpu) ranks='2 ranks that share a GPU' many=1500
words+=("${placed[@]}" --strategy zero3)

launch() {  # LAUNCHER LOG OPTION...
  local launcher=$1 log=$2
  shift 2
  # shellcheck disable=SC2086  # the launcher's words are several
  timeout 400 ${start[$launcher]} "$program" "${words[@]}" "$@" >"$log" 2>&1
}
only_run() {  # the one run_* folder of a parent
  local runs=("$1"/run_*)
  ((${#runs[@]} == 1)) && [[ -d ${runs[0]} ]] || fail "$1 holds ${#runs[@]} runs, expected one: ${runs[*]}"
  echo "${runs[0]}"
}
# As docs/clusters.md says: srun kills the ranks when it gets SIGTERM itself, and mpirun a second later. 4.1.6 does not
# pass SIGUSR1 on, though 4.1.4 does: the ranks, its children, get it.
stop() {  # LAUNCHER PID-OF-LAUNCH
  case $1 in
    srun) scancel --signal=TERM --user="$(id -un)" ;;
    mpirun) pkill -USR1 -P "$(pgrep -P "$(pgrep -P "$2" timeout)" mpirun)" ;;
    torchrun) pkill -TERM -P "$(pgrep -P "$2" timeout)" ;;
  esac
}
steps_of() { cat "$1/metrics.jsonl" 2>/dev/null | grep -c '"loss"' || true; }

for launcher in mpirun torchrun srun; do
  # A new run, without a word about its folder.
  launch $launcher $launcher-new.log --secret-file secret --steps 6 --checkpoint-every 3 --output-dir $launcher --export $launcher-model ||
    fail "$launcher: a new run ended with $?"
  run=$(only_run $launcher)
  grep -q "$ranks" $launcher-new.log || fail "$launcher: these were not two ranks"
  [[ $(steps_of "$run") == 6 ]] || fail "$launcher: $(steps_of "$run") steps of 6"
  [[ $device == gpu ]] || cmp mpirun-model/model.safetensors $launcher-model/model.safetensors || fail "$launcher: other weights than by mpirun"

  # Resumed from the checkpoint before the last.
  rm -r "$run/checkpoints/step_00000006"
  launch $launcher $launcher-resumed.log --secret-file secret --steps 6 --checkpoint-every 3 --resume "$run" --export $launcher-again ||
    fail "$launcher: the resumed run ended with $?"
  grep -q 'resumed   after step 3' $launcher-resumed.log || fail "$launcher: it was not resumed"
  # On a GPU the steps that are repeated draw fresh noise, since the device may round otherwise.
  [[ $device == gpu ]] || cmp $launcher-model/model.safetensors $launcher-again/model.safetensors || fail "$launcher: a resumed run has other weights"

  # A signal: a checkpoint of the step that was reached, and exit code 4 (torchrun's is always 1). The same command again continues by itself.
  again=(--steps $many --checkpoint-every 0 --resume auto --output-dir $launcher-stopped)
  launch $launcher $launcher-stopped.log "${again[@]}" &
  waiting=$!
  for _ in {1..1200}; do
    run=$(echo $launcher-stopped/run_*)
    (($(steps_of "$run") >= 2)) && break
    sleep 0.05
  done
  (($(steps_of "$run") >= 2)) || fail "$launcher: no step within a minute"
  stop $launcher $waiting || fail "$launcher: it had ended before it was asked to"
  code=0
  wait $waiting || code=$?
  expected=4
  [[ $launcher == torchrun ]] && expected=1
  ((code == expected)) || fail "$launcher: exit code $code after the signal, expected $expected"
  stopped=$(steps_of "$run")
  ((stopped < many)) || fail "$launcher: it did not stop"
  [[ -f $run/checkpoints/$(printf 'step_%08d' "$stopped")/state.json ]] || fail "$launcher: no checkpoint after step $stopped"
  launch $launcher $launcher-restarted.log "${again[@]}" || fail "$launcher: the restarted run ended with $?"
  [[ $(only_run $launcher-stopped) == "$run" && $(steps_of "$run") == "$many" ]] || fail "$launcher: $(steps_of "$run") steps of $many"
  grep -q "resumed   after step $stopped" $launcher-restarted.log || fail "$launcher: it did not go on after step $stopped"
  echo "launchers: $launcher: new, resumed, stopped after step $stopped and restarted"
done

# Other commands, with the lines of the documents.
for launcher in mpirun torchrun srun; do
  # shellcheck disable=SC2086
  timeout 400 ${start[$launcher]} "$program" verify "${placed[@]}" --mode flash --strategy zero3 >$launcher-verify.log 2>&1 || fail "$launcher: veil verify ended with $?"
done

# A batch job that Slurm stops, puts back into the queue and starts again.
cat >job.sh <<END
#!/bin/bash
#SBATCH --ntasks=2 --overcommit --requeue --open-mode=append --output=$work/job.log
srun --overcommit "$program" ${words[@]@Q} --steps $many --checkpoint-every 0 --resume auto --output-dir requeued
END
job=$(sbatch --parsable job.sh)
for _ in {1..1200}; do
  run=$(echo requeued/run_*)
  (($(steps_of "$run") >= 2)) && break
  sleep 0.05
done
(($(steps_of "$run") >= 2)) || fail 'srun: the batch job made no step within a minute'
scontrol requeue "$job"
for _ in {1..1200}; do
  # Slurm lets a job that was put back wait for two minutes.
  scontrol update jobid="$job" starttime=now 2>/dev/null || true
  [[ $(squeue -h -j "$job" -o %T 2>/dev/null) == "" && $(steps_of "$run") == "$many" ]] && break
  sleep 0.1
done
[[ $(only_run requeued) == "$run" && $(steps_of "$run") == "$many" ]] || fail "srun: the requeued job reached step $(steps_of "$run") of $many"
grep -q 'resumed   after step' job.log || fail 'srun: the requeued job began again'
echo 'launchers: srun: a requeued job went on by itself'
