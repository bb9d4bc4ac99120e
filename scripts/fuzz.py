#!/usr/bin/env python3
"""Runs the fuzz targets of build-fuzz/ and prints a table; `make fuzz` builds and calls it.

    scripts/fuzz.py --seconds 20                 every target for 20 seconds, two at a time
    scripts/fuzz.py --inputs 500000 --only json  a number of inputs instead of a time
    scripts/fuzz.py --campaign 540 --jobs 16     all targets in turns, for 540 seconds in all

A finding is an input that makes a target crash, break a promise, take more than 5 s or more than 1 GiB. It is kept in
OUT/findings/, and the exit code is 1. Inputs that reach new code are kept in OUT/corpus/ and used again by the next
run; the seeds in tests/fuzz/corpus/ are only read. A campaign adds up what earlier ones in OUT have counted
(OUT/campaign.json). What is counted are new inputs: those of the corpus, with which a target begins, are not among them.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = ROOT / "tests/fuzz/corpus"
DICTIONARIES = ROOT / "tests/fuzz/dictionaries"
ROOM = 512  # bytes that an input may have more than the longest seed
TIMEOUT_S = 5
MEMORY_MIB = 1024
TURN_S = 60  # of a target in a campaign
HEAD = ["target", "inputs", "per s", "covered", "corpus", "slowest s", "MiB", "findings"]
LINE = "{:16} {:>10} {:>8} {:>8} {:>7} {:>10} {:>6} {:>9}"


def stat(log, name):
    found = re.findall(rf"stat::{name}:\s+(\d+)", log)
    return int(found[-1]) if found else 0


def last(log, pattern):
    found = re.findall(pattern, log, re.MULTILINE)
    return int(found[-1]) if found else 0


def run(target, out, limit, scratch, seed=0):
    """One target; what it did, as numbers, and its findings' paths."""
    name = target.name.removesuffix("_fuzz")
    corpus, findings = out / "corpus" / name, out / "findings" / name
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(findings.iterdir())
    command = [str(target), str(corpus)]
    longest = ROOM
    if (SEEDS / name).is_dir():
        command.append(str(SEEDS / name))
        longest += max(path.stat().st_size for path in (SEEDS / name).iterdir())
    if (DICTIONARIES / f"{name}.dict").is_file():
        command.append(f"-dict={DICTIONARIES / name}.dict")
    command += [f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={MEMORY_MIB}", f"-max_len={longest}",
                f"-artifact_prefix={findings}/", "-print_final_stats=1", "-entropic=0", "-close_fd_mask=1", f"-seed={seed}", limit]
    environment = dict(os.environ, TMPDIR=scratch, OMP_NUM_THREADS="1")
    # A huge allocation is a finding, not a null pointer. LibTorch keeps what it allocates once, so leaks are not looked for.
    # Short stacks of allocations, and less freed memory that is kept aside: parsers allocate much, and run twice as fast.
    environment["ASAN_OPTIONS"] = "detect_leaks=0:malloc_context_size=6:quarantine_size_mb=32"
    environment["UBSAN_OPTIONS"] = "print_stacktrace=1"
    begin = time.monotonic()
    done = subprocess.run(command, cwd=scratch, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds = time.monotonic() - begin
    log = done.stderr.decode(errors="replace")
    path = out / "findings" / f"{name}.log"
    if done.returncode:
        path = out / "findings" / f"{name}.{time.time():.0f}.failed.log"
    path.write_text(log)
    new = sorted(set(findings.iterdir()) - before)
    numbers = {"inputs": max(0, (stat(log, "number_of_executed_units") or last(log, r"^#(\d+)\s")) - last(log, r"^#(\d+)\s+INITED")),
               "seconds": seconds, "covered": last(log, r"\bcov: (\d+)"), "slowest": stat(log, "slowest_unit_time_sec"),
               "mib": stat(log, "peak_rss_mb"), "findings": len(new), "failures": int(done.returncode != 0)}
    return numbers, new, done.returncode, path


def added(total, numbers):
    for key in ("inputs", "seconds", "findings", "failures"):
        total[key] = total.get(key, 0) + numbers[key]
    for key in ("covered", "slowest", "mib"):
        total[key] = max(total.get(key, 0), numbers[key])
    return total


def row(name, numbers, out):
    corpus = len(list((out / "corpus" / name).iterdir())) if (out / "corpus" / name).is_dir() else 0
    return LINE.format(name, numbers["inputs"], f"{numbers['inputs'] / max(numbers['seconds'], 1e-3):.0f}", numbers["covered"], corpus,
                       numbers["slowest"], numbers["mib"], numbers["findings"])


def run_once(targets, out, options, scratch):
    """Each target once; their totals and what failed."""
    limit = f"-runs={options.inputs}" if options.inputs else f"-max_total_time={options.seconds}"
    totals, failed = {}, []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for target, (numbers, *rest) in zip(targets, pool.map(lambda one: run(one, out, limit, scratch, options.seed), targets)):
            name = target.name.removesuffix("_fuzz")
            totals[name] = numbers
            print(row(name, numbers, out), flush=True)
            if rest[0] or rest[1]:
                failed.append((name, *rest))
    return totals, failed


def run_campaign(targets, out, options, scratch):
    """All targets in turns until the time is over. Those with fewer inputs than --least come first; among equals, the one that
    had the least time."""
    store = out / "campaign.json"
    totals = json.loads(store.read_text()) if store.is_file() else {}
    names = {target.name.removesuffix("_fuzz"): target for target in targets}
    given = {name: totals.get(name, {}).get("seconds", 0.0) for name in names}  # of time, turns that have begun included
    lock, failed, end = threading.Lock(), [], time.monotonic() + options.campaign

    def work():
        while True:
            with lock:
                left = int(end - time.monotonic()) - TIMEOUT_S  # so much may the last input take
                if left < TIMEOUT_S:
                    return
                turn = min(TURN_S, left)
                name = min(given, key=lambda one: (totals.get(one, {}).get("inputs", 0) >= options.least, given[one]))
                given[name] += turn
            numbers, new, code, log = run(names[name], out, f"-max_total_time={turn}", scratch)
            with lock:
                totals[name] = added(totals.get(name, {}), numbers)
                store.with_suffix(".new").write_text(json.dumps(totals, indent=1))
                store.with_suffix(".new").replace(store)
                if new or code:
                    failed.append((name, new, code, log))

    workers = [threading.Thread(target=work) for _ in range(options.jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for name in sorted(totals):
        print(row(name, totals[name], out), flush=True)
    return totals, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20, help="time for each target (default 20)")
    parser.add_argument("--inputs", type=int, default=0, help="inputs for each target, instead of a time")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs, the same ones in the same order; 0: others each time (default)")
    parser.add_argument("--campaign", type=int, default=0, metavar="SECONDS", help="all targets in turns, for so long in all")
    parser.add_argument("--least", type=int, default=200000, metavar="N", help="of a campaign: inputs that every target is to have (default 200000)")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="some of the targets")
    parser.add_argument("--jobs", type=int, default=2, help="targets at once (default 2)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-fuzz", help="where the targets are")
    parser.add_argument("--out", type=pathlib.Path, help="where corpus, findings and counts go (default: the same)")
    options = parser.parse_args()
    if options.seconds < 1 or options.inputs < 0 or options.jobs < 1:
        sys.exit("fuzz: --seconds and --jobs must be at least 1, --inputs at least 0")
    if options.campaign and options.campaign < 3 * TIMEOUT_S:
        sys.exit(f"fuzz: --campaign {options.campaign}: allowed is {3 * TIMEOUT_S} seconds or more")
    build = options.build.resolve()
    out = options.out.resolve() if options.out else build
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
    begin = time.monotonic()
    print(LINE.format(*HEAD), flush=True)
    try:
        totals, failed = (run_campaign if options.campaign else run_once)(targets, out, options, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    total = {key: sum(numbers[key] for numbers in totals.values()) for key in ("inputs", "seconds", "findings", "failures")}
    print(f"{total['inputs']} inputs over {len(totals)} targets in {time.monotonic() - begin:.0f} s ({total['seconds'] / 3600:.2f} core-hours"
          f"{' of all campaigns' if options.campaign else ''}), {total['findings']} findings, {total['failures']} failures")
    for name, new, code, log in failed:
        print(f"fuzz: {name} failed (exit code {code}); its output is in {log}", file=sys.stderr)
        for path in new:
            print(f"fuzz: repeat it with {build}/tests/fuzz/{name}_fuzz {path}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
