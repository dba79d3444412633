#!/usr/bin/env python3
"""Messages of commands that fail: exit code, and what they say to do next, in one line.

    messages_sweep.py [--bin H5DIR] [--keep FOLDER] [--seed N]
"""
import errno
import gzip
import json
import os
import signal
import sys
import time

import h5py
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from commands_sweep import Commands
from harness import Tally, arguments, folder, mounted, read

# Command, exit code, parts of the message.
MESSAGES = [
    ("mount d.h5:/mask m", 5, ["d.h5:/mask: it is a dataset"]),
    ("mount d.h5:/none m", 5, ["it has no group /none"]),
    ("mount d.h5/run1 m", 3, ["d.h5:/run1"]),
    ("ls d.h5/run1/deep", 3, ["d.h5:/run1/deep"]),
    ("mount ftp://x/y.h5 m", 2, ["ftp:// is no known scheme", "s3://"]),
    ("ls ftp://x/y.h5", 2, ["ftp://x/y.h5", "no known scheme"]),
    ("check ftp://x/y.h5", 2, ["no known scheme"]),
    ("mount s3:/b/a.h5 m", 2, ["two slashes", "s3://"]),
    ("cat s3:/b/a.h5:/x", 2, ["two slashes"]),
    ("mount iod+foo:// m", 2, ["iod+foo:// is no known scheme"]),
    ("check d.h5:/mask", 2, ["check takes whole files", "without :/mask"]),
    ("check cut.h5", 1, ["was cut; ", "--rescue"]),
    ("recover cut.h5", 3, ["cut: 3000 of ", "--rescue"]),
    ("cp text nofile.h5:/x", 3, ["nofile.h5:/x", "--create"]),
    ("cp text s3://b/copy.h5", 2, ["object stores are only read"]),
    ("cp text s3://b/big.h5:/x", 2, ["object stores are only read"]),
    ("diff d.h5 text", 2, ["text: it is not an HDF5 file"]),
    ("create iod:.", 3, ["a new folder, or an empty one"]),
    ("create d.h5", 3, ["File exists; remove it first"]),
    ("cat bad.h5:/z", 1, ["bad.h5:/z", "chunk", "deflate"]),
    ("cp bad.h5:/z zz", 1, ["bad.h5:/z", "deflate"]),
    ("diff bad.h5 d.h5", 2, ["/z", "deflate", "1 object could not"]),
    ("cp text d.h5:/mask", 1, ["6 bytes", "400", "-f replaces"]),
    ("mount -o cachesize=1G d.h5 m", 2, ["did you mean 'cache-size'?"]),
    ("mount -o foo=1 d.h5 m", 2, ["'foo'", "lists the options"]),
    ("mount --cache-size -1 d.h5 m", 2, ["invalid value '-1'"]),
    ("mount --threads -1 d.h5 m", 2, ["'-1'"]),
    ("ls -1 d.h5", 2, ["unexpected argument '-1'"]),
    ("ls n3.nc", 3, ["netCDF-3", "nccopy"]),
    ("mount h4.hdf m", 3, ["HDF4", "h4toh5"]),
    ("check d.h5.gz", 3, ["gzip", "gunzip"]),
    ("cat empty.h5:/x", 3, ["empty"]),
    ("ls text", 3, ["no HDF5 signature"]),
    ("log m", 2, [".h5dir/log"]),
    ("ls --version 3 d.h5", 2, ["no versions"]),
    ("check --version 3 d.h5", 2, ["no versions"]),
    ("cat --version 3 d.h5:/mask", 2, ["no versions"]),
    ("find --version 3 d.h5", 2, ["no versions"]),
    ("erase --json --select 0:1 d.h5:/z", 2, ["omit --json"]),
    ("defined --select a d.h5:/z", 1, ["/z", '"a"', "range"]),
    ("erase --select 0:1,2:3 d.h5:/z", 1, ["/z"]),
    ("defined d.h5:/run1", 1, ["no dataset"]),
    ("erase --select 0:1 d.h5:/run1", 1, ["no dataset"]),
]
# Options that few need: in --help only.
RARE = ["stay-awake", "attr-timeout", "entry-timeout", "max-open", "idle-timeout", "readahead", "threads", "modes", "vds-missing", "metrics-interval",
        "log "]


