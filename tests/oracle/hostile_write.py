#!/usr/bin/env python3
"""Mounts copies of hostile and malformed files read-write and changes everything in them.

    tests/oracle/hostile_write.py --bin PATH/TO/h5dir [-j N] [-k WORD] [FILE...]

For each file of hostile.py: the mount is refused cleanly, or up to 120 of its files and directories are written to,
cut, grown, punched, given and bereft of attributes, linked, renamed, exchanged, unlinked and removed, synced, and unmounted.
The daemon must be alive until then and end cleanly, in 5 s of CPU time (60 for chunks of a GiB) and 256 MiB, its log without
a panic; errors are errnos that such a call may give; nothing beside the copy exists or differs afterwards, the journal neither; and a file that could
be mounted read-write can be mounted so again.

The last line is "N passed, N failed".
"""
import contextlib, ctypes, errno, hashlib, json, os, shutil, stat, subprocess, sys, tempfile

from hostile_common import SECRETS, Count, arguments, files, served, work

CPU_SECONDS, NODES, NAMES = 5.0, 120, 60
GROWN_MAX = 64 << 20  # most bytes that the copy may have more on the disk
# Their chunks have a GiB, which each of three commits encodes: 11 s, twice that while other programs use the machine's memory.
LARGE_CHUNKS = {"chunkbomb.h5", "deflate_1g_shuffled.h5", "deflate_cut.h5"}
# What no call may answer: the daemon is gone, or has nothing to say.
IMPOSSIBLE = {errno.ENOTCONN, errno.ECONNABORTED, errno.ENOSYS, errno.EBADF, errno.EFAULT, errno.EBUSY, errno.ENODEV, errno.ETIMEDOUT, errno.EINTR}
KEEP, PUNCH, ZERO, NOREPLACE, EXCHANGE = 1, 2, 16, 1, 2
libc = ctypes.CDLL(None, use_errno=True)


def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


def renameat2(a, b, flags):
    if libc.renameat2(-100, a, -100, b, flags):
        raise OSError(ctypes.get_errno(), "renameat2")


