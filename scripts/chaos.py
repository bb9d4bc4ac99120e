#!/usr/bin/env python3
"""Trains under random faults and checks that nothing is lost; `make chaos` calls it.

    scripts/chaos.py --minutes 3             faults of all kinds, two training runs at a time
    scripts/chaos.py --minutes 3 --seed 7    the same runs and faults again, at about the same moments
    scripts/chaos.py --only "power" --setups poisson --faults 20
    scripts/chaos.py --self-test             plants violations, and fails unless each is found

A run is started, a fault strikes, and the same command is given again until the run has ended. Then its weights, its
epsilon, its ledger, its metrics and its files are compared with those of a run that was left alone. A violation is
printed, the run's folder is kept, and the exit code is 1. tests/chaos/ holds the faults and the checks.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "chaos"))

import check  # noqa: E402
import job as jobs  # noqa: E402
import machine  # noqa: E402
from faults import FAULTS  # noqa: E402

MOST_FAULTS = 3  # of one run


class Reference:
    """A run that was left alone."""

    def __init__(self, outcome, calls, first_step_s, notices=()):
        self.outcome, self.calls, self.first_step_s = outcome, calls, first_step_s
        self.notices = set(notices)  # what such a run says in any case


class References:
    """Made when they are first needed, one for each setup, with and without the shim."""

    def __init__(self, program):
        self.program, self.made, self.locks = program, {}, collections.defaultdict(threading.Lock)

    def get(self, setup, shim):
        key = (setup.name, shim)
        with self.locks[key]:
            if key not in self.made:
                self.made[key] = self.make(setup, shim)
            return self.made[key]

    def make(self, setup, shim):
        place = self.program.folder / "references" / f"{setup.name}{'_shim' if shim else ''}".replace(" ", "_") / "disk"
        (place / "run").mkdir(parents=True)
        control = jobs.Control(place.parent / "control") if shim else None
        network = machine.Network() if setup.transport == "net" else None
        try:
            launch = jobs.Launch(self.program, setup, place, place.parent / "log", control=control, network=network)
            while launch.runs() and launch.reached() == 0:
                time.sleep(0.005)
            first = time.monotonic() - launch.begin
            if not launch.wait() or any(launch.codes()):
                launch.kill_all()
                sys.exit(f"chaos: a run without faults failed ({setup.name}): {launch.complaints()[-1:]}")
        finally:
            if network:
                network.close()
        outcome = check.Outcome(place)
        if outcome.problems or outcome.steps != list(range(1, jobs.STEPS + 1)):
            sys.exit(f"chaos: a run without faults is not whole ({setup.name}): {outcome.problems} {outcome.steps}")
        return Reference(outcome, control.get("calls") if shim else 0, first, launch.complaints())


class Job:
    """One run and the faults that strike it."""

    def __init__(self, number, program, setup, disk, shim, reference, elsewhere):
        self.folder = program.folder / f"job_{number:04}"
        self.program, self.setup, self.reference = program, setup, reference
        self.reference_calls, self.elsewhere = reference.calls, elsewhere
        self.folder.mkdir()
        self.disk, self.network = machine.make_disk(self.folder / "disk", disk), None
        self.place = self.folder / "disk"
        if setup.transport == "net":
            self.network = machine.Network()
        self.control = jobs.Control(self.folder / "control") if shim else None
        (self.place / "run").mkdir()
        os.sync()  # the folder is there before the first fault, as a person's is
        self.starts, self.begun, self.what = 0, 0, ""
        self.segments = {}  # the step that each nonce began after, and the last that it made

    def launch(self, more=()):
        self.starts += 1
        moved = tuple(self.elsewhere) if self.elsewhere and self.starts > 1 else ()
        launch = jobs.Launch(self.program, self.setup, self.place, self.folder / f"start_{self.starts}", tuple(more) + moved,
                             self.control, self.network)
        launch.notices = self.reference.notices
        return launch

    def note(self, launch):
        """What a start has made, by its metrics and the name of its nonce; violations."""
        found, logged = [], launch.reached()
        self.begun = max(self.begun, logged)
        segment = check.segment(launch.run)
        if segment:
            name, first = segment
            if name not in self.segments:
                if self.segments and not self.elsewhere:
                    why = [line.strip() for line in launch.said().splitlines() if "under a fresh nonce" in line]
                    found.append(f"an exact replay was due: {why[0] if why else 'a fresh nonce without a word'}")
                self.segments[name] = [first, first]
            self.segments[name][1] = max(self.segments[name][1], logged)
        return found

    def timeout_s(self):
        """For --collective-timeout: no rank that works takes so long, however slow the machine is at the moment."""
        return round(min(90, max(8, 2 * self.reference.first_step_s)))

    def wait_for(self, launch, fault, dice):
        """Until the fault is to strike; answers when, in words, and None if the run has ended before."""
        newest = (check.whole_checkpoints(launch.run) or [0])[-1]
        left = jobs.STEPS - newest
        if fault.starting and (left < 2 or dice.random() < 0.25):
            seconds = dice.random() * self.reference.first_step_s
            moment = f"{seconds:.2f} s after the start"
            end = launch.begin + seconds
            while launch.runs() and time.monotonic() < end:
                time.sleep(0.002)
        else:
            step = newest + 1 + dice.randrange(max(1, left - (4 if not fault.starting else 0)))
            later = dice.random() * 0.03
            moment = f"{later * 1000:.0f} ms after step {step}"
            while launch.runs() and launch.reached() == 0:
                time.sleep(0.002)
            if launch.runs():
                self.reference.first_step_s = time.monotonic() - launch.begin  # as fast as the machine is now
            while launch.runs() and launch.reached() < step:
                time.sleep(0.002)
            time.sleep(later)
        return moment if launch.runs() else None

    def struck(self, fault, dice):
        """One start with one fault: its row."""
        begin = time.monotonic()
        before = (check.whole_checkpoints(self.place / "run") or [0])[-1]
        fault.prepare(self, dice)
        self.timeout = self.timeout_s()
        launch = self.launch(("--collective-timeout", str(self.timeout)) if fault.timeout else ())
        found, what, moment = [], None, "by itself"
        try:
            if fault.by_itself:
                what = self.what
            else:
                moment = self.wait_for(launch, fault, dice)
                if moment:
                    logged = launch.reached()
                    seen = [step for step in check.whole_checkpoints(launch.run) if not fault.forced or step < logged]
                    before = max([before] + seen)
                    self.begun = max(self.begun, logged)
                    try:
                        what = fault.strike(self, launch, dice)
                    except machine.NotPossible as reason:
                        moment = f"not possible ({reason})"
            if not launch.wait():
                found.append(f"it still runs {jobs.HANG_S} s later: {self.states(launch)}")
                launch.kill_all()
        except BaseException:
            launch.kill_all()
            raise
        codes = launch.codes()
        found += self.note(launch)
        if fault.by_itself and self.control.get("acted") == 0:
            what = None
        made = launch.reached() > 0
        fault.restore(self)
        if what:
            if fault.goes_on and any(codes):
                found.append(f"exit codes {codes} where the run was to go on: {launch.complaints()[-1:]}")
            found += fault.judge(self, launch, codes, made)
        elif any(codes):
            found.append(f"exit codes {codes} without a fault: {launch.complaints()[-1:]}")
        found += check.after_fault(self.place / "run", self.begun, before)
        return {"fault": fault.name, "what": what, "moment": moment, "codes": codes, "start": self.starts,
                "seconds": round(time.monotonic() - begin, 1), "violations": found}

    @staticmethod
    def states(launch):
        found = []
        for process, rank in launch.processes().items():
            try:
                state = Path(f"/proc/{process}/wchan").read_text() or "running"
            except OSError:
                continue
            found.append(f"process {process} (rank {rank}) in {state}")
        return ", ".join(found)

    def ended(self):
        """The last start, without a fault; violations."""
        before = (check.whole_checkpoints(self.place / "run") or [0])[-1]
        launch = self.launch()
        if not launch.wait():
            states = self.states(launch)
            launch.kill_all()
            return [f"the start without a fault still runs {jobs.HANG_S} s later: {states}"]
        found = self.note(launch)
        if any(launch.codes()):
            return found + [f"the start without a fault ended with {launch.codes()}: {' / '.join(launch.complaints())[-600:]}"]
        if before and f"resumed   after step {before}\n" not in launch.said():
            found.append(f"it did not continue from the checkpoint of step {before}")
        return found

    def judged(self):
        """The finished run against the one that was left alone."""
        if len(self.segments) < 2 and not (self.elsewhere and self.starts > 1):
            return check.at_end(self.reference.outcome, check.Outcome(self.place))
        outcome = check.Outcome(self.place)
        executed = sum(last - first for first, last in self.segments.values())
        poisson = outcome.events and outcome.events[0]["sampler"] == "poisson"
        cost = (lambda steps: self.program.epsilon_of(outcome.events[0], steps)) if poisson else None
        fresh = list(self.segments.values())[1:]
        return check.at_end(self.reference.outcome, outcome, executed, cost, any(last > first for first, last in fresh))

    def close(self, keep):
        """Removes everything, or keeps it where it can be looked at."""
        if keep:
            try:
                shutil.copytree(self.place, self.folder / "kept", symlinks=True, dirs_exist_ok=True)
            except (OSError, shutil.Error) as error:
                print(f"  not all of it could be kept: {str(error)[:200]}", flush=True)
        self.disk.close()
        if self.network:
            self.network.close()
        if not keep:
            shutil.rmtree(self.folder)


class Campaign:
    """Chooses runs and faults, and collects what came of them."""

    def __init__(self, options, program, allowed):
        self.options, self.program, self.allowed = options, program, allowed
        self.references = References(program)
        self.rows, self.kept, self.lock = [], [], threading.Lock()
        self.chosen, self.number, self.begin = collections.Counter(), 0, time.monotonic()
        self.struck_before = {fault.name: 0 for fault in FAULTS}
        self.stopping, self.errors = False, 0
        self.faults = [fault for fault in FAULTS if any(word in fault.name for word in options.only)]
        self.setups = [setup for setup in jobs.SETUPS if any(word in setup.name for word in options.setups)]

    def why_not(self, fault):
        """Why a fault cannot be made here; None if it can."""
        return next((self.allowed[need] for need in fault.needs if self.allowed[need]), None)

    def usable(self, setup):
        return not (setup.transport == "net" and self.allowed["network"]) and not (
            setup.transport == "mpi" and not shutil.which("mpirun"))

    def places(self, fault):
        """The settings in which a fault can strike: setup, disk, shim."""
        disks = [disk for disk in ("plain", "tmpfs", "ext4") if disk == "plain" or not self.allowed[disk]]
        return [(setup, disk, shim) for setup in self.setups if self.usable(setup) for disk in disks
                for shim in ((False, True) if setup.shim and not self.allowed["shim"] else (False,))
                if fault.fits(setup, disk, shim)]

    def choose(self):
        """The next run: the fault that was chosen least, in a setting that was chosen least."""
        with self.lock:
            dice = random.Random(f"{self.options.seed}/{self.number}")
            able = [fault for fault in self.faults if not self.why_not(fault) and self.places(fault)]
            if not able:
                sys.exit("chaos: none of these faults can be made here")
            first = min(able, key=lambda fault: (self.chosen[fault.name], dice.random()))
            # Plain settings are cheaper: each setup with the shim has a reference of its own.
            setting = min(self.places(first), key=lambda place: (
                self.chosen[place[0].name], place[1] != "plain" and not first.disk, place[2] and not first.shim, dice.random()))
            others = [fault for fault in able if fault.fits(*setting)]
            faults = [first] + [dice.choice(others) for _ in range(dice.randrange(MOST_FAULTS))]
            for fault in faults:
                self.chosen[fault.name] += 1
            self.chosen[setting[0].name] += 1
            elsewhere = setting[0].elsewhere if setting[0].elsewhere and dice.random() < 0.2 else None
            self.number += 1
            return self.number, setting, faults, elsewhere, dice

    def one_run(self):
        number, (setup, disk, shim), faults, elsewhere, dice = self.choose()
        reference = self.references.get(setup, shim)
        job = Job(number, self.program, setup, disk, shim, reference, elsewhere)
        rows, keep = [], True
        try:
            for fault in faults:
                rows.append(job.struck(fault, dice))
                if rows[-1]["violations"] or not any(rows[-1]["codes"]):
                    break
            found = [violation for row in rows for violation in row["violations"]]
            if not found:
                # What a run has written last may not be on a disk that is gone, also if the run has ended.
                if any(rows[-1]["codes"]) or any(row["what"] and of.forced for of, row in zip(faults, rows)):
                    found += job.ended()
                if not found:
                    found += job.judged()
                rows[-1]["violations"] = rows[-1]["violations"] + found
            keep = bool(found)
        finally:
            job.close(keep)
        with self.lock:
            for row in rows:
                row.update(job=number, setup=setup.name, disk=disk, shim=shim, elsewhere=bool(elsewhere))
                self.rows.append(row)
                self.tell(row)
            if keep:
                self.kept.append(str(job.folder))
                print(f"  kept: {job.folder}", flush=True)

    def tell(self, row):
        what = row["what"] or "missed: the run had ended"
        print(f"run {row['job']:4} start {row['start']}: {row['setup']}, {row['disk']}{', shim' if row['shim'] else ''}"
              f"{', continued elsewhere' if row['elsewhere'] else ''}: {row['fault']}, {row['moment'] or 'late'}: {what}: "
              f"exit {row['codes']}, {row['seconds']} s", flush=True)
        for violation in row["violations"]:
            print(f"  VIOLATION: {violation}", flush=True)

    def struck(self):
        return sum(1 for row in self.rows if row["what"])

    def goes_on(self):
        enough = self.options.faults and self.struck() >= self.options.faults
        return not self.stopping and not enough and (
            self.number == 0 or time.monotonic() - self.begin < 60 * self.options.minutes)

    def worker(self):
        while self.goes_on():
            try:
                self.one_run()
            except Exception:  # of this program, not of the run
                traceback.print_exc()
                self.errors += 1
            # Other work on the machine goes first.
            used = os.times().children_user + os.times().children_system
            while self.options.load and not self.stopping and used > self.options.load * (time.monotonic() - self.begin):
                time.sleep(0.5)

    def run(self):
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            for done in [pool.submit(self.worker) for _ in range(self.options.jobs)]:
                done.result()

    def summary(self):
        """A row for each kind of fault."""
        table = []
        for fault in FAULTS:
            rows = [row for row in self.rows if row["fault"] == fault.name]
            struck = [row for row in rows if row["what"]]
            why = self.why_not(fault)
            table.append({
                "fault": fault.name, "struck": len(struck),
                "went_on": sum(1 for row in struck if not any(row["codes"])),
                "ended": sum(1 for row in struck if any(row["codes"])),
                "missed": len(rows) - len(struck),
                "violations": sum(len(row["violations"]) for row in rows),
                "not_possible_here": why,
            })
        return table

    def report(self):
        table = self.summary()
        print("\n| fault | times | run went on | run ended, resumed | violations |\n|---|---|---|---|---|")
        for row in table:
            if row["not_possible_here"]:
                print(f"| {row['fault']} | not possible here: {row['not_possible_here']} | | | |")
            elif row["struck"] or row["violations"]:
                print(f"| {row['fault']} | {row['struck']} | {row['went_on']} | {row['ended']} | {row['violations']} |")
        violations = sum(row["violations"] for row in table)
        used, seconds = os.times(), time.monotonic() - self.begin
        if self.errors:
            print(f"chaos: {self.errors} errors of chaos.py itself")
        print(f"chaos: seed {self.options.seed}: {self.struck()} faults in {self.number} runs, {violations} violations, "
              f"{seconds:.0f} s, {used.children_user + used.children_system:.0f} s of processor time", flush=True)
        if self.options.json:
            Path(self.options.json).write_text(json.dumps({
                "seed": self.options.seed, "seconds": seconds, "faults": self.struck(), "runs": self.number,
                "violations": violations, "table": table, "rows": self.rows, "kept": self.kept}, indent=1) + "\n")
        return violations


def self_test(program, allowed):
    """Plants violations in real runs; answers those that were not found."""
    setup = jobs.SETUPS[0]
    reference = References(program).get(setup, False)
    whole = program.folder / "references" / setup.name / "disk"
    missed = []

    def planted(name, plant, marks, look):
        place = program.folder / f"planted_{len(list(program.folder.iterdir()))}"
        shutil.copytree(whole, place)
        plant(place)
        found = look(place)
        caught = any(marks in violation for violation in found)
        print(f"planted: {name}: {'found: ' + found[0] if caught else 'NOT FOUND, but ' + str(found)}", flush=True)
        if not caught:
            missed.append(name)

    def at_end(place):
        return check.at_end(reference.outcome, check.Outcome(place))

    def edit(path, change):
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    def flip(path):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)

    newest = f"step_{jobs.STEPS:08}"
    if at_end(whole):
        missed.append(f"a sound run is refused: {at_end(whole)}")
    planted("one bit of the weights", lambda place: flip(place / "model/model.safetensors"), "weights", at_end)
    planted("a smaller epsilon", lambda place: edit(place / "model/privacy.json", lambda it: it.update(
        epsilon=it["epsilon"] * 0.999)), "epsilon", at_end)
    planted("a step that the ledger does not count", lambda place: edit(
        place / "run/ledger.json", lambda it: it["events"][0].update(last_step=jobs.STEPS - 1)), "the ledger counts", at_end)
    planted("a ledger that is behind the run", lambda place: edit(
        place / "run/ledger.json", lambda it: it["events"][0].update(last_step=7)), "the ledger counts to step 7",
        lambda place: check.after_fault(place / "run", 8, 0))
    planted("no ledger", lambda place: (place / "run/ledger.json").unlink(), "no ledger",
            lambda place: check.after_fault(place / "run", 8, 0))
    planted("a step that is not in the metrics", lambda place: (place / "run/metrics.jsonl").write_text("".join(
        line for line in (place / "run/metrics.jsonl").read_text().splitlines(True) if '"step":5,' not in line)),
        "missing: [5]", at_end)
    planted("a temporary file", lambda place: (place / "run/ledger.json.77.0.tmp").touch(), "left over", at_end)
    planted("a checkpoint too many", lambda place: shutil.copytree(
        place / f"run/checkpoints/{newest}", place / "run/checkpoints/step_00000001"), "left over", at_end)
    planted("one bit of a checkpoint", lambda place: flip(place / f"run/checkpoints/{newest}/rank_00000.safetensors"),
            "not as it was written", lambda place: check.after_fault(place / "run", 8, 0))
    planted("a checkpoint that is gone", lambda place: shutil.rmtree(place / f"run/checkpoints/{newest}"), "is gone",
            lambda place: check.after_fault(place / "run", 8, jobs.STEPS))
    planted("a fresh nonce, and the lost steps are not counted", lambda place: flip(place / "model/model.safetensors"),
            "were made", lambda place: check.at_end(reference.outcome, check.Outcome(place), jobs.STEPS + 3))
    def faulty(name, disk, fault, **numbers):
        """The whole way: a program that the shim makes faulty, and that is killed."""
        job = Job(len(missed), program, setup, disk, True, Reference(reference.outcome, 1, 1), None)
        try:
            job.control.set(**numbers)
            launch = job.launch()
            while launch.runs() and launch.reached() < 8:
                time.sleep(0.002)
            job.note(launch)
            newest = [step for step in check.whole_checkpoints(launch.run) if step < job.begun]
            fault(job, launch)
            found = check.after_fault(launch.run, job.begun, newest[-1])
        finally:
            job.close(False)
        print(f"planted: {name}: {'found: ' + found[0] if found else 'NOT FOUND'}", flush=True)
        if not found:
            missed.append(name)

    def power_cut(job, launch):
        job.disk.cut_power()
        launch.kill_all()
        job.disk.restore()

    if not allowed["shim"]:
        faulty("a program that does not write its ledger", "plain", lambda job, launch: launch.kill_all(), skip_ledger=1)
        if not allowed["power"]:
            faulty("a program that forces nothing to disk", "ext4", power_cut, skip_sync=1)
    return missed


def built_shim(folder):
    """The library, and None or why it cannot be."""
    path = folder / "shim.so"
    try:
        machine.called(os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", str(path),
                       str(ROOT / "tests" / "chaos" / "shim.c"), "-ldl")
    except machine.NotPossible as reason:
        return path, str(reason)
    return path, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--veil", default=str(ROOT / "build" / "veil"), help="the program")
    parser.add_argument("--minutes", type=float, default=3, help="no run begins later than this (default 3)")
    parser.add_argument("--faults", type=int, default=0, help="end after so many")
    parser.add_argument("--seed", type=int, default=None, help="of runs, faults and moments; drawn and printed if not given")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once (default 2)")
    parser.add_argument("--load", type=float, default=0, help="cores to use at most, on average; 0: any number")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="faults whose names contain one of these")
    parser.add_argument("--setups", nargs="+", default=[""], metavar="WORD", help="runs whose names contain one of these")
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON")
    parser.add_argument("--folder", help="where runs are kept while they are tested (default: a new temporary folder)")
    parser.add_argument("--self-test", action="store_true", help="plant violations and look whether they are found")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 31)
    if not os.access(options.veil, os.X_OK):
        sys.exit(f"chaos: {options.veil} is no program: run `make program` first")
    machine.enter_own_mounts()
    folder = Path(tempfile.mkdtemp(prefix="veil_chaos_", dir=options.folder)).resolve()
    shim, why_no_shim = built_shim(folder)
    program = jobs.Program(Path(options.veil).resolve(), ROOT / "examples" / "text", folder, shim)
    allowed = machine.possible(folder)
    allowed["shim"] = why_no_shim
    if options.self_test:
        missed = self_test(program, allowed)
        shutil.rmtree(folder)
        print(f"chaos: self-test: {'all planted violations were found' if not missed else 'NOT FOUND: ' + ', '.join(missed)}")
        sys.exit(1 if missed else 0)
    campaign = Campaign(options, program, allowed)

    def stop(number, frame):
        campaign.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    print(f"chaos: seed {options.seed}, {options.minutes:g} minutes, {folder}", flush=True)
    campaign.run()
    violations = campaign.report()
    if not campaign.kept:
        shutil.rmtree(folder)
    if campaign.struck() == 0:
        sys.exit("chaos: no fault was made")
    sys.exit(1 if violations or campaign.errors else 0)


if __name__ == "__main__":
    main()
