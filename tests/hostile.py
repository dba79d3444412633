#!/usr/bin/env python3
"""Mounts hostile and malformed files and looks at everything in them: the daemon must survive cheaply.

    tests/hostile.py --bin PATH/TO/h5dir [-j N] [-k WORD] [FILE...]

For each file: the mount is refused cleanly, or a walk over its main tree and one over .h5dir each end
within 2 s of the daemon's CPU time; its memory stays below 256 MiB, it is alive afterwards, its log tells
of no panic, errors are the expected errnos, no name is impossible, no byte of /etc/passwd or of a file
outside the folder appears. The files: those of hostile_make.py, those that ../shared/tools/hostile_files.py
writes, and ../shared/corpus/malformed, where these exist (CORPUS names another corpus); or FILE... only.

The last line is "N passed, N failed".
"""
import argparse, contextlib, errno, json, os, shutil, signal, stat, subprocess, sys, tempfile, threading, time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = os.environ.get("CORPUS") or os.path.join(HERE, "..", "..", "shared", "corpus")
TOOLS = os.path.join(CORPUS, "..", "tools")
CPU_SECONDS, MEMORY_MIB, WALL_SECONDS = 2.0, 256, 60
NODES, NAMES, XATTRS = 3000, 2000, 200
SECRETS = [b"root:x:0:0:", b"this must never be shown"]
ERRNOS = {errno.EIO, errno.ENOENT, errno.E2BIG, errno.ENODATA, errno.ENXIO, errno.EACCES, errno.ENAMETOOLONG, errno.ELOOP, errno.EOVERFLOW}


