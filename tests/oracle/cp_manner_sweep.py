#!/usr/bin/env python3
"""How `h5dir cp` copies: -v, --json, --dry-run, -u, -p, an interrupted copy into a directory; JSON of `iod` and `tx`.

    cp_manner_sweep.py [--bin H5DIR] [--keep FOLDER] [--seed N]

`find` and h5py list what was copied; nothing may change in a dry run.
"""
import hashlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import zlib

import h5py
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from commands_sweep import Commands, make
from harness import Tally, arguments, folder, read


def tree(top):
    """Paths below `top` with mode, size, mtime and digest."""
    found = {}
    for at, directories, files in os.walk(top):
        for name in directories + files:
            path = os.path.join(at, name)
            s = os.lstat(path)
            found[os.path.relpath(path, top)] = (s.st_mode, s.st_size, s.st_mtime_ns, hashlib.sha256(read(path)).digest() if os.path.isfile(path) else b"")
    return found


def lines(out):
    return re.findall(r"^'(.*)' -> '(.*)'$", out, re.M)


def verbose(c):
    """A line for each object, the same in a dry run, which changes nothing."""
    os.makedirs(c.path("dir"))
    for target, flags in [("dir", ()), ("new", ()), ("new.h5:/", ("--create",)), ("iod:box", ())]:
        source = "a.h5" if target.startswith("iod:") else "a.h5:/"
        before = tree(c.place)
        planned = c.ends(0, "cp", "-r", *flags, "--dry-run", source, target)
        c.tally.equal(tree(c.place), before, f"a dry run to {target} changes nothing")
        done = c.ends(0, "cp", "-rv", *flags, source, target)
        c.tally.equal((planned, done[1]), (done, ""), f"a dry run to {target} prints what is copied")
        prefix = target.rstrip("/") if ":/" in target else target + (":" if target.startswith("iod:") else "")
        top = prefix if target not in ("dir", "new") else target
        pairs = lines(done[0])
        c.tally.equal(len(pairs), len(done[0].splitlines()), f"lines of {target}")
        names = [a.removeprefix("a.h5:") for a, b in pairs if b == top + a.removeprefix("a.h5:").rstrip("/") or target == "new" and a == "a.h5:/"]
        c.tally.equal(len(names), len(pairs), f"destinations of {target}: {pairs[:3]}")
        if target in ("dir", "new"):
            there = {b for _, b in pairs} - {target}
            c.tally.equal(there, {os.path.join(target, p) for p in tree(c.path(target))}, f"all files of {target}")
    for target in ("none/x", "a.h5:/none/x"):
        c.tally.check(c.run("cp", "--dry-run", "a.h5:/text", target).returncode != 0, f"a dry run to {target}")
    rows = [json.loads(line) for line in c.ends(0, "cp", "--json", "a.h5:/run0/t", "a.h5:/text", "dir")[0].splitlines()]
    c.tally.equal([(r["source"], r["destination"], r["kind"]) for r in rows],
                  [("a.h5:/run0/t", "dir/t", "file"), ("a.h5:/text", "dir/text", "file")], "JSON")
    c.tally.equal(lines(c.ends(0, "cp", "-v", "-", "new.h5:/stdin")[0]), [("-", "new.h5:/stdin")], "standard input")
    for args in (("-v",), ("--dry-run",), ("--json",)):
        c.tally.check("omit" in c.ends(2, "cp", *args, "a.h5:/text", "-")[1], f"{args} to standard output")


