"""What hostile.py and hostile_write.py share: the files, a daemon that is watched, the work of a process in its mount, the count."""
import argparse, contextlib, json, os, signal, socket, subprocess, sys, tempfile, threading, time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
CORPUS = os.environ.get("CORPUS") or os.path.join(TOP, "..", "shared", "corpus")
TOOLS = os.path.join(CORPUS, "..", "tools")
MEMORY_MIB, WALL_SECONDS, LOG_MIB = 256, 60, 4
SECRETS = [b"root:x:0:0:", b"this must never be shown"]


def mounted(mnt):
    with open("/proc/self/mountinfo") as f:
        return any(line.split()[4] == mnt for line in f)


def crowding():
    """CPU time is worth less where more runs than there are cores: shared caches, shared hyper-threads."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def cpu(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM"))


def served(o, path, options, wrong, use):
    """Mounts `path` and lets `use(process, mountpoint)` look. -> whether it was mounted, the exit status, the log"""
    place = os.path.realpath(tempfile.mkdtemp(prefix="h5hostile-"))
    mnt, ready = os.path.join(place, "mnt"), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    os.mkdir(mnt)
    ready.bind(os.path.join(place, "ready"))
    ready.settimeout(0.02)
    with tempfile.TemporaryFile() as log, ready:
        p = subprocess.Popen([o.bin, "mount", "--foreground", *options, path, mnt], cwd=os.path.dirname(path), stdin=subprocess.DEVNULL,
                             stdout=log, stderr=log, start_new_session=True, env={**os.environ, "NOTIFY_SOCKET": ready.getsockname()})
        answers = False
        try:
            # One that is unmounted before it has looked at its mount itself takes it for lost.
            end = time.time() + WALL_SECONDS
            while not answers and p.poll() is None and time.time() < end:
                with contextlib.suppress(TimeoutError):
                    answers = b"READY=1" in ready.recv(4096)
            answers = answers and p.poll() is None
            if answers:
                use(p, mnt)
            elif p.poll() is None:
                wrong.append("mount hangs")
        finally:
            stop(p, mnt, wrong)
        log.seek(0)
        text = log.read()
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(place, "ready"))
        os.rmdir(place)
    if b"panic" in text:
        at = text.index(b"panic")
        wrong.append("log: " + text[max(0, at - 100):at + 300].decode(errors="replace"))
    if len(text) > LOG_MIB << 20:
        wrong.append(f"{len(text) >> 20} MiB of log")
    return answers, p.returncode, text


def stop(p, mnt, wrong):
    for attempt in range(20):
        if not mounted(mnt):
            break
        subprocess.run(["fusermount3", "-u", mnt] + ["-z"] * (attempt > 10), capture_output=True)
        time.sleep(0.05 * bool(attempt))
    try:
        p.wait(20)
    except subprocess.TimeoutExpired:
        wrong.append("the daemon does not end")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(p.pid, signal.SIGKILL)
        p.wait()
    with contextlib.suppress(OSError):
        os.rmdir(mnt)


def work(p, what, command, limit, wrong):
    """Lets `command` work in the mount of the daemon `p`, for which that may take `limit` seconds of CPU time.

    -> what it says (a dictionary; empty if it failed), the seconds, the daemon's most memory; None if the daemon is dead
    """
    before = cpu(p.pid)
    w = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = w.communicate(timeout=WALL_SECONDS)
        failed = w.returncode and f"failed: {err.decode(errors='replace')[-400:]}"
    except subprocess.TimeoutExpired:
        w.kill()
        failed = "hangs"
    if p.poll() is not None:
        wrong.append(f"{what}: the daemon ended with {p.returncode}")
        return None
    seconds, mib = cpu(p.pid) - before, peak_mib(p.pid)
    if seconds > limit * crowding():
        wrong.append(f"{what}: {seconds:.1f} s of CPU time")
    if mib > MEMORY_MIB:
        wrong.append(f"{what}: {mib:.0f} MiB of memory")
    if failed:
        wrong.append(f"{what}: {failed}")
        return {}, seconds, mib
    said = json.loads(out)
    wrong.extend(f"{what}: {x}" for x in said["wrong"])
    return said, seconds, mib


def files(o, folder):
    """Those of the command line, else all: some are made in `folder`."""
    if o.files:
        return [os.path.abspath(f) for f in o.files]
    import hostile_make
    own = os.path.join(folder, "own")
    os.makedirs(own)
    found = hostile_make.make(own)
    tool = os.path.join(TOOLS, "hostile_files.py")
    if os.path.exists(tool):
        run = subprocess.run([sys.executable, os.path.abspath(tool)], cwd=folder, capture_output=True)
        bombs = os.path.join(folder, "bombs")
        found += [os.path.join(bombs, n) for n in sorted(os.listdir(bombs))] if run.returncode == 0 else [tool]
    for at, _, names in sorted(os.walk(os.path.join(CORPUS, "malformed"))):
        found += [os.path.abspath(os.path.join(at, n)) for n in sorted(names)]
    return [f for f in found if o.k in f]


def arguments(description, seconds):
    a = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--bin", required=True)
    a.add_argument("-j", type=int, default=os.cpu_count() or 1)
    a.add_argument("-k", default="", help="only files whose path holds this")
    a.add_argument("-v", action="store_true", help="a line for every file")
    a.add_argument("--cpu", type=float, default=seconds, help="seconds of the daemon's CPU time for each file (more for a debug build)")
    a.add_argument("--keep", action="store_true", help="keep the files")
    a.add_argument("files", nargs="*")
    o = a.parse_args()
    o.bin = os.path.abspath(o.bin)
    return o


class Count:
    """Judges files, several at a time, and counts."""

    def __init__(self, o, most):
        self.o, self.good, self.bad, self.lock = o, 0, 0, threading.Lock()
        self.worst, self.states = {k: [] for k in most}, {"served": 0, "refused": 0}

    def judge(self, paths, judge, note=lambda seen: None):
        """`judge(path, o)` -> what is wrong (a list), what was measured; `note` gets the latter, one at a time."""
        def one(path):
            wrong, seen = judge(path, self.o)
            with self.lock:
                name = os.path.relpath(path, TOP) if path.startswith(os.path.dirname(TOP)) else os.path.basename(path)
                self.good, self.bad = self.good + (not wrong), self.bad + bool(wrong)
                self.states[seen["state"]] += 1
                for k in self.worst:
                    self.worst[k] = sorted([*self.worst[k], (seen[k], name)], reverse=True)[:4]
                note(seen)
                if wrong or self.o.v:
                    brief = {k: v for k, v in seen.items() if k == "state" or isinstance(v, (int, float))}
                    print(f"{'FAIL' if wrong else 'ok  '} {name} {brief} " + "; ".join(wrong), flush=True)

        with ThreadPoolExecutor(self.o.j) as pool:
            list(pool.map(one, paths))

    def most(self, key, unit):
        return ", ".join(f"{value:.2f} {unit} ({name})" for value, name in self.worst[key])

    def finish(self):
        print(f"{self.good} passed, {self.bad} failed")
        sys.exit(bool(self.bad))
