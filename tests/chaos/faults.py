"""The faults: when each strikes, what it does to a run, and how the run may end."""
import signal
import time

import check
import job as jobs

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGINT)


class Fault:
    """One kind of fault.

    needs: what the machine must allow (machine.possible). disk, shim, ranks, transports: of the runs that it fits.
    """

    needs, disk, shim, ranks, transports = (), None, None, (1, 2), ("one", "mpi", "tcp", "net")
    starting = True  # it may strike before the first step
    timeout = False  # --collective-timeout is short
    by_itself = False  # the shim makes it, so there is no moment to wait for
    goes_on = False  # the run does not notice, or ends as if nothing had been
    forced = False  # what is not forced to disk may be lost

    def __init__(self, name):
        self.name = name

    def fits(self, setup, disk, shim):
        return ((self.disk is None or disk in self.disk) and (self.shim is None or shim == self.shim)
                and setup.ranks in self.ranks and setup.transport in self.transports)

    def prepare(self, job, random):
        """Before the start."""

    def strike(self, job, launch, random):
        """Answers what it did, in words."""
        raise NotImplementedError

    def restore(self, job):
        """After all processes have ended."""

    def judge(self, job, launch, codes, made):
        """Violations in how the run ended. `made`: whether this start has made a step."""
        return []


def expect(codes, allowed, what):
    return [] if all(code in allowed for code in codes) else [f"exit codes {codes} after {what}, allowed: {sorted(allowed)}"]


def one_line(launch, most=2):
    """What a run says that ends with an error: few lines, each with the program's name, and no internal error."""
    lines = [line for line in launch.complaints() if "waiting for rank" not in line]
    if not lines:
        return ["it failed without a word"]
    wrong = [line for line in lines if not line.startswith("veil: ") or "internal error" in line]
    if wrong:
        return [f"it says: {wrong[0][:300]}"]
    most *= len(launch.children)
    return [f"{len(lines)} lines: {' / '.join(lines)[:400]}"] if len(lines) > most else []


def failed(launch, codes, allowed, what):
    found = expect(codes, allowed | {0}, what)
    return found + (one_line(launch) if any(code in (1, 2) for code in codes) else [])


def alone(launch, made):
    """How a rank on a machine of its own ends if rank 0 was gone before it listened: nobody answers there, as with a wrong
    address."""
    return {2} if launch.setup.transport == "net" and not made else set()


class KillAll(Fault):
    def strike(self, job, launch, random):
        launch.kill_all()
        return "all processes"


class KillLauncher(Fault):
    ranks, transports = (2,), ("mpi", "tcp")

    def strike(self, job, launch, random):
        launch.children[0].kill()
        return "the launcher"


class KillRank(Fault):
    ranks = (2,)

    def strike(self, job, launch, random):
        rank = random.randrange(2)
        return f"rank {rank}" if launch.send(signal.SIGKILL, launch.process_of(rank)) else None

    def judge(self, job, launch, codes, made):
        return failed(launch, codes, {1, 137} | alone(launch, made), self.name)


class StopSignal(Fault):
    def strike(self, job, launch, random):
        number = random.choice(SIGNALS)
        target = random.randrange(-1, launch.setup.ranks)
        if target < 0 and launch.setup.transport == "net":
            target = 0
        process = launch.children[0].pid if target < 0 or launch.setup.ranks == 1 else launch.process_of(target)
        if not launch.send(number, process):
            return None
        return f"{number.name} to {'the launcher' if target < 0 else f'rank {target}'}"

    def judge(self, job, launch, codes, made):
        # Before the program hears signals they end it as they end any other.
        early = set() if made else {128 + number for number in SIGNALS} | {1} | alone(launch, made)
        found = expect(codes, {0, 4} | early, self.name)
        if 4 in codes and made:
            steps, logged = check.whole_checkpoints(launch.run), check.logged_steps(launch.run)
            if not steps or steps[-1] != logged[-1]:
                found.append(f"stopped after step {logged[-1]} with exit code 4, the newest checkpoint is {steps[-1:]}")
        return found


class HungRank(Fault):
    ranks, starting, timeout = (2,), False, True

    def strike(self, job, launch, random):
        rank = random.randrange(2)
        process = launch.process_of(rank)
        if not launch.send(signal.SIGSTOP, process):
            return None
        if launch.setup.transport == "net":  # its launcher, which is this program, ends it
            other = launch.children[1 - rank]
            while other.poll() is None and time.monotonic() < launch.begin + jobs.HANG_S:
                time.sleep(0.02)
            launch.send(signal.SIGKILL, process)
        return f"rank {rank} stopped"

    def judge(self, job, launch, codes, made):
        found = expect(codes, {0, 1, 137}, self.name)
        said = "\n".join(launch.complaints())
        if 0 not in codes and "--collective-timeout" not in said:
            found.append(f"nobody says which rank was waited for: {said[:300]}")
        return found + ([] if 0 in codes else one_line(launch))


class Suspend(Fault):
    goes_on, starting, timeout = True, False, True

    def strike(self, job, launch, random):
        seconds = 1 + 2 * random.random() if launch.setup.ranks == 1 else job.timeout + 3
        launch.send_all(signal.SIGSTOP)
        time.sleep(seconds)
        launch.send_all(signal.SIGCONT)
        return f"for {seconds:.1f} s"