def make(c):
    with h5py.File(c.path("d.h5"), "w") as f:
        f["mask"], f["run1/x"] = np.zeros(100, "<i4"), 1
        z = f.create_dataset("z", data=np.arange(10_000), chunks=(1000,), compression="gzip")
        offset = z.id.get_chunk_info(0).byte_offset
    data = bytearray(read(c.path("d.h5")))
    data[offset + 2:offset + 40] = b"\xff" * 38
    files = {"bad.h5": data, "cut.h5": read(c.path("d.h5"))[:3000], "n3.nc": b"CDF\x01" + bytes(60), "h4.hdf": b"\x0e\x03\x13\x01" + bytes(60),
             "d.h5.gz": gzip.compress(read(c.path("d.h5"))), "text": b"hello\n", "empty.h5": b""}
    for name, content in files.items():
        with open(c.path(name), "wb") as f:
            f.write(content)
    os.makedirs(c.path("m"))


def of_mounts(c, binary, tally):
    """What is said of mounts: refused writes, a dead daemon, a part of a transaction that was not finished."""
    with mounted(binary, "--read-write", c.path("d.h5")) as m:
        for _ in range(2):
            tally.check(fails(errno.EPERM, os.truncate, f"{m}/mask", 5), "a fixed size")
        log = read(f"{m}/.h5dir/log").decode()
        tally.check(log.count("d.h5:/mask: only chunked datasets change their size; ") == 1 and "conv=notrunc" in log, f"log: {log}")
        tally.check("conv=notrunc" in os.getxattr(f"{m}/mask", "user.h5dir.error").decode(), "reason of the file")
    with mounted(binary, "--read-write", c.path("d.h5") + ":/run1") as m:
        tally.check(fails(errno.EPERM, os.truncate, f"{m}/x", 5), "a scalar")
        tally.check("d.h5:/run1/x: " in read(f"{m}/.h5dir/log").decode(), "log of a mounted group")
    with mounted(binary, c.path("bad.h5")) as m:
        tally.check(fails(errno.EIO, read, f"{m}/z"), "a damaged chunk")
        tally.check("bad.h5:/z: " in read(f"{m}/.h5dir/log").decode(), "log of a read-only mount")
    c.run("mount", "d.h5", "m")
    pid = next(e["pid"] for e in json.loads(c.run("status", "--json").stdout) if e["mountpoint"] == os.path.realpath(c.path("m")))
    os.kill(pid, signal.SIGKILL)
    while not fails(errno.ENOTCONN, os.listdir, c.path("m")):
        time.sleep(0.01)
    for command in ("status", "ls"):
        errors = c.run(command, "m").stderr.decode()
        tally.check("daemon" in errors and "'h5dir umount' removes" in errors, f"{command} of a dead mount: {errors}")
    tally.equal(c.run("umount", "m").returncode, 0, "umount of a dead mount")
    c.run("create", "iod:container")
    c.run("mount", "--read-write", "--transaction", "t,peers=2", "iod:container", "m")
    os.mkdir(c.path("m/g"))
    ended = c.run("umount", "m")
    text = ended.stderr.decode()
    tally.check(ended.returncode == 1 and "not finished" in text and "control" in text and "I/O error" not in text, f"unfinished: {text}")


def fails(number, call, *args):
    try:
        call(*args)
    except OSError as e:
        return e.errno == number
    return False


def main():
    options = arguments(__doc__)
    tally = Tally()
    with folder(options.keep) as place:
        c = Commands(options.bin, place, tally)
        make(c)
        for line, code, parts in MESSAGES:
            out, errors = c.ends(code, *line.split())
            tally.check(all(part in errors for part in parts), f"{line}: {errors}")
            tally.check("-- -" not in errors, f"{line}: advice that misleads: {errors}")
        for command in ("mount", "ls"):
            tally.check("empty" in c.run(command, "", "m").stderr.decode(), f"{command} of an empty name")
        short, long = c.ends(0, "mount", "-h")[0], c.ends(0, "mount", "--help")[0]
        tally.equal([name for name in RARE if f"--{name}" in short], [], "rare options in the short help")
        tally.equal([name for name in RARE if f"--{name}" not in long], [], "rare options in the long help")
        tally.check("--json" not in c.ends(0, "erase", "--help")[0], "options of erase")
        of_mounts(c, options.bin, tally)
        tally.check(not os.path.ismount(c.path("m")), "nothing is mounted")
    tally.finish()


if __name__ == "__main__":
    main()
