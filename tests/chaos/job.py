"""A training run that is started again and again, as a person does, until it has ended; and all its processes."""
import json
import os
import re
import signal
import struct
import subprocess
import time
from pathlib import Path

import check

STEPS, EVERY = 30, 3
DELTA, SIGMA = "1e-5", "1"
HANG_S = 900  # of a start that does nothing any more, on the slowest machine

NUMBERS = ("calls", "act_at", "act", "act_for", "delay_us", "clock_s", "skip_ledger", "acted", "skip_sync")
KILL, INPUT_OUTPUT_ERROR, NO_SPACE = 1, 2, 3


class Control:
    """The numbers that tests/chaos/shim.c reads."""

    def __init__(self, path):
        self.path = path
        path.write_bytes(bytes(8 * len(NUMBERS)))

    def set(self, **numbers):
        with open(self.path, "r+b") as file:
            for name, value in numbers.items():
                file.seek(8 * NUMBERS.index(name))
                file.write(struct.pack("q", value))

    def get(self, name):
        return struct.unpack_from("q", self.path.read_bytes(), 8 * NUMBERS.index(name))[0]


class Setup:
    """What is trained and on which ranks. transport: one, mpi, tcp, or net (each rank in its network namespace)."""

    def __init__(self, name, ranks, transport, words, elsewhere=None, shim=False):
        self.name, self.ranks, self.transport, self.words = name, ranks, transport, words
        self.elsewhere = elsewhere  # other words that a resume may have: it is no replay then
        self.shim = shim  # may have it: that needs one more reference


POISSON = ["--sigma", SIGMA]
SETUPS = [
    Setup("poisson", 1, "one", POISSON, elsewhere=["--batch-size", "4"], shim=True),
    Setup("secure", 1, "one", POISSON + ["--rng", "secure", "--ema", "0.9"]),
    Setup("shuffled", 1, "one", ["--sigma", "4", "--sampler", "shuffled"]),
    Setup("adaptive", 1, "one", POISSON + ["--clip", "adaptive"], shim=True),
    Setup("lora", 1, "one", POISSON + ["--lora", "2"]),
    Setup("zero3 mpi", 2, "mpi", POISSON + ["--strategy", "zero3"], elsewhere=["--strategy", "ddp"], shim=True),
    Setup("ddp tcp", 2, "tcp", POISSON + ["--strategy", "ddp"]),
    Setup("shuffled tcp", 2, "tcp", ["--sigma", "4", "--sampler", "shuffled", "--strategy", "zero2"]),
    Setup("zero3 net", 2, "net", POISSON + ["--strategy", "zero3"]),
]


class Program:
    """The program that is tested, and what every run of it shares."""

    def __init__(self, veil, data, folder, shim):
        self.veil, self.data, self.folder, self.shim = veil, data, folder, shim
        self.secret = folder / "secret"
        self.secret.write_text("".join(f"{(31 * i + 5) % 256:02x}" for i in range(32)))
        self.secret.chmod(0o600)
        self.spent = {}

    def words(self, setup, place, more=()):
        words = [str(self.veil), "train", "--model", "llama-tiny", "--from-scratch", "--data", str(self.data)]
        words += ["--seq-length", "16", "--device", "cpu", "--samples", "packed", "--delta", DELTA, "--accountant", "rdp"]
        words += ["--total-batch-size", "8", "--batch-size", "2", "--clip-norm", "0.5", "--evaluation-samples", "4"]
        words += ["--steps", str(STEPS), "--checkpoint-every", str(EVERY), "--secret-file", str(self.secret)]
        words += ["--resume", str(place / "run"), "--export", str(place / "model")] + setup.words
        if setup.ranks > 1 and setup.transport != "net":
            words += ["--ranks", str(setup.ranks)]
        for name, value in zip(more[::2], more[1::2]):
            if name in words:
                words[words.index(name) + 1] = value
            else:
                words += [name, value]
        return words

    def environment(self, setup, place, control):
        known = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "VEIL_CHAOS"))}
        known.update(OMP_NUM_THREADS="1", TMPDIR=str(place.parent))
        if setup.transport in ("tcp", "net"):
            known["PATH"] = "/nowhere"  # no mpirun is found there, so ranks meet over TCP
        if control:
            known.update(LD_PRELOAD=str(self.shim), VEIL_CHAOS_CONTROL=str(control.path), VEIL_CHAOS_FOLDER=str(place))
        return known

    def epsilon_of(self, event, steps):
        """What so many steps of a Poisson-sampled run cost."""
        key = (event["sigma"], event["q"], steps)
        if key not in self.spent:
            words = [str(self.veil), "privacy", "epsilon", "--sigma", repr(event["sigma"]), "--q", repr(event["q"])]
            words += ["--steps", str(steps), "--delta", DELTA, "--accountant", "rdp", "--json"]
            said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            self.spent[key] = json.loads(said)["results"][0]["epsilon"]
        return self.spent[key]


