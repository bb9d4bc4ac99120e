"""Disks and networks that can be broken: small file systems in a mount namespace of our own, ranks in network namespaces."""
import ctypes
import errno
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
MS_REMOUNT = 32
EXT4_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
PR_SET_PDEATHSIG = 1
NO_LOG_FLUSH = 2  # what was not forced to disk is lost, as when the power is cut
DISK_BYTES = 64 << 20


class NotPossible(Exception):
    """A fault that this machine does not allow, with the reason."""


def called(*words):
    """Runs a command; NotPossible with its last line if it fails or is absent."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except FileNotFoundError:
        raise NotPossible(f"{words[0]} is not installed") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        what = words[4:6] if words[0] == "nsenter" else words[:2]
        raise NotPossible(f"{' '.join(what)}: {said[-1] if said else done.returncode}")
    return done.stdout


def enter_own_mounts():
    """Starts this program again in a mount namespace: its mounts end with it, however it ends."""
    if os.geteuid() != 0 or os.environ.get("VEIL_CHAOS_MOUNTS") or not shutil.which("unshare"):
        return
    words = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run(words + ["true"], capture_output=True).returncode == 0:
        os.environ["VEIL_CHAOS_MOUNTS"] = "1"
        os.execvp("unshare", words + [sys.executable] + sys.argv)


def end_with_parent():
    """In a child, before its program starts: it is killed when the thread that made it ends, however that ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def mount(source, place, kind, flags, options):
    if LIBC.mount(source.encode(), str(place).encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class PlainDisk:
    """A folder."""

    def __init__(self, place):
        self.place = place
        place.mkdir(parents=True)

    def fill(self, left):
        raise NotPossible("only a small disk is filled")

    def restore(self):
        pass

    def close(self):
        pass


class SmallDisk(PlainDisk):
    """A file system of its own. kind: tmpfs, or ext4 in a file."""

    def __init__(self, place, kind):
        super().__init__(place)
        if not os.environ.get("VEIL_CHAOS_MOUNTS"):
            raise NotPossible("mounting needs root and a mount namespace")
        self.kind, self.image = kind, place.with_suffix(".img")
        if kind == "ext4":
            with open(self.image, "wb") as file:
                file.truncate(DISK_BYTES)
            called("mkfs.ext4", "-q", "-F", "-m", "0", str(self.image))
        self.mount()

    def mount(self):
        if self.kind == "ext4":
            # It forces nothing to disk by itself, so that a power cut finds what the program has not forced.
            called("mount", "-o", "loop,commit=600", str(self.image), str(self.place))
        else:
            called("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "veil-chaos", str(self.place))

    def fill(self, left):
        """Leaves so many bytes, in a file that restore() removes."""
        with open(self.place / "filler", "ab") as file:
            for _ in range(100):  # the run takes space meanwhile
                facts = os.statvfs(self.place)
                take = facts.f_bavail * facts.f_frsize - left
                try:
                    if take > 0:
                        os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, take)
                    return
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def read_only(self, synced):
        """As ext4 does after an error of the disk: at once, whatever is open for writing. A plain remount would wait for
        the program to close its files. Unless it is synced before, what was not forced to disk is lost."""
        if synced:
            place = os.open(self.place, os.O_RDONLY)
            LIBC.syncfs(place)
            os.close(place)
        try:
            mount(self.device(), self.place, "ext4", MS_REMOUNT, "abort")
        except OSError as error:
            raise NotPossible(f"remount: {error.strerror}") from None

    def device(self):
        place = str(self.place)
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        return next(words[0] for words in mounts if words[1] == place)

    def cut_power(self):
        """Nothing reaches the disk any more, and what was not forced to it is lost."""
        place = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(place, EXT4_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(place)

    def restore(self):
        """As a person does: free space, mounted again for writing. No process may use it."""
        if self.kind == "ext4":
            self.unmount()
            # Exit code 1: errors were corrected. The journal is replayed by it.
            done = subprocess.run(["fsck.ext4", "-p", str(self.image)], capture_output=True, text=True)
            if done.returncode > 1:
                raise RuntimeError(f"fsck: {done.stdout}{done.stderr}")
            self.mount()
        else:
            mount("veil-chaos", self.place, "tmpfs", MS_REMOUNT, f"size={DISK_BYTES}")
        (self.place / "filler").unlink(missing_ok=True)

    def unmount(self):
        for _ in range(200):  # who has ended may hold it for a moment
            if LIBC.umount2(str(self.place).encode(), 0) == 0:
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.place} stays busy")

    def close(self):
        try:
            self.unmount()
        except RuntimeError:
            LIBC.umount2(str(self.place).encode(), 2)  # detached: it goes when nobody uses it any more
        self.image.unlink(missing_ok=True)


def make_disk(place, kind):
    return PlainDisk(place) if kind == "plain" else SmallDisk(place, kind)


class Network:
    """Two machines, as the network sees it: namespaces that a cable connects. They end with their processes."""

    ADDRESSES = ("10.213.0.1", "10.213.0.2")

    def __init__(self):
        if os.geteuid() != 0:
            raise NotPossible("network namespaces need root")
        self.holders = []
        try:
            for _ in self.ADDRESSES:
                holder = subprocess.Popen(
                    ["unshare", "--net", "sh", "-c", "ip link set lo up && echo ready && exec sleep infinity"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    preexec_fn=end_with_parent)
                self.holders.append(holder)
                if holder.stdout.readline() != "ready\n":
                    raise NotPossible("unshare --net: " + holder.stderr.read().strip())
            first, second = (str(holder.pid) for holder in self.holders)
            called("nsenter", "-t", first, "-n", "ip", "link", "add", "cable0", "type", "veth", "peer", "name", "cable1")
            called("nsenter", "-t", first, "-n", "ip", "link", "set", "cable1", "netns", second)
            for rank, address in enumerate(self.ADDRESSES):
                self.ip(rank, "address", "add", f"{address}/24", "dev", f"cable{rank}")
                self.ip(rank, "link", "set", f"cable{rank}", "up")
        except FileNotFoundError as error:
            self.close()
            raise NotPossible(f"{error.filename} is not installed") from None
        except NotPossible:
            self.close()
            raise

    def inside(self, rank):
        """The words before a command that runs on this machine."""
        return ["nsenter", "-t", str(self.holders[rank].pid), "-n"]

    def ip(self, rank, *words):
        called(*self.inside(rank), "ip", *words)

    def cut(self):
        self.ip(1, "link", "set", "cable1", "down")

    def lose_packets(self):
        called(*self.inside(1), "tc", "qdisc", "add", "dev", "cable1", "root", "netem", "loss", "20%")

    def close_connections(self):
        called(*self.inside(1), "ss", "-K", "dst", self.ADDRESSES[0])

    def restore(self):
        self.ip(1, "link", "set", "cable1", "up")
        subprocess.run(self.inside(1) + ["tc", "qdisc", "del", "dev", "cable1", "root"], capture_output=True)

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()
            holder.stdout.close()
            holder.stderr.close()


def probe(make, use=lambda made: None):
    """Why it cannot be, None if it can."""
    made = None
    try:
        made = make()
        use(made)
    except NotPossible as reason:
        return str(reason)
    except OSError as error:
        return error.strerror
    finally:
        if made is not None:
            made.close()
    return None


def possible(folder):
    """What this machine allows: {"tmpfs": None or why not, ...}."""
    found = {}
    with tempfile.TemporaryDirectory(dir=folder, prefix="probe_") as place:
        where = Path(place)
        found["tmpfs"] = probe(lambda: SmallDisk(where / "tmpfs", "tmpfs"))
        found["ext4"] = probe(lambda: SmallDisk(where / "ext4", "ext4"))
        found["power"] = found["ext4"] or probe(
            lambda: SmallDisk(where / "power", "ext4"), lambda disk: (disk.cut_power(), disk.restore()))
        found["abort"] = found["ext4"] or probe(
            lambda: SmallDisk(where / "abort", "ext4"), lambda disk: (disk.read_only(False), disk.restore()))
    found["network"] = probe(Network)
    found["netem"] = found["network"] or probe(Network, lambda network: network.lose_packets())
    found["close"] = found["network"] or probe(Network, lambda network: network.close_connections())
    return found
