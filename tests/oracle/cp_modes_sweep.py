#!/usr/bin/env python3
"""Modes, owners and links that `h5dir cp` leaves behind: with -r those of cp(1), whatever a file states; with -a those of the file.

    tests/oracle/cp_modes_sweep.py --bin PATH/TO/h5dir
"""
import os

import h5py
import numpy as np

import harness
from cp_sweep import run


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def modes(t, options, place):
    source, mine, archived = (os.path.join(place, "modes" + name) for name in (".h5", "", "-archived"))
    with h5py.File(source, "w") as f:
        f["f"] = f["d/f"] = f["old/f"] = f["old/private"] = np.arange(3)
        f["link"] = h5py.SoftLink("/f")
    with harness.mounted(options.bin, source, "--read-write") as mount:
        for name, mode in (("", 0o1777), ("f", 0o6777), ("d", 0o1777), ("d/f", 0o666), ("old", 0o777), ("old/f", 0o666), ("old/private", 0o777)):
            os.chmod(f"{mount}/{name}", mode)
        if os.geteuid() == 0:
            os.chown(mount + "/link", 1234, 1234, follow_symlinks=False)

    def of(*path):
        return oct(os.lstat(os.path.join(*path)).st_mode & 0o7777)

    for folder, flag in ((mine, "-r"), (archived, "-a")):
        os.makedirs(folder + "/old")
        write(folder + "/old/private", b"secret")
        os.chmod(folder + "/old/private", 0o600)
        os.utime(folder, (1e9, 1e9))
        os.chmod(folder, 0o700)
        os.chmod(folder + "/old", 0o750)
        run(options, "cp", flag, source + ":/", folder, umask=0o027)
    names = ("", "old", "old/f", "old/private", "f", "d", "d/f")
    t.equal([of(mine, n) for n in names], ["0o700", "0o750", "0o640", "0o600", "0o750", "0o750", "0o640"], "modes by cp -r")
    t.equal([of(archived, n) for n in names], ["0o1777", "0o777", "0o666", "0o777", "0o777", "0o1777", "0o666"], "modes by cp -a")
    t.equal(os.lstat(mine + "/link").st_uid, os.geteuid(), "owner of a link by cp -r")
    t.equal(os.lstat(archived + "/link").st_uid, 1234 if os.geteuid() == 0 else os.geteuid(), "owner of a link by cp -a")
    target = os.path.join(place, "modes-into.h5")
    with h5py.File(target, "w") as f:
        f.create_group("old")
    with harness.mounted(options.bin, target, "--read-write") as mount:
        os.chmod(mount, 0o700)
        os.chmod(mount + "/old", 0o750)
    run(options, "cp", "-r", source + ":/", target + ":/")
    run(options, "cp", "-r", "--create", source + ":/", os.path.join(place, "modes-new.h5") + ":/")
    with harness.mounted(options.bin, target) as mount:
        t.equal([of(mount, n) for n in names[:3] + ("d",)], ["0o700", "0o750", "0o666", "0o1777"], "modes of groups that were there")
    with harness.mounted(options.bin, os.path.join(place, "modes-new.h5")) as mount:
        t.equal([of(mount, n) for n in ("", "d")], ["0o1777", "0o1777"], "modes of a new file")


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    with harness.folder(options.keep) as place:
        modes(t, options, place)
    t.finish()


if __name__ == "__main__":
    main()