def update(c):
    """Only what is newer or missing."""
    for target in ("dir", "new.h5:/", "iod:box"):
        source = "a.h5" if target.startswith("iod:") else "a.h5:/"
        c.tally.equal(c.ends(0, "cp", "-ruv", source, target), ("", ""), f"nothing is newer than {target}")
    os.remove(c.path("dir/run1/t"))
    c.tally.equal(lines(c.ends(0, "cp", "-ruv", "a.h5:/", "dir")[0]), [("a.h5:/run1/t", "dir/run1/t")], "what is missing")
    os.utime(c.path("dir/text"), (1, 1))
    with open(c.path("dir/run2/t"), "wb") as f:
        f.write(b"mine")
    c.tally.equal(lines(c.ends(0, "cp", "-ru", "--dry-run", "a.h5:/", "dir")[0]), [("a.h5:/text", "dir/text")], "what is older")
    c.tally.equal(lines(c.ends(0, "cp", "-ruv", "a.h5:/", "dir")[0]), [("a.h5:/text", "dir/text")], "what is older")
    c.tally.equal(read(c.path("dir/run2/t")), b"mine", "what is newer stays")
    c.ends(0, "cp", "-u", "dir/run2/t", "new.h5:/mine")
    c.tally.equal(c.ends(0, "cp", "-uv", "dir/run2/t", "new.h5:/mine"), ("", ""), "times of whole seconds")
    c.ends(2, "cp", "-un", "a.h5:/text", "dir")


def preserve(c):
    """Mode, times and owner."""
    path = c.path("mode")
    with open(path, "w") as f:
        f.write("x")
    os.chmod(path, 0o640)
    os.utime(path, (1_000_000_000, 1_100_000_000))
    if os.geteuid() == 0:
        os.chown(path, 1234, 2345)
    c.ends(0, "cp", "-p", "mode", "new.h5:/mode")
    os.umask(0o077)
    for target in ("mode_p", "mode_plain"):
        c.ends(0, "cp", *(["-p"] if target == "mode_p" else []), "new.h5:/mode", target)
    s, plain = os.stat(c.path("mode_p")), os.stat(c.path("mode_plain"))
    os.umask(0o022)
    want = os.stat(path)
    c.tally.equal((s.st_mode, int(s.st_mtime), s.st_uid, s.st_gid), (want.st_mode, int(want.st_mtime), want.st_uid, want.st_gid), "preserved")
    c.tally.equal((plain.st_mode & 0o777, plain.st_uid), (0o600, os.geteuid()), "without -p")


def resume(c, rng):
    """An interrupted copy into a directory is continued by the same command."""
    with h5py.File(c.path("many.h5"), "w") as f:
        for g in range(4):
            for i in range(400):
                f.create_dataset(f"g{g}/d{i}", data=rng.integers(0, 99, 5))
        f["first"] = f["g0/d0"]
    for target in ("resumed", "fresh"):
        if target == "resumed":
            os.makedirs(c.path(target))
        for wait in (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8, 1.5):
            copy = subprocess.Popen([c.binary, "cp", "-r", "many.h5:/", target], cwd=c.place, stderr=subprocess.PIPE)
            time.sleep(wait)
            copy.send_signal(signal.SIGINT)
            said = copy.communicate(timeout=60)[1]
            before = tree(c.path(target)) if os.path.isdir(c.path(target)) else {}
            if copy.returncode == 0 or any(os.path.isfile(c.path(os.path.join(target, p))) for p in before):
                break
        c.tally.check(copy.returncode != 0 and b"the same command copies the rest" in said, f"{target}: interrupted: {said}")
        done = {p: v for p, v in before.items() if os.path.isfile(c.path(os.path.join(target, p)))}
        out, errors = c.ends(0, "cp", "-rv", "many.h5:/", target)
        copied = {b.removeprefix(target + "/") for _, b in lines(out)}
        c.tally.check(errors == "" and done and not copied & set(done), f"{target}: {len(copied & set(done))} files were copied again")
        after = tree(c.path(target))
        c.tally.check(all(after[p] == v for p, v in done.items()), f"{target}: complete files stay")
        c.tally.equal(c.ends(0, "diff", "many.h5", target), ("", ""), f"{target}: all was copied")
        c.tally.equal(os.stat(c.path(target + "/first")).st_ino, os.stat(c.path(target + "/g0/d0")).st_ino, f"{target}: a hard link")
        c.tally.equal(os.listxattr(c.path(target)), [], f"{target}: the mark is removed")
        with open(c.path(target + "/g0/d1"), "wb") as f:
            f.write(b"changed")
        c.ends(0, "cp", "-r", "many.h5:/", target)
        c.ends(0, "diff", "many.h5", target)


