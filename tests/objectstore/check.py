#!/usr/bin/env python3
"""Checks of remote files: check.py H5DIR [NAME...]. The last line is "N passed, N failed"."""

import contextlib
import glob
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import h5py
import containers
import failures
import hostile
import numpy as np
import servers
from range_server import Server

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MIB = 1 << 20
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


# ---- files

def make_walk(path, count=1000):
    """Datasets, half of them compressed, each with an attribute."""
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as f:
        for i in range(count):
            packed = {} if i % 2 else {"chunks": (500,), "compression": "gzip"}
            f.create_dataset(f"g{i % 10}/d{i:03}", data=rng.random(2000), **packed).attrs["units"] = "m"


def make_scattered(path):
    """1,000 datasets of 100 kB, with the metadata of each beside its data."""
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as f:
        for i in range(1000):
            f.create_dataset(f"d{i:04}", data=rng.random(12500))


def make_large(path):
    """10 GiB in 10,240 chunks, of which one was written; the file is sparse."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    plist.set_chunk((1 << 17,))
    with h5py.File(path, "w") as f:
        group = f.create_group("a/b")
        f.create_dataset("a/first", data=np.arange(1000))
        space = h5py.h5s.create_simple((10 << 27,))
        big = h5py.Dataset(h5py.h5d.create(group.id, b"big", h5py.h5t.IEEE_F64LE, space, plist))
        big[5 << 27] = 42.0
        f.create_dataset("last", data=np.arange(10))


def make_plain(path, size):
    """One contiguous dataset of size bytes."""
    with h5py.File(path, "w") as f:
        f.create_dataset("data", data=np.random.default_rng(2).integers(0, 256, size, "u1"))


# ---- running h5dir

class Bench:
    """The servers, files and commands of all checks."""

    def __init__(self, h5dir, folder):
        self.h5dir, self.folder = h5dir, folder
        self.files = os.path.join(folder, "files")
        os.mkdir(self.files)
        self.server = Server(self.files)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "H5DIR_"))}
        self.environment["HOME"] = folder
        self.mounts = self.histories = 0
        # Servers of containers by kind, which the checks share.
        self.stores, self.closing = {}, contextlib.ExitStack()

    def file(self, name, make, *arguments):
        path = os.path.join(self.files, name)
        if not os.path.exists(path):
            make(path, *arguments)
        return path

    def url(self, name):
        return f"{self.server.url}/{name}"

    def run(self, *arguments, environment=None, timeout=120):
        return subprocess.run([self.h5dir, *arguments], env=environment or self.environment, capture_output=True, timeout=timeout)

    def ok(self, *arguments, **options):
        done = self.run(*arguments, **options)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    @contextlib.contextmanager
    def mounted(self, target, *options, environment=None):
        self.mounts += 1
        at = os.path.join(self.folder, f"mount{self.mounts}")
        log = at + ".log"
        os.mkdir(at)
        self.ok("mount", target, at, "--log-file", log, *options, environment=environment)
        mount = Mount(at, log)
        try:
            yield mount
        finally:
            self.ok("umount", at)
            os.rmdir(at)


class Mount:
    def __init__(self, at, log):
        self.at, self.log_file = at, log

    def path(self, name):
        return os.path.join(self.at, name)

    def log(self):
        with contextlib.suppress(FileNotFoundError), open(self.log_file) as f:
            return f.read()
        return ""

    def counters(self):
        with open(self.path(".h5dir/status")) as f:
            return {key: int(value) for key, value in re.findall(r"^(\w+):? +(\d+)$", f.read(), re.M)}


def digest(root):
    """Names, kinds, sizes, links, extended attributes and bytes of all files below root.

    The blocks of chunked datasets are an estimate in a remote file, and not compared."""
    found = {}
    pending = [""]
    while pending:
        inner = pending.pop()
        path = os.path.join(root, inner)
        status = os.lstat(path)
        entry = [oct(status.st_mode), status.st_size, status.st_nlink]
        if os.path.islink(path):
            entry.append(os.readlink(path))
        else:
            entry.append(attributes(path))
            if os.path.isdir(path):
                pending.extend(os.path.join(inner, name) for name in os.listdir(path))
            else:
                entry.append(content(path))
        found[inner] = entry
    return found


def attributes(path):
    try:
        return [(name, os.getxattr(path, name)) for name in sorted(os.listxattr(path))]
    except OSError as e:
        return e.errno


def content(path):
    try:
        found = hashlib.sha256()
        with open(path, "rb", buffering=0) as f:
            # Of very large files the ends.
            size = os.fstat(f.fileno()).st_size
            while part := f.read(4 * MIB):
                found.update(part)
                if size > 256 * MIB and f.tell() < size - 4 * MIB:
                    f.seek(size - 4 * MIB)
        return found.hexdigest()
    except OSError as e:
        return e.errno


def errno_of(action):
    try:
        action()
    except OSError as e:
        return e.errno
    return 0


def read(path, offset=0, length=-1):
    with open(path, "rb", buffering=0) as f:
        f.seek(offset)
        return f.read() if length < 0 else f.read(length)


# ---- checks

@check
def remote_mounts_equal_local_ones(b):
    files = sorted(glob.glob(os.path.join(ROOT, "tests/fixtures/mount/*.h5")))
    corpus = os.environ.get("CORPUS", os.path.join(ROOT, "../shared/corpus"))
    files += sorted(glob.glob(os.path.join(corpus, "files/**/*.h5"), recursive=True))[::40]
    assert files
    for i, path in enumerate(files):
        name = f"copy{i}.h5"
        shutil.copy(path, os.path.join(b.files, name))
        with b.mounted(os.path.join(b.files, name), "--external=off") as local, b.mounted(b.url(name)) as remote:
            left, right = digest(local.at), digest(remote.at)
            assert left == right, [name for name in left if left[name] != right.get(name)][:5]


@check
def commands_read_urls(b):
    path = b.file("walk.h5", make_walk)
    url = b.url("walk.h5")
    assert b.ok("ls", "-R", "--posix", url) == b.ok("ls", "-R", "--posix", path)
    assert b.ok("ls", "-l", url) == b.ok("ls", "-l", path)
    assert b.ok("cat", url + ":/g3/d003") == b.ok("cat", path + ":/g3/d003")
    facts = [b.ok("stat", "--posix", target + ":/g2/d002").split(b"Facts:")[1] for target in (url, path)]
    assert facts[0] == facts[1]
    assert b"no problem" not in b.ok("check", "--data", url)
    copy = os.path.join(b.folder, "copied.h5")
    b.ok("cp", "-r", url + ":/g1", copy + ":/") if os.path.exists(copy) else b.ok("create", copy)
    b.ok("cp", "-r", url + ":/g1", copy + ":/g1")
    with h5py.File(copy) as left, h5py.File(path) as right:
        assert (left["g1/d001"][:] == right["g1/d001"][:]).all()
    local = b.run("diff", url + ":/g1", copy + ":/g1")
    assert local.returncode == 0, local.stdout


@check
def a_walk_takes_few_requests(b):
    for name, make, most in (("walk.h5", make_walk, 16), ("scattered.h5", make_scattered, 30)):
        b.file(name, make)
        b.server.stats()
        with b.mounted(b.url(name)) as m:
            for root, _, names in os.walk(m.at):
                for n in names:
                    os.stat(os.path.join(root, n))
        stats = b.server.stats()
        print(f"  {name}: {stats['requests']} requests, {stats['bytes'] >> 20} MiB")
        assert stats["requests"] <= most, stats["paths"]


@check
def the_first_byte_of_a_large_file_takes_few_requests(b):
    path = b.file("large.h5", make_large)
    assert os.stat(path).st_size > 10 << 30
    for offset, expected in ((0, b"\0" * 8), (5 << 30, np.array([42.0]).tobytes())):
        b.server.stats()
        with b.mounted(b.url("large.h5")) as m:
            assert read(m.path("a/b/big"), offset, 8) == expected
        stats = b.server.stats()
        print(f"  at {offset}: {stats['requests']} requests, {stats['bytes'] >> 10} KiB")
        assert stats["requests"] <= 8, stats["paths"]


@check
def sequential_reads_are_few_large_requests_in_parallel(b):
    path = b.file("plain.h5", make_plain, 192 * MIB)
    b.server.stats()
    b.server.set(latency=0.03)
    with b.mounted(b.url("plain.h5"), "--cache-size=512M") as m:
        digest_here = content(m.path("data"))
    b.server.set(latency=0)
    stats = b.server.stats()
    with h5py.File(path) as f:
        assert hashlib.sha256(f["data"][:].tobytes()).hexdigest() == digest_here
    print(f"  {stats['requests']} requests, at most {stats['largest'] >> 10} KiB, {stats['most']} at once")
    # None is asked for twice.
    assert stats["bytes"] < 200 * MIB and stats["requests"] < 60 and stats["most"] >= 3, stats


@check
def a_changed_object_is_an_error(b):
    path = b.file("changing.h5", make_plain, 32 * MIB)
    with b.mounted(b.url("changing.h5"), "--readahead=128K") as m:
        before = read(m.path("data"), 0, 4096)
        b.server.set(etag_suffix="-2")
        assert errno_of(lambda: read(m.path("data"), 20 * MIB, 4096)) == 5
        assert errno_of(lambda: read(m.path("data"), 24 * MIB, 4096)) == 5
        assert read(m.path("data"), 0, 4096) == before, "what was read stays"
        log = [line for line in m.log().splitlines() if "mount it again" in line]
        assert len(log) == 1 and "changing.h5" in log[0], m.log()
    b.server.set(etag_suffix="")
    # Without ETags: Last-Modified.
    b.server.set(etags=False)
    with b.mounted(b.url("changing.h5")) as m:
        os.utime(path, (1, 1))
        assert errno_of(lambda: read(m.path("data"), 20 * MIB, 4096)) == 5
    b.server.set(etags=True)
    # Removed.
    with b.mounted(b.url("changing.h5")) as m:
        os.rename(path, path + ".gone")
        assert errno_of(lambda: read(m.path("data"), 20 * MIB, 4096)) == 5
    os.rename(path + ".gone", path)
    # A server that does not know its ETags in If-Match: they are compared.
    b.server.set(if_match_works=False)
    with b.mounted(b.url("changing.h5")) as m:
        assert len(read(m.path("data"))) == 32 * MIB
    b.server.set(if_match_works=True)


@check
def errors_name_the_url_the_status_and_a_remedy(b):
    b.file("walk.h5", make_walk)
    with open(os.path.join(b.files, "text"), "w") as f:
        f.write("text")
    closed = http.client.HTTPConnection("127.0.0.1", 1)
    for target, parts in (
        (b.url("none.h5"), ["none.h5", "404", "check the URL"]),
        (b.url("forbidden"), ["forbidden", "403", "password"]),
        (b.url("text"), ["not an HDF5 file"]),
        (f"http://{closed.host}:{closed.port}/x.h5", ["cannot connect", "refused"]),
        ("s3:///key", ["SCHEME://BUCKET/KEY"]),
        (b.url("folder/"), ["folder/", "do not list their files", "s3://"]),
    ):
        done = b.run("ls", target)
        text = done.stderr.decode()
        assert done.returncode == 3 and all(part in text for part in parts) and text.count("\n") == 1, (done.returncode, text)
    at = os.path.join(b.folder, "none")
    os.mkdir(at)
    done = b.run("mount", "--read-write", b.url("walk.h5"), at)
    assert done.returncode == 3 and b"Read-only" in done.stderr, done.stderr
    for command in (["create"], ["recover"]):
        done = b.run(*command, b.url("walk.h5"))
        assert done.returncode == 3 and b"only read" in done.stderr, done.stderr
    b.server.set(ranges=False)
    done = b.run("ls", b.url("walk.h5"))
    b.server.set(ranges=True)
    assert done.returncode == 3 and b"Range" in done.stderr, done.stderr


@check
def failed_requests_are_repeated(b):
    path = b.file("plain.h5", make_plain, 192 * MIB)
    with h5py.File(path) as f:
        expected = f["data"][: 64 * MIB].tobytes()
    for fault in ({"status_count": 3}, {"status_count": 2, "status": 429}, {"cut_count": 5}, {"drop_count": 3}):
        with b.mounted(b.url("plain.h5")) as m:
            b.server.set(**fault)
            assert read(m.path("data"), 0, 64 * MIB) == expected, fault
            retries = m.counters()["remote_retries"]
            assert retries >= 1, (fault, retries)
        b.server.set(status_count=0, status=503, cut_count=0, drop_count=0)


@check
def failures_end_after_the_timeout(b):
    b.file("plain.h5", make_plain, 192 * MIB)
    with b.mounted(b.url("plain.h5"), "--remote-timeout=1.5") as m:
        for fault, errno in (({"hang_count": 1000}, 110), ({"status_count": 1000}, 5), ({"status_count": 1, "status": 403}, 13)):
            b.server.set(**fault)
            start = time.monotonic()
            assert errno_of(lambda: read(m.path("data"), 100 * MIB, 4096)) == errno
            print(f"  {fault}: {time.monotonic() - start:.1f} s")
            b.server.set(hang_count=0, status_count=0, status=503)
        assert "does not answer" in m.log() and "503" in m.log(), m.log()
        assert len(read(m.path("data"), 100 * MIB, 4096)) == 4096, "the mount works again"
    b.server.set(hang_count=1000)
    done = b.run("mount", "--remote-timeout=1", b.url("plain.h5"), b.folder)
    b.server.set(hang_count=0)
    assert done.returncode == 3 and b"does not answer" in done.stderr, done.stderr


@check
def blocks_on_disk_outlive_the_mount(b):
    b.file("plain.h5", make_plain, 192 * MIB)
    cache = os.path.join(b.folder, "cache")
    options = ("--cache-dir", cache, "--cache-dir-size=1G", "--cache-size=128M")

    def mounted_bytes():
        b.server.stats()
        with b.mounted(b.url("plain.h5"), *options) as m:
            found = read(m.path("data"), 0, 64 * MIB)
            time.sleep(0.5)
        return hashlib.sha256(found).hexdigest(), b.server.stats()["bytes"]

    first, fetched = mounted_bytes()
    assert fetched >= 64 * MIB
    assert os.stat(cache).st_mode & 0o777 == 0o700
    second, fetched = mounted_bytes()
    print(f"  {len(os.listdir(cache))} files; again {fetched >> 10} KiB fetched")
    assert second == first and fetched < 48 * MIB, fetched
    for n, name in enumerate(sorted(os.listdir(cache))):
        with open(os.path.join(cache, name), "r+b") as f:
            f.seek(2000 + n * 70_000)
            f.write(b"damage")
    third, fetched = mounted_bytes()
    assert third == first and fetched > 0
    # Another version uses none of it.
    b.server.set(etag_suffix="-9")
    _, fetched = mounted_bytes()
    b.server.set(etag_suffix="")
    assert fetched >= 64 * MIB
    # Two daemons, and a small limit.
    small = ("--cache-dir", cache, "--cache-dir-size=32M")
    with b.mounted(b.url("plain.h5"), *small) as left, b.mounted(b.url("plain.h5"), *small) as right:
        found = []
        readers = [threading.Thread(target=lambda m=m: found.append(content(m.path("data")))) for m in (left, right)]
        [reader.start() for reader in readers]
        [reader.join() for reader in readers]
        assert len(set(found)) == 1 and len(found[0]) == 64
        time.sleep(0.5)
    size = sum(os.stat(os.path.join(cache, name)).st_size for name in os.listdir(cache))
    assert size <= 64 * MIB, size
    os.chmod(cache, 0o755)
    done = b.run("mount", b.url("plain.h5"), b.folder, *options)
    assert done.returncode == 3 and b"0700" in done.stderr, done.stderr


@check
def memory_is_bounded(b):
    b.file("plain.h5", make_plain, 192 * MIB)
    with b.mounted(b.url("plain.h5"), "--cache-size=64M") as m:
        content(m.path("data"))
        counters = m.counters()
        assert counters["remote_cache_bytes"] <= 16 * MIB, counters
        pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and m.at in command_line(pid) and "mount" in command_line(pid)]
        peaks = [int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{pid}/status").read())[1]) >> 10 for pid in pids]
        print(f"  peak {max(peaks)} MiB")
        assert max(peaks) < 160, peaks


def command_line(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as f:
        return f.read()
    return ""


# Arguments of every subcommand that takes a file; {u}: the URL, {m}: a mountpoint, {h}: a local HDF5 file, {n}: a new file.
COMMANDS = """
mount {u} {m}; mount --read-write {u} {m}; mount --swmr {u} {m}; mount --version 3 {u} {m}; mount --transaction t {u} {m}
mount {u}; mount {u} {m} {u}; mount {m} {u}; mount --name {u}; mount --config {u} {h} {m}; mount --config={u} {h} {m}
mount --cache-dir {u} {u} {m}; mount --threads={u} {h} {m}; mount -o threads={u} {h} {m}; mount -o {u} {h} {m}; mount {u}:/none {m}
umount {u}; umount --name {u}; status {u}; ls {u}; ls {u}:/none; ls -lR --json {u}; ls {u} {u}; stat {u}; stat --space {u}; stat {u}:/none
check {u}; check --data --json {u}; check --version 3 {u}; defined {u}:/none; erase --select 0 {u}:/none; cp {u}:/none {n}; cp -r {u}:/ {n}
cp {u} {n}; cp {h}:/d {u}:/d; cp --create {h}:/d {u}:/d; cp -r {h} iod+{u}; cp --link {u}:/d iod:{n}; cp -r {u} iod:{n}; cat {u}:/none
cat {u}; cat {h}:/d {u}; diff {u}:/ {h}:/; diff {h}:/ {u}:/; diff --json {u}:/none {u}:/none; diff {u} {h}; config check {u}; config show {u}
config show --config {u}; create {u}; create --log {u}; create iod+{u}; recover {u}; recover --dry-run {u}; compact {u}; compact {u}:/none
iod log {u}; iod dump {u}; iod gc {u}; iod tag {u} t 1; iod diff {u} 1 2; iod revert {u} 1; iod log iod+{u}; tx status {u} t
tx begin {u} t; tx abort {u} t; log dump {u}; log rebuild {u}; log replay {u} {n}; log replay {h} {u}; log export {u} {n}; man {u}
completions {u}; {u}; ls --{u}; ls --external-root {u} {u}; bench-memory-fs --size=1M {u}; mount --log-file {u} {h} {m}; cat --version {u} {h}:/d
"""


@check
def secrets_are_not_shown(b):
    """No user, password or query of a URL: in outputs of all commands, logs, counters and the mount table."""
    b.file("walk.h5", make_walk)
    b.server.stats()
    b.server.set(user="USER9:PASS9")
    host = b.server.url.removeprefix("http://")
    url = f"http://USER9:PASS9@{host}/walk.h5?signature=TOKEN9"
    for options in (["--log-level=debug"], ["--log-level=trace", "--log-format=json"]):
        with b.mounted(url, *options) as m:
            assert len(os.listdir(m.at)) == 10
            mounts = open("/proc/self/mountinfo").read()
            outputs = [mounts, m.log(), open(m.path(".h5dir/status")).read(), open(m.path(".h5dir/log")).read()]
            outputs += [b.ok("status", *more).decode() for more in ((), ("--json",), (m.at,))]
            assert "walk.h5" in mounts and not any("SER9" in o or "ASS9" in o or "OKEN9" in o for o in outputs), outputs
        assert b.server.stats()["paths"][0][0] == "/walk.h5?signature=TOKEN9"
    # Two URLs that differ in their query only.
    assert b.run("diff", f"{url}1:/", f"{url}2:/").returncode == 0
    assert {path.split("=")[1] for path, _ in b.server.stats()["paths"]} == {"TOKEN91", "TOKEN92"}
    b.server.set(user="other:other")
    done = b.run("ls", url)
    b.server.set(user=None)
    assert done.returncode == 3 and b"401" in done.stderr and b"9" not in done.stderr.replace(host.encode(), b""), done.stderr
    at, local, new = (os.path.join(b.folder, name) for name in ("shown", "shown.h5", "shown-new"))
    os.mkdir(at)
    with h5py.File(local, "w") as f:
        f["d"] = [1]
    nobody = f"127.0.0.1:{servers.free_port()}"
    urls = [url, f"http://USER9:PASS9@{host}/absent?TOKEN9", f"HTTPS://USER9:PASS9@{nobody}/x?TOKEN9", f"http://USER9:PASS9/PASS9@{host}/x",
            f"http://USER9:PASS9?PASS9@{host}/x", f"http://USER9:/PASS9@{host}/x", f"http://USER9:PASS9#PASS9@{host}/x",
            f"http://USER9:PASS9@{host}:port/x?TOKEN9", "http://USER9:PASS9@", "http://USER9:PASS9 PASS9@[/x?TOKEN9", "http:/USER9:PASS9@h/x",
            "s3://USER9:PASS9@bucket/key", f"ftp://USER9:PASS9@{host}/x?TOKEN9"]
    commands = [command.split() for command in re.split(r"[;\n]", COMMANDS) if command.strip()]
    count, found = 0, []
    is_wrong = lambda text: any(word in text for word in ("SER9", "ASS9", "OKEN9", "panic"))
    for one in urls:
        for command in commands if one in urls[:4] else commands[::3]:
            arguments = [part.format(u=one, m=at, h=local, n=new) for part in command]
            done = b.run(*arguments, environment={**b.environment, "H5DIR_LOG": "trace"})
            text = (done.stdout + done.stderr).decode(errors="replace")
            found += [(arguments, text)] * is_wrong(text)
            count += 1
            if os.path.ismount(at):
                b.ok("umount", at)
            shutil.rmtree(new, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.unlink(new)
    config = os.path.join(b.folder, "shown.yaml")
    for template in ("mounts:\n  a:\n    source: '{u}'\n    sorce: '{u}'\n    at: m\n    threads: '{u}'\n", "'{u}': 1\n", "mount: '{u}'\n",
                     "mounts:\n  '{u}': {{source: '{u}', at: '{u}'}}\n", "mounts:\n  a: {{source: '{u}', at: m}}\n", "mounts: {{a: [\"{u}\"\n",
                     "mount: {{log-file: '{u}', uid: '{u}'}}\ncreate: [{{pattern: '{u}', dtype: '{u}'}}]\n"):
        for one in urls:
            with open(config, "w") as f:
                f.write(template.format(u=one))
            for command in (("config", "check", config), ("config", "show", "--config", config), ("config", "show", "--json", "--config", config),
                            ("config", "show", "--yaml", "--config", config), ("mount", "--config", config, "--all"),
                            ("mount", "--config", config, "--name", "a")):
                done = b.run(*command)
                text = (done.stdout + done.stderr).decode(errors="replace")
                found += [(command, template, one, text)] * is_wrong(text)
                count += 1
                if os.path.ismount(os.path.join(b.folder, "m")):
                    b.ok("umount", os.path.join(b.folder, "m"))
    print(f"  {count} commands")
    assert not found, "\n".join(map(str, found))


@check
def other_schemes_work_in_the_sandbox(b):
    """Name resolution, TLS, gs:// and az://, each by a confined daemon."""
    path = b.file("walk.h5", make_walk)
    os.makedirs(os.path.join(b.files, "bucket"), exist_ok=True)
    shutil.copy(path, os.path.join(b.files, "bucket/walk.h5"))
    names = sorted(os.listdir(os.path.dirname(path)))
    assert "walk.h5" in names
    google = {"GOOGLE_BASE_URL": b.server.url, "GOOGLE_ALLOW_HTTP": "true", "GOOGLE_SKIP_SIGNATURE": "true"}
    azure = {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ENDPOINT": b.server.url, "AZURE_ALLOW_HTTP": "true"}
    certificate = make_certificate(b.folder)
    secure = Server(b.files, certificate)
    try:
        for target, extra, options in (
            (b.url("walk.h5").replace("127.0.0.1", "localhost"), {}, ()),
            ("gs://bucket/walk.h5", google, ()),
            ("az://bucket/walk.h5", azure, ("--anonymous",)),
            (f"https://localhost:{secure.port}/walk.h5", {"SSL_CERT_FILE": certificate}, ()),
            ("s3://bucket/walk.h5", {"AWS_ENDPOINT_URL": f"https://localhost:{secure.port}", "AWS_CA_BUNDLE": certificate}, ("--anonymous",)),
        ):
            with b.mounted(target, *options, environment={**b.environment, **extra}) as m:
                assert len(os.listdir(m.at)) == 10, target
                assert content(m.path("g9/d999")) == hashlib.sha256(b.ok("cat", path + ":/g9/d999")).hexdigest(), target
        done = b.run("ls", f"https://localhost:{secure.port}/walk.h5")
        assert done.returncode == 3 and b"ertificate" in done.stderr, done.stderr
    finally:
        secure.close()


def make_certificate(folder):
    """A certificate of localhost that signs itself, with its key, in one PEM file."""
    import datetime
    import ipaddress
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(names, critical=False).add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = os.path.join(folder, "server.pem")
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with open(path, "wb") as f:
        f.write(certificate.public_bytes(serialization.Encoding.PEM) + private)
    return path


# ---- S3, by moto

class Moto:
    """The S3 server of moto, in a process of its own."""

    def __init__(self):
        import socket
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        command = [sys.executable, servers.MOTO, "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{self.port}"
        for _ in range(600):
            with contextlib.suppress(OSError):
                http.client.HTTPConnection("127.0.0.1", self.port, timeout=1).connect()
                return
            time.sleep(0.1)
        raise RuntimeError("moto does not start")

    def close(self):
        self.process.terminate()
        self.process.wait(10)


@check
def s3_takes_credentials_from_environment_and_profiles(b):
    import boto3
    path = b.file("walk.h5", make_walk)
    moto = Moto()
    try:
        client = boto3.client("s3", endpoint_url=moto.url, aws_access_key_id="AK", aws_secret_access_key="SK", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        client.upload_file(path, "bucket", "in a/walk+1.h5")
        url = "s3://bucket/in a/walk+1.h5"
        endpoint = {"AWS_ENDPOINT_URL": moto.url, "AWS_ALLOW_HTTP": "true"}
        keys = {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK", "AWS_REGION": "us-east-1"}
        expected = b.ok("ls", "-R", "--posix", path)
        environment = {**b.environment, **endpoint, **keys}
        assert b.ok("ls", "-R", "--posix", url, environment=environment) == expected
        with b.mounted(url + ":/g1", environment=environment) as remote, b.mounted(path + ":/g1") as local:
            assert digest(remote.at) == digest(local.at)
        with b.mounted(url, environment=environment) as m:
            client.put_object(Bucket="bucket", Key="in a/walk+1.h5", Body=b"other")
            assert errno_of(lambda: read(m.path("g9/d999"))) == 5
        client.upload_file(path, "bucket", "in a/walk+1.h5")
        # A profile.
        os.makedirs(os.path.join(b.folder, ".aws"), exist_ok=True)
        with open(os.path.join(b.folder, ".aws/credentials"), "w") as f:
            f.write("[test]\naws_access_key_id = AK\naws_secret_access_key = SK\n")
        with open(os.path.join(b.folder, ".aws/config"), "w") as f:
            f.write(f"[profile test]\nregion = us-east-1\nendpoint_url = {moto.url}\n")
        profile = {**b.environment, "AWS_PROFILE": "test", "AWS_ALLOW_HTTP": "true"}
        assert b.ok("ls", "-R", "--posix", url, environment=profile) == expected
        done = b.run("ls", url, environment={**profile, "AWS_PROFILE": "other"})
        assert done.returncode == 3 and b"AWS_PROFILE" in done.stderr, done.stderr
        # Anonymous.
        client.put_object_acl(Bucket="bucket", Key="in a/walk+1.h5", ACL="public-read")
        assert b.ok("ls", "-R", "--posix", url, environment={**b.environment, **endpoint, "AWS_SKIP_SIGNATURE": "true"}) == expected
        with b.mounted(url, "--anonymous", environment={**b.environment, **endpoint}) as m:
            assert len(os.listdir(m.at)) == 10
        done = b.run("ls", "s3://bucket/none", environment=environment)
        assert done.returncode == 3 and b"404" in done.stderr, done.stderr
        # Endpoints without TLS need AWS_ALLOW_HTTP.
        done = b.run("ls", url, environment={**environment, "AWS_ALLOW_HTTP": "false"})
        assert done.returncode == 3, done.stderr
    finally:
        moto.close()


# Values of all arrays of references, by their sums and dimensions; argv: the references, options of the remote file system.
REFERENCES_READER = """
import importlib.util, json, sys, warnings
warnings.filterwarnings("ignore")
import fsspec, numpy, xarray, zarr
text, protocol, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
remote = {"remote_protocol": protocol, "remote_options": {**options, "asynchronous": True}}
fs = fsspec.filesystem("reference", fo=text, asynchronous=True, **remote)
root = zarr.open_group(zarr.storage.FsspecStore(fs, read_only=True, path=""), mode="r", zarr_format=2, use_consolidated=False)
found = {name[:-8]: root[name[:-8]][()] for name in fs.references if name.endswith("/.zarray")}
found = {name: (float(numpy.sum(a)), list(a.shape), dict(root[name].attrs).get("units")) for name, a in found.items()}
data = xarray.open_dataset("reference://", engine="zarr", group="g1", chunks=None, backend_kwargs={
    "storage_options": {"fo": text, **remote}})
found["xarray"] = (float(sum(data[name].values.sum() for name in data)), [len(data)], data["d001"].units)
assert importlib.util.find_spec("h5py") is None and "h5py" not in sys.modules
print(json.dumps(found))
"""


@check
def references_of_urls_are_read_without_hdf5(b):
    path = b.file("few.h5", make_walk, 40)
    with h5py.File(path) as f:
        want = {}
        f.visititems(lambda name, d: want.update({name: (d[()].sum(), list(d.shape), d.attrs["units"])}) if isinstance(d, h5py.Dataset) else None)
        want["xarray"] = (sum(d[()].sum() for d in f["g1"].values()), [len(f["g1"])], "m")
    python = os.path.join(sys.prefix, "references/bin/python")

    def read_by(text, protocol, options, environment):
        with open(os.path.join(b.folder, "references.json"), "wb") as f:
            f.write(text)
        assert all(v[0] == url for v in json.loads(text)["refs"].values() if isinstance(v, list))
        done = subprocess.run([python, "-c", REFERENCES_READER, f.name, protocol, json.dumps(options)], env=environment, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        found = json.loads(done.stdout)
        assert found.keys() == want.keys()
        for name, (total, shape, units) in found.items():
            assert abs(total - want[name][0]) < 1e-6 * abs(total) and [shape, units] == list(want[name][1:]), (name, total, want[name])

    url = b.url("few.h5")
    b.server.stats()
    text = b.ok("kerchunk", url)
    print(f"  {b.server.stats()['requests']} requests for {len(text) >> 10} KiB of references")
    assert json.loads(b.ok("kerchunk", path))["refs"].keys() == json.loads(text)["refs"].keys()
    read_by(text, "http", {}, b.environment)
    with bucket(b) as (client, environment):
        client.upload_file(path, "bucket", "runs/few.h5")
        url = "s3://bucket/runs/few.h5"
        options = {"key": "AK", "secret": "SK", "endpoint_url": environment["AWS_ENDPOINT_URL"]}
        read_by(b.ok("kerchunk", url, environment=environment), "s3", options, environment)
        # An object that is not there, and a group of one that is.
        done = b.run("kerchunk", "s3://bucket/none.h5", environment=environment)
        assert done.returncode == 3 and b"404" in done.stderr and not done.stdout, done
        refs = json.loads(b.ok("kerchunk", url + ":/g1", environment=environment))["refs"]
        assert refs["d001/0"][0] == url and "g1/d001/0" not in refs


@check
def a_container_in_s3_takes_two_writers(b):
    import boto3
    moto = Moto()
    try:
        client = boto3.client("s3", endpoint_url=moto.url, aws_access_key_id="AK", aws_secret_access_key="SK", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        keys = {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK", "AWS_REGION": "us-east-1"}
        environment = {**b.environment, "AWS_ENDPOINT_URL": moto.url, "AWS_ALLOW_HTTP": "true", **keys}
        url = "iod+s3://bucket/some/prefix"
        done = b.run("ls", url, environment=environment)
        assert done.returncode == 3 and b"no container" in done.stderr, done.stderr
        b.ok("create", url, environment=environment)
        path = b.file("walk.h5", make_walk)
        b.ok("cp", "-r", path + ":/", url + ":/", environment=environment)
        b.ok("diff", path + ":/", url + ":/", environment=environment)
        with b.mounted(url, "--read-write", environment=environment) as first, b.mounted(url, "--read-write", environment=environment) as second:
            for mount, offset, byte in [(first, 0, b"a"), (second, 8000, b"b"), (first, 800, b"c")]:
                fd = os.open(mount.path("g0/d000"), os.O_RDWR)
                os.pwrite(fd, byte * 800, offset)
                os.fsync(fd)
                os.close(fd)
            for i, mount in enumerate([first, second]):
                os.mkdir(mount.path(f"made-by-{i}"))
        with b.mounted(url, environment=environment) as m:
            data = read(m.path("g0/d000"))
            assert data[:1600] == b"a" * 800 + b"c" * 800 and data[8000:8800] == b"b" * 800
            assert {"made-by-0", "made-by-1"} <= set(os.listdir(m.at))
        b.ok("iod", "tag", url, "merged", environment=environment)
        with b.mounted(url, environment=environment) as m:
            numbers = os.listdir(m.path(".h5dir/versions"))
            assert sorted(map(int, numbers)) == list(range(1, len(numbers) + 1)), numbers
            assert read(m.path(f".h5dir/versions/{len(numbers)}/g0/d000")) == read(m.path(".h5dir/tags/merged/g0/d000")) == data
        log = b.ok("iod", "log", url, environment=environment)
        assert len(log.splitlines()) == len(client.list_objects_v2(Bucket="bucket", Prefix="some/prefix/v/")["Contents"])
        done = b.run("create", url, environment=environment)
        assert done.returncode != 0 and b"container already" in done.stderr, done.stderr
    finally:
        moto.close()


@check
def a_container_refers_to_an_hdf5_object_beside_it(b):
    path = os.path.join(b.folder, "linked.h5")
    make_tree(os.path.join(b.folder, "linked"))
    shutil.copy(os.path.join(b.folder, "linked", "sub", "b.h5"), path)
    with h5py.File(path, "a") as f:
        f["big"] = np.random.default_rng(3).integers(0, 1 << 60, 500_000)
    with bucket(b) as (client, environment):
        client.upload_file(path, "bucket", "data/run.h5")
        box, run = "iod+s3://bucket/data/box", lambda *arguments: b.run(*arguments, environment=environment)
        for source in ("s3://bucket/data/run.h5", path):
            done = run("cp", "-r", "--link", source, "iod+s3://bucket/other/box")
            assert done.returncode == 2 and b"--link" in done.stderr, done.stderr
        b.ok("cp", "-r", "--link", "s3://bucket/data/run.h5", box, environment=environment)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="data/box/d/")
        packed = sum(o["Size"] for page in pages for o in page.get("Contents", []))
        assert packed < 1 << 20, f"{packed} bytes in packs"
        b.ok("diff", "-r", path + ":/", box + ":/", environment=environment)
        with h5py.File(path) as f:
            want = f["big"][()].tobytes()
        with b.mounted(box, environment=environment) as m:
            assert read(m.path("big")) == want
        with b.mounted(box, "--external=off", environment=environment) as m:
            assert errno_of(lambda: read(m.path("big"))) == 5
        # Another object of this name, which lacks bytes that were linked.
        with h5py.File(path) as f:
            offset = f["big"].id.get_offset()
        data = bytearray(open(path, "rb").read())
        data[offset + 5] ^= 1
        client.put_object(Bucket="bucket", Key="data/run.h5", Body=bytes(data))
        with b.mounted(box, environment=environment) as m:
            assert errno_of(lambda: read(m.path("big"), 0, 8)) == 5
            assert read(m.path("big"), 2 * MIB, MIB) == want[2 * MIB:3 * MIB]
        client.delete_object(Bucket="bucket", Key="data/run.h5")
        done = run("cat", box + ":/big")
        assert done.returncode == 1 and b"run.h5" in done.stderr, done.stderr
        done = run("check", box)
        assert done.returncode == 1 and b"no such object" in done.stdout, done.stdout + done.stderr


def make_tree(top):
    """HDF5 files and other files, with and without endings of HDF5 files."""
    os.makedirs(os.path.join(top, "sub/deep"))
    for i, name in enumerate(("a.h5", "sub/b.h5", "sub/deep/c.nc", "sub/no ending")):
        with h5py.File(os.path.join(top, name), "w") as f:
            f["data"] = np.arange(100 * (i + 1))
            f.create_dataset("g/packed", data=np.arange(5000), chunks=(500,), compression="gzip").attrs["units"] = "m"
    with h5py.File(os.path.join(top, "block.h5"), "w", userblock_size=2048) as f:
        f["data"] = np.arange(9)
    make_plain(os.path.join(top, "large.h5"), 24 * MIB)
    for name, content in (("text.txt", b"text"), ("sub/fake.h5", b"no HDF5 file"), ("sub/empty", b"")):
        with open(os.path.join(top, name), "wb") as f:
            f.write(content)
    subprocess.run(["chmod", "-R", "u=rwX,go=rX", top], check=True)


@contextlib.contextmanager
def bucket(b):
    """A client of moto with an empty bucket, and the environment of commands that use it."""
    with moto_with_bucket(b) as (_, client, environment):
        yield client, environment


@contextlib.contextmanager
def moto_with_bucket(b):
    import boto3
    moto = Moto()
    try:
        client = boto3.client("s3", endpoint_url=moto.url, aws_access_key_id="AK", aws_secret_access_key="SK", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        keys = {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK", "AWS_REGION": "us-east-1"}
        yield moto, client, {**b.environment, "AWS_ENDPOINT_URL": moto.url, "AWS_ALLOW_HTTP": "true", **keys}
    finally:
        moto.close()


@check
def a_mount_goes_on_after_an_outage_of_its_store(b):
    def synced(mount, name, data):
        fd = os.open(mount.path(name), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.pwrite(fd, data, 0)
            os.fsync(fd)
        finally:
            os.close(fd)

    with moto_with_bucket(b) as (moto, _, environment):
        box = "iod+s3://bucket/box"
        b.ok("create", box, environment=environment)
        with b.mounted(box, "--read-write", "--remote-timeout", "2", "--commit-interval", "1000", environment=environment) as m:
            synced(m, "before", b"1" * 100)
            # It takes requests, and answers none: the last of them may still be served later.
            with servers.stopped(moto.process):
                assert errno_of(lambda: synced(m, "meanwhile", b"2" * 100)) in (5, 110)
                with open(m.path("later"), "wb") as f:
                    f.write(b"3" * 100)
                os.unlink(m.path("before"))
            synced(m, "after", b"4" * 100)
        with b.mounted(box, environment=environment) as m:
            assert set(os.listdir(m.at)) - {".h5dir"} == {"meanwhile", "later", "after"}
            assert [read(m.path(name)) for name in ("meanwhile", "later", "after")] == [b"2" * 100, b"3" * 100, b"4" * 100]
        done = b.run("check", "--data", box, environment=environment)
        assert done.returncode == 0, done.stdout


def later(condition, timeout=20):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it does not become true"
        time.sleep(0.1)


@check
def a_prefix_is_a_tree_like_a_directory(b):
    top = os.path.join(b.folder, "tree")
    make_tree(top)
    with bucket(b) as (client, environment):
        for root, _, names in os.walk(top):
            for name in names:
                path = os.path.join(root, name)
                client.upload_file(path, "bucket", "a/prefix/" + os.path.relpath(path, top))
        for i in range(300):
            client.put_object(Bucket="bucket", Key=f"many/{i:03}.{'h5' if i % 2 else 'txt'}", Body=b"x")
        url = "s3://bucket/a/prefix/"
        with b.mounted(top, "--external=off", "--file-mode=644") as local, b.mounted(url, "--file-mode=644", environment=environment) as remote:
            left, right = digest(local.at), digest(remote.at)
            assert left == right, [name for name in left | right if left.get(name) != right.get(name)][:5]
            assert digest(local.path(".h5dir/files")) == digest(remote.path(".h5dir/files"))
            print(f"  {len(left)} files: {remote.counters()['remote_requests']} requests")
        listings_take_few_requests(b, environment)
        with b.mounted(url, "--include=*.h5", "--exclude=sub/b*", environment=environment) as m:
            assert sorted(os.listdir(m.at)) == ["a.h5", "block.h5", "large.h5", "sub"]
            assert sorted(os.listdir(m.path("sub"))) == ["deep", "fake.h5"]
        names = sorted(os.listdir(top))
        assert b.ok("ls", url, environment=environment).decode().split("\n")[:-1] == names
        assert b"/sub/deep/c.nc/g:\npacked\n" in b.ok("ls", "-R", "--posix", url, environment=environment)
        assert b.ok("ls", "s3://bucket", environment=environment) == b"a\nmany\n"
        done = b.run("mount", "--read-write", url, b.folder, environment=environment)
        assert done.returncode == 2 and b"only read" in done.stderr, done
        for target, part in (("s3://bucket/none/", b"no object has this prefix"), ("s3://absent/a/", b"404")):
            done = b.run("mount", target, b.folder, environment=environment)
            assert done.returncode == 3 and part in done.stderr, done
        objects_come_and_go(b, client, environment)


def objects_come_and_go(b, client, environment):
    """New, removed and replaced objects below a prefix; a replaced one that is open is EIO."""
    put = lambda key, body: client.put_object(Bucket="bucket", Key="a/prefix/" + key, Body=body)
    options = ("--max-open=1", "--idle-timeout=1", "--readahead=128K", "--cache-size=64M")
    with b.mounted("s3://bucket/a/prefix/", *options, environment=environment) as m:
        for _ in range(2):
            for name in ("a.h5", "sub/b.h5"):
                assert len(read(m.path(f"{name}/g/packed"))) == 40_000
                assert m.counters()["open_containers"] == 1
        with open(m.path("large.h5/data"), "rb", buffering=0) as f:
            assert len(f.read(4096)) == 4096
            put("large.h5", open(os.path.join(b.folder, "tree/a.h5"), "rb").read())
            put("new/x.txt", b"new")
            client.delete_object(Bucket="bucket", Key="a/prefix/text.txt")
            assert errno_of(lambda: os.pread(f.fileno(), 4096, 20 * MIB)) == 5
        later(lambda: os.path.exists(m.path("large.h5/g/packed")))
        assert len(read(m.path("large.h5/data"))) == 800, "another object"
        later(lambda: {"new", "text.txt"} & set(os.listdir(m.at)) == {"new"})
        assert read(m.path("new/x.txt")) == b"new"
        later(lambda: m.counters()["open_containers"] == 0)
        assert "changed or removed" in m.log(), m.log()


def listings_take_few_requests(b, environment):
    """A listing with kinds is one request; a file costs one more when it is looked up."""
    with b.mounted("s3://bucket/many/", environment=environment) as m:
        requests = lambda: m.counters()["remote_requests"]
        kinds = {entry.name: entry.is_dir() for entry in os.scandir(m.at)}
        assert len(kinds) == 300 and kinds["001.h5"] and not kinds["000.txt"]
        listed = requests()
        assert not os.path.isdir(m.path("001.h5")) and read(m.path("000.txt")) == b"x", "the first bytes decide"
        print(f"  300 names: {listed} requests; 2 files: {requests() - listed}")
        assert listed <= 3 and requests() - listed <= 6


def main():
    h5dir, wanted = sys.argv[1], sys.argv[2:]
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="h5dir-objectstore-", dir="/var/tmp") as folder:
        bench = Bench(h5dir, folder)
        try:
            for one in CHECKS + containers.CHECKS + failures.CHECKS + hostile.CHECKS:
                if wanted and not any(name in one.__name__ for name in wanted):
                    continue
                start = time.monotonic()
                try:
                    one(bench)
                    passed += 1
                    print(f"ok     {one.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
                except Exception:
                    failed += 1
                    print(f"FAILED {one.__name__}\n{traceback.format_exc()}", flush=True)
                    bench.server.set(latency=0, status_count=0, cut_count=0, drop_count=0, hang_count=0, etags=True,
                                     etag_suffix="", if_match_works=True, ranges=True, user=None)
        finally:
            bench.closing.close()
            bench.server.close()
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
