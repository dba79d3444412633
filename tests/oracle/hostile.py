#!/usr/bin/env python3
"""Mounts hostile and malformed files and looks at everything in them: the daemon must survive cheaply.

    tests/oracle/hostile.py --bin PATH/TO/h5dir [-j N] [-k WORD] [FILE...]

For each file: the mount is refused cleanly, or a walk over its main tree and one over .h5dir each end
within 2 s of the daemon's CPU time; its memory stays below 256 MiB, it is alive afterwards, its log tells
of no panic, errors are the expected errnos, no name is impossible, no byte of /etc/passwd or of a file
outside the folder appears. Completion of paths in it has few candidates, soon, and no message. The files: those of hostile_make.py, those that ../shared/tools/hostile_files.py
writes, and ../shared/corpus/malformed, where these exist (CORPUS names another corpus); or FILE... only.

The last line is "N passed, N failed".
"""
import errno, itertools, json, os, resource, shutil, stat, subprocess, sys, tempfile, time

from hostile_common import SECRETS, Count, arguments, crowding, files, served, work

CPU_SECONDS = 2.0
NODES, NAMES, XATTRS = 3000, 2000, 200
VIEWS = ("arrow", "attrs", "chunks", "csv", "exact", "images", "json", "npy", "zarr", "zarr2")
# Names of a directory of a Zarr hierarchy: strings of a chunk may be 64 MiB.
CHUNKS = 16
# Of the text of references.
REFERENCES_BYTES = 64 << 20
# What a completion may take.
COMPLETION_SECONDS, CANDIDATES = 10, 4096
ERRNOS = {errno.EIO, errno.ENOENT, errno.E2BIG, errno.ENODATA, errno.ENXIO, errno.EACCES, errno.ENAMETOOLONG, errno.ELOOP, errno.EOVERFLOW}