def progress(c):
    """A bar on a terminal only."""
    with h5py.File(c.path("large.h5"), "w") as f:
        # Chunks that take long enough to decode.
        d = f.create_dataset("d", (400 << 20,), "u1", chunks=(1 << 16,), compression="gzip", compression_opts=1)
        chunk = zlib.compress(np.random.default_rng(1).integers(0, 16, 1 << 16, dtype="u1").tobytes(), 1)
        for at in range(0, d.size, 1 << 16):
            d.id.write_direct_chunk((at,), chunk)
    for args in (["cp", "large.h5:/d", "large.raw"], ["check", "--data", "large.h5"]):
        done = c.run(*args)
        c.tally.equal((done.returncode, done.stderr), (0, b""), f"{args}: no bar without a terminal")
        out = []

        def keep(fd):
            out.append(os.read(fd, 4096))
            return out[-1]

        here, stdout, null = os.getcwd(), os.dup(1), os.open(os.devnull, os.O_WRONLY)
        sys.stdout.flush()
        os.dup2(null, 1)
        os.chdir(c.place)
        code = pty.spawn([c.binary, *args], keep)
        os.chdir(here)
        os.dup2(stdout, 1)
        text = b"".join(out).decode()
        shown = [int(n) for n in re.findall(r"\] +(\d+) %", text)]
        c.tally.check(code == 0 and shown and "left" in text and "/s" in text, f"{args}: a bar: {text[:200]!r}")
        c.tally.check(shown == sorted(shown) and shown[0] < 90, f"{args}: {shown}")


def containers(c):
    """`iod log`, `iod tag`, `iod gc` and `tx` as JSON, with what they print as text."""
    rows = [json.loads(line) for line in c.ends(0, "iod", "log", "--json", "iod:box")[0].splitlines()]
    text = c.ends(0, "iod", "log", "iod:box")[0].splitlines()
    c.tally.equal([[str(r["version"]), r["time"]] for r in rows], [line.split()[:2] for line in text], "iod log")
    tag = json.loads(c.ends(0, "iod", "tag", "--json", "iod:box", "first")[0])
    c.tally.equal(tag, {"tag": "first", "version": rows[0]["version"]}, "a new tag")
    tags = json.loads(c.ends(0, "iod", "tag", "iod:box", "--json")[0])
    c.tally.equal([[t["tag"], str(t["version"]), t["time"]] for t in tags], [line.split()[:3] for line in c.ends(0, "iod", "tag", "iod:box")[0].splitlines()], "tags")
    gc = json.loads(c.ends(0, "iod", "gc", "--dry-run", "--json", "iod:box")[0])
    c.tally.check(gc["dry_run"] is True and f"versions {gc['floor']} to {gc['newest']} are kept" in c.ends(0, "iod", "gc", "--dry-run", "iod:box")[0], f"gc: {gc}")
    c.tally.equal(json.loads(c.ends(0, "tx", "begin", "--json", "iod:box", "step7")[0]), {"name": "step7", "state": "open"}, "tx begin")
    c.tally.equal(json.loads(c.ends(0, "tx", "list", "--json", "iod:box")[0]), [{"name": "step7", "state": "open"}], "tx list")
    status = json.loads(c.ends(0, "tx", "status", "--json", "iod:box", "step7")[0])
    c.tally.equal([status[k] for k in ("name", "state", "peers", "joined", "finished", "after")], ["step7", "open", 1, [], [], []], "tx status")
    c.tally.equal(json.loads(c.ends(0, "tx", "--json", "abort", "iod:box", "step7")[0])["state"], "aborted", "tx abort")
    c.tally.equal(json.loads(c.ends(0, "iod", "tag", "--json", "--delete", "first", "iod:box")[0]), {"tag": "first", "version": None}, "a removed tag")


def main():
    options = arguments(__doc__)
    tally = Tally()
    with folder(options.keep) as place:
        c = Commands(options.bin, place, tally)
        make(c.path("a.h5"))
        verbose(c)
        update(c)
        preserve(c)
        resume(c, np.random.default_rng(options.seed))
        progress(c)
        containers(c)
    tally.finish()


if __name__ == "__main__":
    main()
