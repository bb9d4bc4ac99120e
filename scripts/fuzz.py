#!/usr/bin/env python3
"""Runs the fuzz targets of build-fuzz/ and prints a table; `make fuzz` builds and calls it.

    scripts/fuzz.py --seconds 20                 every target for 20 seconds, two at a time
    scripts/fuzz.py --inputs 500000 --only json  a number of inputs instead of a time

A finding is an input that makes a target crash, break a promise, take more than 5 s or more than 1 GiB. It is kept in
build-fuzz/findings/, and the exit code is 1. Inputs that reach new code are kept in build-fuzz/corpus/ and used
again by the next run; the seeds in tests/fuzz/corpus/ are only read.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = ROOT / "tests/fuzz/corpus"
DICTIONARIES = ROOT / "tests/fuzz/dictionaries"
SHORTEST_LIMIT = 512
TIMEOUT_S = 5
MEMORY_MIB = 1024


def stat(log, name):
    found = re.findall(rf"stat::{name}:\s+(\d+)", log)
    return int(found[-1]) if found else 0


def run(target, build, options, scratch):
    """One target; its row of the table and the findings' paths."""
    name = target.name.removesuffix("_fuzz")
    corpus, findings = build / "corpus" / name, build / "findings" / name
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(findings.iterdir())
    command = [str(target), str(corpus)]
    longest = SHORTEST_LIMIT
    if (SEEDS / name).is_dir():
        command.append(str(SEEDS / name))
        longest = max([longest] + [2 * path.stat().st_size for path in (SEEDS / name).iterdir()])
    if (DICTIONARIES / f"{name}.dict").is_file():
        command.append(f"-dict={DICTIONARIES / name}.dict")
    command += [f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={MEMORY_MIB}", f"-max_len={longest}",
                f"-artifact_prefix={findings}/", "-print_final_stats=1", "-close_fd_mask=1"]
    command.append(f"-runs={options.inputs}" if options.inputs else f"-max_total_time={options.seconds}")
    environment = dict(os.environ, TMPDIR=scratch, OMP_NUM_THREADS="1")
    # A huge allocation is a finding, not a null pointer. LibTorch keeps what it allocates once, so leaks are not looked for.
    environment["ASAN_OPTIONS"] = "detect_leaks=0"
    environment["UBSAN_OPTIONS"] = "print_stacktrace=1"
    begin = time.monotonic()
    done = subprocess.run(command, cwd=scratch, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds = time.monotonic() - begin
    log = done.stderr.decode(errors="replace")
    (build / "findings" / f"{name}.log").write_text(log)
    new = sorted(set(findings.iterdir()) - before)
    inputs = stat(log, "number_of_executed_units")
    covered = re.findall(r"\bcov: (\d+)", log)
    row = [name, str(inputs), f"{inputs / max(seconds, 1e-3):.0f}", covered[-1] if covered else "0",
           str(len(list(corpus.iterdir()))), str(stat(log, "slowest_unit_time_sec")), str(stat(log, "peak_rss_mb")), str(len(new))]
    return row, new, done.returncode, build / "findings" / f"{name}.log"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20, help="time for each target (default 20)")
    parser.add_argument("--inputs", type=int, default=0, help="inputs for each target, instead of a time")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="some of the targets")
    parser.add_argument("--jobs", type=int, default=2, help="targets at once (default 2)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-fuzz")
    options = parser.parse_args()
    if options.seconds < 1 or options.inputs < 0 or options.jobs < 1:
        sys.exit("fuzz: --seconds and --jobs must be at least 1, --inputs at least 0")
    build = options.build.resolve()
    targets = sorted(path for path in build.glob("tests/fuzz/*_fuzz") if os.access(path, os.X_OK) and path.is_file())
    names = [path.name.removesuffix("_fuzz") for path in targets]
    unknown = [name for name in options.only if name not in names]
    if unknown or not targets:
        sys.exit(f"fuzz: no target {', '.join(unknown)}; there are {', '.join(names)}" if targets
                 else f"fuzz: no targets in {build}: `make fuzz` builds them")
    if options.only:
        targets = [target for target, name in zip(targets, names) if name in options.only]

    # Targets write each input to a file: in memory, if the system has room for that.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    scratch = tempfile.mkdtemp(prefix="veil_fuzz_", dir=memory)
    begin, failed, total, findings = time.monotonic(), [], 0, 0
    head = ["target", "inputs", "per s", "covered", "corpus", "slowest s", "MiB", "findings"]
    line = "{:16} {:>10} {:>8} {:>8} {:>7} {:>10} {:>6} {:>9}"
    print(line.format(*head), flush=True)
    try:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for row, new, code, log in pool.map(lambda target: run(target, build, options, scratch), targets):
                print(line.format(*row), flush=True)
                total += int(row[1])
                findings += len(new)
                if new or code:
                    failed.append((row[0], new, code, log))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{total} inputs over {len(targets)} targets in {time.monotonic() - begin:.0f} s, {findings} findings")
    for name, new, code, log in failed:
        print(f"fuzz: {name} failed (exit code {code}); its output is in {log}", file=sys.stderr)
        for path in new:
            print(f"fuzz: repeat it with {build}/tests/fuzz/{name}_fuzz {path}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
