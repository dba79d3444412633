#!/usr/bin/env python3
"""Mounts hostile and malformed files and looks at everything in them: the daemon must survive cheaply.

    tests/oracle/hostile.py --bin PATH/TO/h5dir [-j N] [-k WORD] [FILE...]

For each file: the mount is refused cleanly, or a walk over its main tree and one over .h5dir each end
within 2 s of the daemon's CPU time; its memory stays below 256 MiB, it is alive afterwards, its log tells
of no panic, errors are the expected errnos, no name is impossible, no byte of /etc/passwd or of a file
outside the folder appears. The files: those of hostile_make.py, those that ../shared/tools/hostile_files.py
writes, and ../shared/corpus/malformed, where these exist (CORPUS names another corpus); or FILE... only.

The last line is "N passed, N failed".
"""
import errno, json, os, shutil, stat, sys, tempfile

from hostile_common import SECRETS, Count, arguments, files, served, work

CPU_SECONDS = 2.0
NODES, NAMES, XATTRS = 3000, 2000, 200
ERRNOS = {errno.EIO, errno.ENOENT, errno.E2BIG, errno.ENODATA, errno.ENXIO, errno.EACCES, errno.ENAMETOOLONG, errno.ELOOP, errno.EOVERFLOW}


# ---------------------------------------------------------------- the walk, in a process of its own
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
        # The text of a large object is refused when its file is opened (docs/SEMANTICS.md).
        large = (errno.EFBIG,) if b"/.h5dir/json/" in p or b"/.h5dir/arrow/" in p else ()
        fd = self.attempt("open", os.open, p, os.O_RDONLY, also=large)
        if fd is None:
            return
        for at in {0, size // 2, max(0, size - 65536)}:
            b = self.attempt("read", os.pread, fd, 1 << 20, at)
            self.data("read", b)
            if b is not None and len(b) != min(1 << 20, max(0, size - at)) and size:
                # What follows is damaged: a read gets the bytes before it.
                if self.attempt("read", os.pread, fd, 1 << 16, at + len(b)) is not None:
                    self.bad(f"{len(b)} bytes at {at} of {size}")
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            # The size of a long file of strings is not known.
            self.attempt("lseek", os.lseek, fd, 0, whence, also=(errno.EINVAL,) if b"/.h5dir/arrow/" in p else ())
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
        for v in ("arrow", "attrs", "chunks", "exact", "images", "json", "npy"):
            w.nodes = 0
            w.root = os.fsencode(f"{mnt}/.h5dir/{v}")
            w.survey(w.root)
        with open(f"{mnt}/.h5dir/status", "rb") as f:
            f.read()
    json.dump({"wrong": w.wrong, "errors": w.errors, "nodes": w.nodes}, sys.stdout)


# ---------------------------------------------------------------- the files
def judge(path, o):
    """-> what is wrong (a list), what was measured"""
    wrong, seen = [], {"cpu": 0.0, "views": 0.0, "mib": 0.0, "state": "refused"}

    def look(p, mnt):
        seen["state"] = "served"
        # The views show everything several times.
        for view, key, times in (("main", "cpu", 1), ("views", "views", 4)):
            found = work(p, view, [os.path.abspath(__file__), "--walk", mnt, view], o.cpu * times, wrong)
            if not found:
                return
            _, seen[key], seen["mib"] = found

    answered, status, log = served(o, path, [], wrong, look)
    if not answered and not wrong and not 0 < status < 100:
        wrong.append(f"mount ended with {status}")
    seen["log_kib"] = len(log) >> 10
    return wrong, seen


def main():
    o = arguments(__doc__, CPU_SECONDS)
    folder = tempfile.mkdtemp(prefix="h5dir-hostile-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    count = Count(o, ("cpu", "views", "mib"))
    try:
        count.judge(files(o, folder), judge)
    finally:
        if o.keep:
            print("files are in", folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{count.states['served']} served, {count.states['refused']} refused; most CPU {count.most('cpu', 's')}, "
          f"in the views {count.most('views', 's')}, memory {count.most('mib', 'MiB')}")
    count.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--walk"]:
        walker(*sys.argv[2:4])
    else:
        main()