class Launch:
    """One start of a run. Its processes are known by the run's folder in their command lines."""

    def __init__(self, program, setup, place, logs, more=(), control=None, network=None):
        self.veil, self.setup, self.place, self.run = str(program.veil), setup, place, place / "run"
        words, environment = program.words(setup, place, more), program.environment(setup, place, control)
        self.metrics_before = self.metrics_facts()
        self.read_at, self.last = None, 0
        self.first = (check.whole_checkpoints(self.run) or [0])[-1]  # it continues from there
        self.begin = time.monotonic()
        self.children, self.outputs, self.errors, self.notices = [], [], [], set()
        for rank in range(setup.ranks if setup.transport == "net" else 1):
            before, mine = [], dict(environment)
            if setup.transport == "net":
                before = network.inside(rank)
                mine.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_PORT="29513",
                            MASTER_ADDR=network.ADDRESSES[0], VEIL_JOB_TOKEN="0123456789abcdef0123456789abcdef",
                            PATH=os.environ["PATH"])
            out, err = Path(f"{logs}.{rank}.out"), Path(f"{logs}.{rank}.err")
            self.outputs.append(out)
            self.errors.append(err)
            with open(out, "wb") as stdout, open(err, "wb") as stderr:
                self.children.append(subprocess.Popen(before + words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                                      env=mine, cwd=place.parent, start_new_session=True))

    def metrics_facts(self):
        """Its inode and size."""
        try:
            facts = os.stat(self.run / "metrics.jsonl")
            return facts.st_ino, facts.st_size
        except OSError:
            return None, 0

    def reached(self):
        """The last step of this start; 0 before its first. A start makes metrics.jsonl anew."""
        facts = self.metrics_facts()
        if facts[0] in (None, self.metrics_before[0]):
            return self.last
        if facts != self.read_at:
            self.read_at = facts
            steps = check.logged_steps(self.run)
            if steps and steps[-1] > self.first:
                self.last = steps[-1]
        return self.last

    def runs(self):
        return any(child.poll() is None for child in self.children)

    def processes(self):
        """{process: its rank, or None} of those that live."""
        found, mark = {}, os.fsencode(str(self.place / "run"))
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                words = Path("/proc", name, "cmdline").read_bytes()
                if mark not in words:
                    continue
                status = Path("/proc", name, "stat").read_text()
                environment = Path("/proc", name, "environ").read_bytes()
            except OSError:
                continue
            if status.rpartition(")")[2].split()[0] in "ZX":
                continue
            rank = re.search(rb"(?:^|\0)(?:OMPI_COMM_WORLD_RANK|RANK)=(\d+)\0", environment)
            is_rank = rank and words.startswith(os.fsencode(self.veil))
            found[int(name)] = int(rank.group(1)) if is_rank else None
        return found

    def process_of(self, rank):
        """Of a rank; of the whole run if it has only one."""
        if self.setup.ranks == 1:
            return self.children[0].pid
        return next((process for process, found in self.processes().items() if found == rank), None)

    def send(self, number, process):
        try:
            os.kill(process, number)
        except (ProcessLookupError, TypeError):
            return False
        return True

    def send_all(self, number):
        for process in self.processes():
            self.send(number, process)

    def kill_all(self):
        """Until nothing lives any more: a process may start another one meanwhile."""
        for _ in range(2000):
            left = self.processes()
            if not left and not self.runs():
                return
            for process in left:
                self.send(signal.SIGKILL, process)
            for child in self.children:
                if child.poll() is None:
                    child.kill()
            time.sleep(0.005)

    def wait(self, limit=HANG_S):
        """Whether all processes have ended by themselves in time. Those that want to run and may not have more of it."""
        begin = time.monotonic()
        while time.monotonic() < begin + limit or (time.monotonic() < begin + 4 * limit and self.starves()):
            if not self.runs() and not self.processes():
                return True
            time.sleep(0.02)
        return False

    def starves(self):
        """Whether a process could run and waits for a processor."""
        for process in self.processes():
            try:
                if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "R":
                    return True
            except OSError:
                pass
        return False

    def codes(self):
        """As a shell shows them."""
        return [child.returncode if child.returncode >= 0 else 128 - child.returncode for child in self.children]

    def said(self):
        return "".join(path.read_text(errors="replace") for path in self.outputs)

    def complaints(self):
        lines = "".join(path.read_text(errors="replace") for path in self.errors).splitlines()
        return [line for line in lines if line.strip() and line not in self.notices]