# ---------------------------------------------------------------- the walk, in a process of its own
def first_names(directory):
    """Names of a directory, which may be those of 2^39 chunks."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in itertools.islice(entries, 100_000)]


class Walk:
    def __init__(self):
        self.nodes, self.errors, self.wrong = 0, {}, []

    def attempt(self, what, f, *args, also=(), **kwargs):
        try:
            return f(*args, **kwargs)
        except OSError as e:
            name = errno.errorcode.get(e.errno, str(e.errno))
            self.errors[name] = self.errors.get(name, 0) + 1
            if e.errno not in ERRNOS and e.errno not in also:
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
        # The text of an object that is large, but for elements, is refused (docs/SEMANTICS.md).
        large = (errno.EFBIG,) if any(b"/.h5dir/%s/" % view in p for view in (b"json", b"arrow", b"csv", b"zarr", b"zarr2")) else ()
        fd = self.attempt("open", os.open, p, os.O_RDONLY, also=large)
        if fd is None:
            return
        for at in {0, size // 2, max(0, size - 65536)}:
            b = self.attempt("read", os.pread, fd, 1 << 20, at)
            self.data("read", b)
            # Lines of text are made as they are read.
            if b is not None and len(b) != min(1 << 20, max(0, size - at)) and size and b"/.h5dir/csv/" not in p:
                # What follows is damaged: a read gets the bytes before it.
                if self.attempt("read", os.pread, fd, 1 << 16, at + len(b)) is not None:
                    self.bad(f"{len(b)} bytes at {at} of {size}")
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            # The size of a long text, or file of strings, is not known.
            unknown = any(b"/.h5dir/%s/" % view in p for view in (b"arrow", b"csv", b"json"))
            self.attempt("lseek", os.lseek, fd, 0, whence, also=(errno.EINVAL,) if unknown else ())
        os.close(fd)

    def survey(self, root):
        self.root = self.root or root
        todo = [(root, 0)]
        while todo and self.nodes < NODES:
            directory, depth = todo.pop()
            names = self.attempt("listdir", first_names, directory) or []
            if len(names) != len(set(names)):
                self.bad(f"{directory!r}: a name listed twice")
            for name in names[:CHUNKS if b"/.h5dir/zarr" in directory else NAMES]:
                if self.nodes >= NODES:
                    break
                if self.one(directory, name) and depth < 20:
                    todo.append((directory + b"/" + name, depth + 1))

    def references(self, p):
        """All of the text, which is made as it is read, up to a limit."""
        fd = self.attempt("open", os.open, p, os.O_RDONLY)
        if fd is None:
            return
        size = 0
        while part := self.attempt("read", os.read, fd, 1 << 20):
            self.data("references", part)
            size += len(part)
            if size > REFERENCES_BYTES:
                break
        os.close(fd)

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
        for v in VIEWS:
            w.nodes = 0
            w.root = os.fsencode(f"{mnt}/.h5dir/{v}")
            w.survey(w.root)
        w.references(os.fsencode(f"{mnt}/.h5dir/kerchunk.json"))
        with open(f"{mnt}/.h5dir/status", "rb") as f:
            f.read()
    json.dump({"wrong": w.wrong, "errors": w.errors, "nodes": w.nodes}, sys.stdout)


# ---------------------------------------------------------------- the files
def judge(path, o):
    """-> what is wrong (a list), what was measured"""
    wrong, seen = [], {"cpu": 0.0, "views": 0.0, "mib": 0.0, "complete": 0.0, "state": "refused"}

    def look(p, mnt):
        seen["state"] = "served"
        # The views show everything several times.
        for view, key, times in (("main", "cpu", 1), ("views", "views", 10)):
            found = work(p, view, [os.path.abspath(__file__), "--walk", mnt, view], o.cpu * times, wrong)
            if not found:
                return
            _, seen[key], seen["mib"] = found

    answered, status, log = served(o, path, [], wrong, look)
    if not answered and not wrong and not 0 < status < 100:
        wrong.append(f"mount ended with {status}")
    seen["log_kib"] = len(log) >> 10
    completed(path, o, wrong, seen)
    return wrong, seen


def completed(path, o, wrong, seen):
    """Asks for the candidates of paths in the file as a shell does: few, printable, no message, soon."""
    words = [f"{path}:/"]
    for _ in range(3):
        begin = time.time()
        environment = {**os.environ, "COMPLETE": "bash", "_CLAP_COMPLETE_INDEX": "2"}
        limit = (resource.RLIMIT_AS, (4 << 30, 4 << 30))
        p = subprocess.Popen([o.bin, "--", "h5dir", "ls", words[-1]], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, preexec_fn=lambda: resource.setrlimit(*limit))
        out, err = p.communicate(timeout=60)
        candidates = out.split(b"\n")[:-1]
        seen["complete"] = max(seen["complete"], time.time() - begin)
        if p.returncode or err:
            wrong.append(f"completion of {words[-1]!r}: {p.returncode} {err[:200]!r}")
        if time.time() - begin > COMPLETION_SECONDS * crowding():
            wrong.append(f"completion of {words[-1]!r} takes {time.time() - begin:.1f} s")
        if len(candidates) > CANDIDATES or any(b < 32 or b == 127 for c in candidates for b in c) or any(s in out for s in SECRETS):
            wrong.append(f"completion of {words[-1]!r}: {len(candidates)} candidates {candidates[:3]!r}")
        below = [c for c in candidates if c.endswith(b"/") and len(c) < 3000 and c != os.fsencode(words[-1])]
        if not below:
            break
        words.append(os.fsdecode(below[0]))


def main():
    o = arguments(__doc__, CPU_SECONDS)
    folder = tempfile.mkdtemp(prefix="h5dir-hostile-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    count = Count(o, ("cpu", "views", "mib", "complete"))
    try:
        count.judge(files(o, folder), judge)
    finally:
        if o.keep:
            print("files are in", folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{count.states['served']} served, {count.states['refused']} refused; most CPU {count.most('cpu', 's')}, "
          f"in the views {count.most('views', 's')}, memory {count.most('mib', 'MiB')}, "
          f"completion {count.most('complete', 's')}")
    count.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--walk"]:
        walker(*sys.argv[2:4])
    else:
        main()
