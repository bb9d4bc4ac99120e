#!/usr/bin/env python3
"""Trains for many small steps and checks that nothing grows.

usage: soak.py [--veil PROGRAM] [--steps N] [--private]

A run with checkpoints, evaluation and TensorBoard curves. Resident memory and open file descriptors
of the process are sampled. After the first tenth of the steps, which warms up, memory in the last
tenth of the samples may be at most 1 % above that of the first tenth, and the number of descriptors
must be the same. What LibTorch's allocator had at most, which metrics.jsonl tells for each step, may
grow by 1 % too. Prints a line with the figures; exit code 1 if something grew.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MOST_GROWTH = 0.01


def resident_bytes(process):
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def steps_done(metrics):
    """The last step in the log, from its end."""
    try:
        with open(metrics, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        if line.startswith('{"step":'):
            return int(line[8:].split(",")[0])
    return 0


def allocated_bytes(metrics, step):
    """What the allocator had at most until this step."""
    with open(metrics) as file:
        for line in file:
            entry = json.loads(line)
            if entry["step"] == step and "peak_memory_bytes" in entry:
                return entry["peak_memory_bytes"]
    sys.exit(f"soak: metrics.jsonl tells nothing of step {step}")


def sampled(child, metrics):
    """[(step, resident bytes, descriptors)] until the process has ended."""
    samples = []
    while child.poll() is None:
        try:
            samples.append((steps_done(metrics), resident_bytes(child.pid), len(os.listdir(f"/proc/{child.pid}/fd"))))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            break
        time.sleep(0.25)
    child.wait()
    return samples


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = Path(__file__).resolve().parent.parent
    parser.add_argument("--veil", default=str(root / "build" / "veil"))
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--private", action="store_true")
    wanted = parser.parse_args()
    # Ended from outside, it leaves no run behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="veil_soak_") as folder:
        run = Path(folder) / "run"
        run.mkdir()
        every = str(max(1, wanted.steps // 100))
        words = [wanted.veil, "train", "--model", "llama-tiny", "--from-scratch", "--device", "cpu"]
        words += ["--data", str(root / "examples" / "text"), "--seq-length", "16", "--batch-size", "2"]
        words += ["--steps", str(wanted.steps), "--checkpoint-every", every, "--evaluate-every", every]
        words += ["--evaluation-samples", "4", "--log-every", every, "--resume", str(run)]
        if wanted.private:
            words += ["--sigma", "1", "--delta", "1e-5", "--accountant", "rdp", "--samples", "packed"]
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        begin = time.monotonic()
        with open(Path(folder) / "log", "wb") as log:
            child = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
            try:
                samples = sampled(child, run / "metrics.jsonl")
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        if child.returncode != 0:
            sys.exit("soak: the run failed: " + (Path(folder) / "log").read_text(errors="replace")[-2000:])
        seconds = time.monotonic() - begin
        used = os.times().children_user + os.times().children_system
        warm_up = max(1, wanted.steps // 10)
        allocated, still_allocated = (allocated_bytes(run / "metrics.jsonl", step) for step in (warm_up, wanted.steps))
    warm = [sample for sample in samples if sample[0] >= wanted.steps / 10]
    part = len(warm) // 10
    if part < 3:
        sys.exit(f"soak: {len(warm)} samples after the first tenth are too few: take more steps")
    first, last = warm[:part], warm[-part:]
    before, after = (statistics.median(sample[1] for sample in group) for group in (first, last))
    # The median: files that are open for a moment are no leak, and a process that ends closes its own.
    opened, still_open = (statistics.median_low(sample[2] for sample in group) for group in (first, last))
    growth = after / before - 1
    flat = growth <= MOST_GROWTH and opened == still_open and still_allocated <= allocated * (1 + MOST_GROWTH)
    print(
        f"soak: {wanted.steps} steps in {seconds:.0f} s ({used:.0f} s of processor time), {len(samples)} samples: "
        f"resident memory {before / 2**20:.1f} MiB, then {after / 2**20:.1f} MiB ({growth:+.2%}); allocator at most "
        f"{allocated / 2**20:.2f} MiB, then {still_allocated / 2**20:.2f} MiB; {opened} descriptors, then "
        f"{still_open}: {'flat' if flat else 'IT GROWS'}"
    )
    sys.exit(0 if flat else 1)


if __name__ == "__main__":
    main()