# ---------------------------------------------------------------- the walk, in a process of its own
class Walk:
    def __init__(self):
        self.nodes, self.errors, self.wrong = 0, {}, []

    def attempt(self, what, f, *args, **kwargs):
        try:
            return f(*args, **kwargs)
        except OSError as e:
            name = errno.errorcode.get(e.errno, str(e.errno))
            self.errors[name] = self.errors.get(name, 0) + 1
            if e.errno not in ERRNOS:
                self.bad(f"{what}: {name}")
        except ValueError as e:
            self.bad(f"{what}: {e}")

    def bad(self, text):
        if len(self.wrong) < 5:
            self.wrong.append(text[:200])

    def data(self, what, b):
        for s in SECRETS:
            if b and s in b:
                self.bad(f"{what}: shows what lies outside")

    def one(self, directory, name):
        """Looks at one file; true for a directory."""
        p = directory + b"/" + name
        self.nodes += 1
        if not 0 < len(name) <= 255 or b"/" in name or name in (b".", b".."):
            self.bad(f"name {name!r}")
        st = self.attempt("lstat", os.lstat, p)
        if st is None:
            return False
        for k in (self.attempt("listxattr", os.listxattr, p, follow_symlinks=False) or [])[:XATTRS]:
            self.data(k, self.attempt("getxattr", os.getxattr, p, k, follow_symlinks=False))
        if stat.S_ISLNK(st.st_mode):
            target = self.attempt("readlink", os.readlink, p)
            depth = os.path.dirname(p)[len(self.root):].count(b"/")
            if target is not None and (target.startswith(b"/") or target.split(b"/").count(b"..") > depth):
                self.bad(f"symlink to {target!r}")
        elif stat.S_ISREG(st.st_mode):
            self.read(p, st.st_size)
        return stat.S_ISDIR(st.st_mode)

    def read(self, p, size):
        fd = self.attempt("open", os.open, p, os.O_RDONLY)
        if fd is None:
            return
        for at in {0, size // 2, max(0, size - 65536)}:
            b = self.attempt("read", os.pread, fd, 1 << 20, at)
            self.data("read", b)
            if b is not None and len(b) != min(1 << 20, max(0, size - at)) and size:
                self.bad(f"{len(b)} bytes at {at} of {size}")
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            self.attempt("lseek", os.lseek, fd, 0, whence)
        os.close(fd)

    def survey(self, root):
        self.root = self.root or root
        todo = [(root, 0)]
        while todo and self.nodes < NODES:
            directory, depth = todo.pop()
            names = self.attempt("listdir", os.listdir, directory) or []
            if len(names) != len(set(names)):
                self.bad(f"{directory!r}: a name listed twice")
            for name in names[:NAMES]:
                if self.nodes >= NODES:
                    break
                if self.one(directory, name) and depth < 20:
                    todo.append((directory + b"/" + name, depth + 1))

    def descend(self, root):
        """Down the first directory of each, however deep."""
        fd, depth = os.open(root, os.O_RDONLY), 0
        while depth < 12000:
            names = [n for n in os.listdir(fd)[:100] if stat.S_ISDIR(os.stat(n, dir_fd=fd, follow_symlinks=False).st_mode)]
            if not names:
                break
            below = os.open(names[0], os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd, depth = below, depth + 1
        os.close(fd)

    root = b""


def walker(mnt, view):
    w = Walk()
    if view == "main":
        w.survey(os.fsencode(mnt))
        w.attempt("descend", w.descend, mnt)
    else:
        w.root = os.fsencode(mnt)
        for v in ("attrs", "chunks", "exact", "npy"):
            w.nodes = 0
            w.root = os.fsencode(f"{mnt}/.h5dir/{v}")
            w.survey(w.root)
        with open(f"{mnt}/.h5dir/status", "rb") as f:
            f.read()
    json.dump({"wrong": w.wrong, "errors": w.errors, "nodes": w.nodes}, sys.stdout)


# ---------------------------------------------------------------- one file
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


def judge(path, o):
    """-> what is wrong (a list), what was measured"""
    mnt = os.path.realpath(tempfile.mkdtemp(prefix="h5hostile-"))
    wrong, seen = [], {"cpu": 0.0, "views": 0.0, "mib": 0.0, "state": "refused"}
    with tempfile.TemporaryFile() as log:
        p = subprocess.Popen([o.bin, "mount", "--foreground", path, mnt], cwd=os.path.dirname(path), stdin=subprocess.DEVNULL,
                             stdout=log, stderr=log, start_new_session=True)
        try:
            end = time.time() + WALL_SECONDS
            while not mounted(mnt) and p.poll() is None and time.time() < end:
                time.sleep(0.005)
            if p.poll() is not None:
                if not 0 < p.returncode < 100:
                    wrong.append(f"mount ended with {p.returncode}")
            elif not mounted(mnt):
                wrong.append("mount hangs")
            else:
                look(p, mnt, o, wrong, seen)
        finally:
            stop(p, mnt, wrong)
        log.seek(0)
        text = log.read()
        if b"panic" in text:
            at = text.index(b"panic")
            wrong.append("log: " + text[max(0, at - 100):at + 200].decode(errors="replace"))
        seen["log_kib"] = len(text) >> 10
        if len(text) > 4 << 20:
            wrong.append(f"{len(text) >> 20} MiB of log")
    return wrong, seen


def look(p, mnt, o, wrong, seen):
    seen["state"] = "served"
    for view, key in (("main", "cpu"), ("views", "views")):
        before = cpu(p.pid)
        w = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--walk", mnt, view], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = w.communicate(timeout=WALL_SECONDS)
        except subprocess.TimeoutExpired:
            w.kill()
            wrong.append(f"{view}: hangs")
            out, err = b"{}", b""
        if p.poll() is not None:
            wrong.append(f"{view}: the daemon ended with {p.returncode}")
            return
        seen[key], seen["mib"] = cpu(p.pid) - before, peak_mib(p.pid)
        # The views show everything several times.
        if seen[key] > o.cpu * crowding() * (1 if key == "cpu" else 2):
            wrong.append(f"{view}: {seen[key]:.1f} s of CPU time")
        if w.returncode == 0 and out != b"{}":
            result = json.loads(out)
            wrong.extend(f"{view}: {x}" for x in result["wrong"])
        elif out != b"{}":
            wrong.append(f"{view}: the walk failed: {err.decode(errors='replace')[-300:]}")
    if seen["mib"] > MEMORY_MIB:
        wrong.append(f"{seen['mib']:.0f} MiB of memory")


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


# ---------------------------------------------------------------- all files
def files(o, folder):
    if o.files:
        return [os.path.abspath(f) for f in o.files]
    sys.path.insert(0, HERE)
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


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--bin", required=True)
    a.add_argument("-j", type=int, default=os.cpu_count() or 1)
    a.add_argument("-k", default="", help="only files whose path holds this")
    a.add_argument("-v", action="store_true", help="a line for every file")
    a.add_argument("--cpu", type=float, default=CPU_SECONDS, help="seconds allowed for a walk (more for a debug build)")
    a.add_argument("--keep", action="store_true", help="keep the files made")
    a.add_argument("files", nargs="*")
    o = a.parse_args()
    o.bin = os.path.abspath(o.bin)
    folder = tempfile.mkdtemp(prefix="h5dir-hostile-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    good = bad = 0
    worst = {"cpu": (0, ""), "views": (0, ""), "mib": (0, "")}
    states = {"served": 0, "refused": 0}
    lock = threading.Lock()

    def one(path):
        nonlocal good, bad
        wrong, seen = judge(path, o)
        with lock:
            name = os.path.relpath(path, os.path.dirname(HERE)) if path.startswith(os.path.dirname(os.path.dirname(HERE))) else os.path.basename(path)
            good, bad = good + (not wrong), bad + bool(wrong)
            states[seen["state"]] += 1
            for k in worst:
                worst[k] = max(worst[k], (seen[k], name))
            if wrong or o.v:
                print(f"{'FAIL' if wrong else 'ok  '} {name} {seen} " + "; ".join(wrong), flush=True)

    try:
        all_files = files(o, folder)
        with ThreadPoolExecutor(o.j) as pool:
            list(pool.map(one, all_files))
    finally:
        if o.keep:
            print("files are in", folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{states['served']} served, {states['refused']} refused; most CPU {worst['cpu'][0]:.2f} s ({worst['cpu'][1]}), "
          f"in the views {worst['views'][0]:.2f} s ({worst['views'][1]}), memory {worst['mib'][0]:.0f} MiB ({worst['mib'][1]})")
    print(f"{good} passed, {bad} failed")
    sys.exit(bool(bad))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--walk"]:
        walker(*sys.argv[2:4])
    else:
        main()