class FullDisk(Fault):
    needs, disk = ("tmpfs",), ("tmpfs", "ext4")

    def strike(self, job, launch, random):
        left = random.choice((0, 0, random.randrange(1 << 16), random.randrange(1 << 20)))
        job.disk.fill(left)
        return f"{left} bytes left"

    def restore(self, job):
        job.disk.restore()

    def judge(self, job, launch, codes, made):
        return failed(launch, codes, {1, 2}, self.name)


class ReadOnly(FullDisk):
    needs, disk, forced, synced = ("abort",), ("ext4",), True, True

    def strike(self, job, launch, random):
        job.disk.read_only(self.synced)
        return "read-only from now on"


class BrokenDisk(ReadOnly):
    synced = False


class PowerCut(Fault):
    needs, disk, forced = ("power",), ("ext4",), True

    def strike(self, job, launch, random):
        job.disk.cut_power()
        launch.kill_all()
        return "power off"

    def restore(self, job):
        job.disk.restore()


class KillAtCall(Fault):
    shim, by_itself, act = True, True, jobs.KILL
    needs = ("shim",)

    def prepare(self, job, random):
        calls = job.control.get("calls")
        length = 1 if self.act == jobs.KILL else random.choice((1, 1, 3, 1 << 40))
        newest = (check.whole_checkpoints(job.place / "run") or [0])[-1]
        expected = max(20, job.reference_calls * (jobs.STEPS - newest + 3) // (jobs.STEPS + 3))
        job.control.set(act=self.act, act_at=calls + 1 + random.randrange(expected), act_for=length, acted=0)
        text = "one call" if length == 1 else f"{length} calls" if length < 100 else "all calls"
        job.what = f"{text}, from number {job.control.get('act_at') - calls} on"

    def restore(self, job):
        job.control.set(act_at=0)

    def judge(self, job, launch, codes, made):
        return failed(launch, codes, {1, 2, 137}, self.name)


class ErrorAtCall(KillAtCall):
    act = jobs.INPUT_OUTPUT_ERROR

    def judge(self, job, launch, codes, made):
        return failed(launch, codes, {1, 2}, self.name)


class NoSpaceAtCall(ErrorAtCall):
    act = jobs.NO_SPACE


class SlowDisk(Fault):
    shim, goes_on, needs = True, True, ("shim",)

    def strike(self, job, launch, random):
        delay = random.choice((2000, 10000, 30000))
        job.control.set(delay_us=delay)
        return f"{delay / 1000:.0f} ms per call"

    def restore(self, job):
        job.control.set(delay_us=0)


class SlowDiskKill(SlowDisk):
    goes_on = False

    def strike(self, job, launch, random):
        what = super().strike(job, launch, random)
        time.sleep(random.random())
        launch.kill_all()
        return what + ", then killed"


class ClockJump(Fault):
    shim, goes_on, needs = True, True, ("shim",)

    def strike(self, job, launch, random):
        jumps = [random.choice((-1, 1)) * random.choice((1, 61, 3600, 86400, 10**7, 10**9)) for _ in range(3)]
        for jump in jumps:
            job.control.set(clock_s=jump)
            time.sleep(0.05)
        return f"by {jumps} s"


class ClockJumpKill(ClockJump):
    """The clock stays where it is in the next start."""

    goes_on = False

    def strike(self, job, launch, random):
        what = super().strike(job, launch, random)
        launch.kill_all()
        return what + ", then killed"


class NetworkCut(Fault):
    needs, transports, starting, timeout = ("network",), ("net",), False, True

    def strike(self, job, launch, random):
        job.network.cut()
        return "cable out"

    def restore(self, job):
        job.network.restore()

    def judge(self, job, launch, codes, made):
        return failed(launch, codes, {1}, self.name)


class NetworkFlap(NetworkCut):
    goes_on, timeout = True, False

    def strike(self, job, launch, random):
        seconds = 0.1 + 2 * random.random()
        job.network.cut()
        time.sleep(seconds)
        job.network.restore()
        return f"cable out for {seconds:.1f} s"


class ConnectionsClosed(NetworkCut):
    needs = ("close",)

    def strike(self, job, launch, random):
        job.network.close_connections()
        return "sockets destroyed"


class PacketLoss(NetworkCut):
    needs, goes_on, timeout = ("netem",), True, False

    def strike(self, job, launch, random):
        job.network.lose_packets()
        return "20 % of all packets"


FAULTS = [
    KillAll("SIGKILL, all processes"),
    KillLauncher("SIGKILL, the launcher"),
    KillRank("SIGKILL, one rank"),
    StopSignal("stop signal"),
    HungRank("SIGSTOP, one rank"),
    Suspend("SIGSTOP and SIGCONT, all"),
    FullDisk("full disk"),
    ReadOnly("read-only remount"),
    BrokenDisk("read-only, caches lost"),
    PowerCut("power cut (ext4)"),
    KillAtCall("SIGKILL inside a write"),
    ErrorAtCall("EIO"),
    NoSpaceAtCall("ENOSPC"),
    SlowDisk("slow disk"),
    SlowDiskKill("slow disk, then SIGKILL"),
    ClockJump("clock jump"),
    ClockJumpKill("clock jump, then SIGKILL"),
    NetworkCut("network cut"),
    NetworkFlap("network cut and back"),
    ConnectionsClosed("connections closed"),
    PacketLoss("packet loss (netem)"),
]
