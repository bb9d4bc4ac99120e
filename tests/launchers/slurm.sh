# A Slurm of this machine alone, for tests: munged, slurmctld and slurmd with files of their own, as root or as any other user.
# Source it; start_slurm FOLDER exports SLURM_CONF, stop_slurm ends what was started. Both fail with a reason on stderr.
export PATH=$PATH:/usr/sbin:/sbin  # where Debian keeps the daemons

free_port() { "${VEIL_PYTHON:-python3}" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

start_slurm() {
  local folder=$1 host tool
  host=$(hostname -s)
  for tool in munged slurmctld slurmd srun sbatch scontrol; do
    command -v "$tool" >/dev/null || { echo "slurm: $tool is missing: apt-get install slurm-wlm munge" >&2; return 1; }
  done
  mkdir -p "$folder"/{munge,state,spool}
  chmod 755 "$folder" "$folder/munge"
  slurm_folder=$folder
  dd if=/dev/urandom of="$folder/munge/key" bs=128 count=1 status=none
  chmod 600 "$folder/munge/key"
  # --force: a folder of tests may be under one that others can write to.
  munged --force --foreground --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" >"$folder/munge.out" 2>&1 &
  slurm_daemons=($!)
  cat >"$folder/slurm.conf" <<END
ClusterName=veil
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP
END
  # No control groups: a container lends none.
  printf '%s\n' CgroupPlugin=cgroup/v1 "CgroupMountpoint=$folder/cgroup" >"$folder/cgroup.conf"
  export SLURM_CONF=$folder/slurm.conf
  for _ in {1..100}; do [[ -S $folder/munge/socket ]] && break; sleep 0.1; done
  slurmctld -D >"$folder/slurmctld.out" 2>&1 &
  slurm_daemons+=($!)
  slurmd -D -N "$host" >"$folder/slurmd.out" 2>&1 &
  slurm_daemons+=($!)
  for _ in {1..300}; do
    [[ $(sinfo -h -o %T 2>/dev/null) == idle ]] && return 0
    sleep 0.1
  done
  echo "slurm: the node is not idle after 30 s: $(sinfo -h -o '%T %E' 2>&1)" >&2
  tail -n 5 "$folder"/{munge.out,slurmctld.out,slurmd.out} >&2
  return 1
}

stop_slurm() {
  local i
  [[ -n ${slurm_folder:-} ]] || return 0
  # Jobs first: their own daemons would outlive the others.
  timeout 5 scancel --signal=KILL --full --user="$(id -un)" 2>/dev/null || true
  for _ in {1..50}; do [[ -z $(timeout 5 squeue -h 2>/dev/null) ]] && break; sleep 0.1; done
  # In the opposite order of their start, each within five seconds or by force.
  for ((i = ${#slurm_daemons[@]} - 1; i >= 0; --i)); do
    kill "${slurm_daemons[i]}" 2>/dev/null || continue
    for _ in {1..50}; do kill -0 "${slurm_daemons[i]}" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "${slurm_daemons[i]}" 2>/dev/null || true
  done
  slurm_folder=
}
