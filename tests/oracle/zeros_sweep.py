#!/usr/bin/env python3
"""Zeros in datasets whose fill value is another: every way to copy or describe a file of zeros keeps them."""
import json
import os
import subprocess

import h5py
import numpy as np

import harness

SHAPES = {"small": ((10,), {}), "contiguous": ((100, 100), {}), "chunked": ((100, 100), {"chunks": (10, 100)}),
          "packed": ((100, 100), {"chunks": (10, 100), "maxshape": (None, 100), "compression": "gzip"}), "large": ((300, 1000), {"chunks": (7, 1000)})}
WAYS = {"cp": "cp -a {s}/. {d}/", "cp-sparse": "cp -a --sparse=always {s}/. {d}/", "rsync": "rsync -aX {s}/ {d}/", "rsync-sparse": "rsync -aXS {s}/ {d}/",
        "tar": "tar --xattrs -cf - -C {s} . | tar --xattrs --xattrs-include='*' -xf - -C {d}"}


def make(path):
    with h5py.File(path, "w") as f:
        for name, (shape, options) in SHAPES.items():
            zeros = np.zeros(shape, "<i4")
            f.create_dataset(name, data=zeros, fillvalue=-1, **options)
            zeros.flat[3] = 5
            f.create_dataset(name + "-one", data=zeros, fillvalue=-1, **options)
            f.create_dataset(name + "-unwritten", shape, "<i4", fillvalue=-1, **options)
            f.create_dataset(name + "-plain", data=np.zeros(shape, "<i4"), **options)


def copies(t, binary, source, target, folder):
    with h5py.File(source) as f:
        want = {name: f[name][()].tobytes() for name in f}
    with harness.mounted(binary, source) as s:
        with harness.mounted(binary, target, "--read-write") as d:
            for way, command in WAYS.items():
                os.mkdir(f"{d}/{way}")
                subprocess.run(["bash", "-c", "set -o pipefail; " + command.format(s=s, d=f"{d}/{way}")], check=True)
        # After a remount the mount knows nothing of how the bytes came.
        with harness.mounted(binary, target, "--read-write") as d:
            for way in WAYS:
                for name, data in want.items():
                    t.equal(harness.read(f"{d}/{way}/{name}"), data, f"{target} {way} {name}")
    exported = os.path.join(folder, "exported.h5")
    subprocess.run([binary, "create", exported], check=True)
    subprocess.run([binary, "cp", "-r", f"{target}:/", exported + ":/all"], check=True)
    with h5py.File(exported) as f:
        for way in WAYS:
            for name, data in want.items():
                t.equal(f["all"][way][name][()].tobytes(), data, f"{target} {way} {name}, read by h5py")
                t.equal(f["all"][way][name].fillvalue, 0 if name.endswith("plain") else -1, f"{target} {way} {name}: fill value")
    os.unlink(exported)


def described(t, binary, target, folder):
    """A file of bytes is described, or a dataset gets another fill value: it reads as before, unless only its shape was set."""
    spec = lambda n, **more: json.dumps({"dtype": "<i4", "shape": [n], **more}).encode()

    def set_spec(path, value, name="dataset"):
        os.setxattr(path, "user.h5dir." + name, value)

    with harness.mounted(binary, target, "--read-write") as d:
        for size in (40, 40_000, 400_000):
            for how in ("written", "synced", "truncated", "punched", "moved"):
                for layout in ("contiguous", "chunked"):
                    path = f"{d}/{how}-{layout}-{size}"
                    with open(path, "wb") as f:
                        if how in ("truncated", "punched"):
                            f.truncate(size)
                        else:
                            f.write(bytes(size))
                        f.flush()
                        if how == "synced":
                            os.fsync(f.fileno())
                        if how == "punched":
                            subprocess.run(["fallocate", "-p", "-l", str(size), path], check=True)
                    if how == "moved":
                        os.rename(path, path + "x")
                        os.rename(path + "x", path)
                    wrong = None
                    try:
                        if how in ("written", "synced", "moved"):
                            set_spec(path, spec(size // 4 + 1, layout=layout, fillvalue=7))
                        else:
                            wrong = 22
                    except OSError as e:
                        wrong = e.errno
                    if not target.startswith("iod:"):
                        t.equal(wrong, 22, f"{path}: another number of bytes than was written")
                        t.equal(os.stat(path).st_size, size, f"{path} keeps its size")
                    elif wrong is None:
                        continue
                    set_spec(path, spec(size // 4, layout=layout, fillvalue=7))
                    t.equal(harness.read(path), bytes(size), f"{target} {path}")
                    set_spec(path, b"9", "fillvalue")
                    t.equal(harness.read(path), bytes(size), f"{target} {path} with another fill value")
        # By facts of an empty file.
        for n, facts in enumerate(([("dtype", b"<i4"), ("shape", b"[1000]"), ("fillvalue", b"7")], [("dataset", spec(1000)), ("fillvalue", b"7")], [("dataset", spec(100_000)), ("fillvalue", b"7")],
                                   [("dataset", spec(1000, maxshape=[None], chunks=[10])), ("shape", b"[2000]"), ("fillvalue", b"7")])):
            path = f"{d}/shaped-{n}"
            open(path, "wb").close()
            for name, value in facts:
                set_spec(path, value, name)
            t.equal(set(np.fromfile(path, "<i4")), {7}, f"{target} {facts}")
        path = f"{d}/written-later"
        open(path, "wb").close()
        set_spec(path, spec(1000))
        with open(path, "r+b") as f:
            f.write(bytes(8))
        set_spec(path, b"7", "fillvalue")
        t.equal(harness.read(path), bytes(4000), f"{target} {path}")


def main():
    options, t = harness.arguments(__doc__.splitlines()[0]), harness.Tally()
    with harness.folder(options.keep) as folder:
        source = os.path.join(folder, "source.h5")
        make(source)
        for target in (os.path.join(folder, "f.h5"), "iod:" + os.path.join(folder, "container")):
            subprocess.run([options.bin, "create", target], check=True)
            copies(t, options.bin, source, target, folder)
            described(t, options.bin, target, folder)
    t.finish()


if __name__ == "__main__":
    main()