# ---------------------------------------------------------------- the work, in a process of its own
class Work:
    def __init__(self, root):
        self.root, self.done, self.errors, self.wrong = os.fsencode(root), {}, {}, []
        self.found = []

    def attempt(self, f, *args, **kwargs):
        what = getattr(f, "__name__", str(f))
        try:
            result = f(*args, **kwargs)
        except OSError as e:
            name = errno.errorcode.get(e.errno, str(e.errno))
            key = f"{what} {name}"
            self.errors[key] = self.errors.get(key, 0) + 1
            if e.errno in IMPOSSIBLE and not (what in ("rmdir", "rename", "renameat2") and e.errno == errno.EBUSY):
                self.bad(f"{what} {args}: {name}")
            return None
        except ValueError:
            return None
        self.done[what] = self.done.get(what, 0) + 1
        return True if result is None else result

    def bad(self, text):
        if len(self.wrong) < 5:
            self.wrong.append(text[:250])

    def survey(self):
        todo = [(self.root, 0)]
        while todo and len(self.found) < NODES:
            directory, depth = todo.pop(0)
            for name in (self.attempt(os.listdir, directory) or [])[:NAMES]:
                p = directory + b"/" + name
                st = self.attempt(os.lstat, p)
                if st is None or len(self.found) >= NODES:
                    continue
                self.found.append((p, st.st_mode, st.st_size))
                if stat.S_ISDIR(st.st_mode) and depth < 12:
                    todo.append((p, depth + 1))

    def file(self, p, size, number):
        fd = self.attempt(os.open, p, os.O_RDWR)
        if fd is None:
            return
        text = bytes((number * 7 + i) % 251 for i in range(200))
        for at in (0, size // 2, max(0, size - 100)):
            if self.attempt(os.pwrite, fd, text, at) == len(text):
                # What was written is read, or refused: elements without fixed size are made from the whole.
                got = self.attempt(os.pread, fd, len(text), at)
                if got not in (None, text) and at + len(text) <= size and self.attempt(os.getxattr, p, b"user.h5dir.exact") is None:
                    self.bad(f"{p}: not what was written at {at}: {got[:20]}")
        if number % 4 == 0 and size < 1 << 24:
            self.attempt(os.ftruncate, fd, size // 2)
            self.attempt(os.ftruncate, fd, size + 1000)
        self.attempt(fallocate, fd, KEEP, 0, min(size, 4096) + 1)
        self.attempt(fallocate, fd, PUNCH | KEEP, size // 3, 3000)
        self.attempt(fallocate, fd, ZERO, 0, min(size, 3000) + 1)
        self.attempt(os.fsync, fd)
        self.attempt(os.close, fd)
        if number % 4 == 1:
            self.attempt(os.truncate, p, 0)

    def facts(self, p, number):
        names = [k for k in (self.attempt(os.listxattr, p, follow_symlinks=False) or []) if not k.startswith("user.h5dir.")]
        self.attempt(os.setxattr, p, b"user.zz new", b"text", follow_symlinks=False)
        for k in names[:6]:
            self.attempt(os.setxattr, p, k, b"1", follow_symlinks=False)
        for k in names[:2] + ["user.zz new", "user.not there"]:
            self.attempt(os.removexattr, p, k, follow_symlinks=False)
        fact = [("shape", "[7]"), ("dtype", '"<f4"'), ("chunks", "[16]"), ("filters", "[]"), ("fillvalue", "3"), ("maxshape", "[null]")][number % 6]
        if number % 3 == 0:
            self.attempt(os.setxattr, p, "user.h5dir." + fact[0], fact[1].encode(), follow_symlinks=False)
        self.attempt(os.utime, p, (1, 10**9), follow_symlinks=False)

    def directory(self, p):
        f = p + b"/zz file"
        fd = self.attempt(os.open, f, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        if fd is not None:
            self.attempt(os.write, fd, b"0123456789" * 700)
            self.attempt(os.fsync, fd)
            self.attempt(os.close, fd)
        self.attempt(os.mkdir, p + b"/zz dir")
        self.attempt(os.symlink, b"zz file", p + b"/zz soft")
        self.attempt(os.symlink, b"../" * 40 + b"etc/passwd", p + b"/zz out")
        self.attempt(os.link, f, p + b"/zz dir/zz hard")
        self.attempt(os.rename, f, p + b"/zz dir/zz moved")
        self.attempt(os.rmdir, p + b"/zz dir")
        self.attempt(os.unlink, p + b"/zz dir/zz hard")

    def names(self):
        for i, (p, mode, _) in enumerate(self.found):
            if i % 3 == 0:
                self.attempt(os.rename, p, p + b"~")
            elif i % 3 == 1 and i + 1 < len(self.found):
                self.attempt(renameat2, p, self.found[i + 1][0], EXCHANGE)
            elif i % 5 == 2:
                self.attempt(renameat2, p, self.root + b"/zz taken%d" % i, NOREPLACE)
        for i, (p, mode, _) in enumerate(reversed(self.found)):
            if i % 2 == 0:
                for q in (p, p + b"~"):
                    self.attempt(os.rmdir if stat.S_ISDIR(mode) else os.unlink, q)

    def views(self):
        for view in ("attrs", "exact", "chunks", "npy"):
            base = self.root + b"/.h5dir/" + view.encode()
            for name in (self.attempt(os.listdir, base) or [])[:5]:
                fd = self.attempt(os.open, base + b"/" + name, os.O_WRONLY)
                if fd is not None:
                    self.attempt(os.write, fd, b"{}\n")
                    self.attempt(os.close, fd)
            fd = self.attempt(os.open, base + b"/zz.npy", os.O_WRONLY | os.O_CREAT)
            if fd is not None:
                self.attempt(os.write, fd, b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', 'fortran_order': True, 'shape': (99999999999,)}")
                self.attempt(os.close, fd)

    def run(self):
        self.survey()
        for i, (p, mode, size) in enumerate(self.found):
            self.facts(p, i)
            if stat.S_ISREG(mode):
                self.file(p, size, i)
            elif stat.S_ISDIR(mode) and i < 60:
                self.directory(p)
        self.directory(self.root)
        self.views()
        self.names()
        fd = os.open(self.root, os.O_RDONLY)
        self.attempt(os.fsync, fd)
        os.close(fd)


def worker(mnt):
    w = Work(mnt)
    w.run()
    json.dump({"wrong": w.wrong, "errors": w.errors, "done": w.done}, sys.stdout)


# ---------------------------------------------------------------- one file
def fingerprint(folder, without):
    """Everything in `folder` but one file."""
    out = {}
    for at, names, files in os.walk(folder):
        for name in names + files:
            p = os.path.join(at, name)
            st = os.lstat(p)
            if p == without:
                continue
            content = b""
            if stat.S_ISREG(st.st_mode):
                with open(p, "rb") as f:
                    content = hashlib.file_digest(f, "sha256").digest()
            out[p] = (st.st_mode, st.st_size if content else 0, content)
    return out


def judge(path, o):
    """-> what is wrong (a list), what was measured"""
    wrong, seen = [], {"cpu": 0.0, "mib": 0.0, "state": "refused", "done": {}, "errors": {}}
    place = tempfile.mkdtemp(prefix="h5hostile-rw-", dir=o.place)
    folder = os.path.join(place, "folder")
    os.mkdir(folder)
    copy = os.path.join(folder, "copy.h5")
    # Some have holes of terabytes.
    subprocess.run(["cp", "--sparse=always", path, copy], check=True)
    os.chmod(copy, 0o600)
    for name in ("secret.bin", "secret.h5"):
        with open(os.path.join(place, name), "wb") as f:
            f.write(SECRETS[0] + SECRETS[1] + bytes(5000))
    for name in ("link.bin", "up", "passwd"):
        os.symlink({"link.bin": "../secret.bin", "up": "..", "passwd": "/etc/passwd"}[name], os.path.join(folder, name))
    before = fingerprint(place, copy)
    size = os.stat(copy).st_blocks * 512
    limit = o.cpu * (12 if os.path.basename(path) in LARGE_CHUNKS else 1)
    if mount(copy, o, limit, wrong, seen, True) and not wrong:
        seen["grown"] = os.stat(copy).st_blocks * 512 - size
        if seen["grown"] > GROWN_MAX:
            wrong.append(f"the file has {seen['grown'] >> 20} MiB more")
        if not mount(copy, o, limit, wrong, seen, False):
            wrong.append(f"no second mount: {seen['log']}")
    if fingerprint(place, copy) != before:
        after = fingerprint(place, copy)
        wrong.append(f"outside: {[p for p in before.keys() | after.keys() if before.get(p) != after.get(p)]}")
    if wrong and o.keep:
        print("kept in", place)
    else:
        shutil.rmtree(place, ignore_errors=True)
    return wrong, seen


def mount(copy, o, limit, wrong, seen, first):
    """One mount, the first with changes; true if there was one."""
    def use(p, mnt):
        with contextlib.suppress(OSError):  # the root group may be what is damaged
            os.listdir(mnt)
        if not first:
            return
        seen["state"] = "served"
        found = work(p, "work", [os.path.abspath(__file__), "--work", mnt], limit, wrong)
        if found:
            said, seen["cpu"], seen["mib"] = found
            seen["done"], seen["errors"] = said.get("done", {}), said.get("errors", {})

    answered, status, log = served(o, copy, ["--read-write", "--cache-size=64M"], wrong, use)
    seen["log"] = log[-300:].decode(errors="replace")
    if not 0 <= status < 100:
        wrong.append(f"the daemon ended with {status}")
    if answered and status:
        wrong.append(f"exit status {status}: {seen['log']}")
    return answered


# ---------------------------------------------------------------- all files
def main():
    o = arguments(__doc__, CPU_SECONDS)
    o.place = tempfile.mkdtemp(prefix="h5dir-hostile-rw-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    count, totals, refusals = Count(o, ("cpu", "mib")), {}, {}

    def note(seen):
        for into, key in ((totals, "done"), (refusals, "errors")):
            for k, n in seen[key].items():
                into[k] = into.get(k, 0) + n

    before = os.stat("/etc/passwd")
    try:
        inputs = os.path.join(o.place, "inputs")
        os.mkdir(inputs)
        count.judge([f for f in files(o, inputs) if os.path.isfile(f)], judge, note)
    finally:
        if not o.keep:
            shutil.rmtree(o.place, ignore_errors=True)
    after = os.stat("/etc/passwd")
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        print("FAIL /etc/passwd was changed")
        count.bad += 1
    changes = sum(n for k, n in totals.items() if k in ("pwrite", "write", "ftruncate", "truncate", "fallocate", "setxattr", "removexattr", "mkdir",
                                                        "symlink", "link", "rename", "renameat2", "unlink", "rmdir", "utime"))
    if o.v:
        print("done:", totals)
        print("refused:", refusals)
    print(f"{count.states['served']} served, {count.states['refused']} refused, {changes} changes done, {sum(refusals.values())} calls refused; "
          f"most CPU {count.most('cpu', 's')}, memory {count.most('mib', 'MiB')}")
    count.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        worker(sys.argv[2])
    else:
        main()
