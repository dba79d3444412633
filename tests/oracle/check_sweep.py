#!/usr/bin/env python3
"""Runs `h5dir check` on files that libhdf5 writes, on the same files damaged at known places, and on the corpus.

What libhdf5 wrote and reads has no problem. What it refuses to open or to read has at least one.
"""
import json
import os
import resource
import shutil
import struct
import subprocess

import h5py
import numpy as np

import hostile_make
import space_sweep
from harness import TOP, Tally, arguments, folder, read

CORPUS = os.environ.get("CORPUS", os.path.join(TOP, "..", "shared", "corpus"))
# A dataset of more than 2^64 bytes, which libhdf5 opens.
TOO_LARGE = {"files/hdf5-1.14.6/test/tlayouto.h5"}
KIND = {"damaged", "not checked", "missing file", "claimed twice", "past end", "free in use"}


def check(binary, path, *options):
    """Exit code, JSON (None: nothing was printed), standard error."""
    done = subprocess.run([binary, "check", "--json", *options, path], stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = None
    return done.returncode, found, done.stderr.decode(errors="replace")


def sound(tally, binary, path):
    code, found, errors = check(binary, path, "--data")
    tally.equal((code, errors, found and found["findings"]), (0, "", []), path)


def written(tally, binary, place):
    """Every kind of structure, as several releases of libhdf5 write it."""
    for libver in ["earliest", "v108", "v110"]:
        for kind in space_sweep.KINDS:
            if kind is space_sweep.virtual and libver != "v110":
                continue
            path = os.path.join(place, f"{kind.__name__}_{libver}.h5")
            with h5py.File(path, "w", libver=(libver, "v110" if libver == "earliest" else libver)) as f:
                kind(f)
            if kind in (space_sweep.virtual, space_sweep.contiguous):
                # Their other files do not exist.
                code, found, errors = check(binary, path)
                tally.equal((code, errors, found["findings"]), (0, "", []), path)
            else:
                sound(tally, binary, path)


def damaged(tally, binary, place, name, change, problem, where, data=False):
    """A file damaged by `change` of its bytes: one problem at least of this kind, at this path."""
    path = os.path.join(place, f"damaged_{name}.h5")
    shutil.copy(os.path.join(place, "sample.h5"), path)
    content = bytearray(read(path))
    with h5py.File(path) as f:
        content = change(content, f) or content
    with open(path, "wb") as f:
        f.write(content)
    if data:
        tally.equal(check(binary, path)[0], 0, name + " is not found without --data")
    code, found, errors = check(binary, path, *(["--data"] if data else []))
    tally.equal(code, 1, name)
    tally.check(errors.count("\n") >= 1 and "panic" not in errors, f"{name}: {errors}")
    at = [(f["problem"], f["path"]) for f in found["findings"]] if found else None
    tally.check(at is not None and (problem, where) in at and {kind for kind, _ in at} <= KIND, f"{name}: {at}")
    if found:
        tally.equal(found["problems"], sum(kind != "not checked" for kind, _ in at), name + ": sum")
        text = subprocess.run([binary, "check", *(["--data"] if data else []), path], capture_output=True, text=True).stdout
        tally.check(where is None or any(line.startswith(where + ": ") for line in text.splitlines()), f"{name}: {text}")


def header(f, name):
    return h5py.h5o.get_info(f[name].id).addr


def flip(at):
    def change(content, f):
        content[at(f)] ^= 0xFF

    return change


def move(content, f):
    """The contiguous dataset `b`, which is visited first, gets the address of `a`. The version 1 header has no checksum."""
    old, new = f["b"].id.get_offset(), f["a"].id.get_offset()
    at = content.index(struct.pack("<QQ", old, f["b"].nbytes), header(f, "b"))
    content[at : at + 8] = struct.pack("<Q", new)


def past(content, f):
    at = content.index(struct.pack("<QQ", f["b"].id.get_offset(), f["b"].nbytes), header(f, "b"))
    content[at : at + 8] = struct.pack("<Q", len(content) - 100)


def messages(content, f):
    content[header(f, "b") + 2] += 1


def samples(tally, binary, place):
    with h5py.File(os.path.join(place, "sample.h5"), "w", libver=("earliest", "v110")) as f:
        f["a"] = np.arange(1000)
        f["b"] = np.arange(1000)
        f.create_dataset("group/packed", data=np.arange(5000), chunks=(1000,), compression="gzip", shuffle=True, fletcher32=True)
        f["group"].create_dataset("many", data=np.arange(5000), chunks=(10,))
        f.create_group("dense", track_order=True)
        for i in range(100):
            f["dense"][f"link {i}"] = h5py.SoftLink("/a")
        f["text"] = ["some", "words"]
        f["link"] = h5py.ExternalLink("other.h5", "/x")
    sound(tally, binary, os.path.join(place, "sample.h5"))
    cases = [
        ("chunk", flip(lambda f: f["group/packed"].id.get_chunk_info(2).byte_offset + 5), "damaged", "/group/packed", True),
        ("header", flip(lambda f: header(f, "a")), "damaged", "/a"),
        ("heap", flip(lambda f: read(f.filename).index(b"FRHP") + 20), "damaged", "/dense"),
        ("btree", flip(lambda f: read(f.filename).index(b"BTHD") + 9), "damaged", "/dense"),
        ("collection", flip(lambda f: read(f.filename).index(b"GCOL")), "damaged", "/text"),
        ("overlap", move, "claimed twice", "/a"),
        ("past", past, "past end", "/b"),
        ("messages", messages, "damaged", "/b"),
        ("cut", lambda content, f: content[:-200], "damaged", None),
    ]
    for name, change, problem, where, *data in cases:
        damaged(tally, binary, place, name, change, problem, where, *data)
    damaged_free(tally, binary, place)
    none = os.path.join(place, "text.txt")
    with open(none, "w") as f:
        f.write("no HDF5\n")
    tally.equal([check(binary, p)[0] for p in (none, none + ".gone")], [3, 3], "no HDF5")


def damaged_free(tally, binary, place):
    """Space that is listed as free and used."""
    path = os.path.join(place, "free.h5")
    with h5py.File(path, "w", libver="v110", fs_strategy="fsm", fs_persist=True) as f:
        f["a"], f["b"], f["c"] = np.arange(500), np.arange(500), np.arange(500)
        del f["b"]
    sound(tally, binary, path)
    code, found, _ = check(binary, path)
    tally.check(code == 0 and found["free"] > 3000, f"free space: {found}")


def with_holes(tally, binary, place):
    """Regression: elements in which a hole of the file ends were taken for holes, and what they refer to for dead."""
    path = os.path.join(place, "holes.h5")
    with h5py.File(path, "w") as f:
        t = np.dtype([("before", "S8192"), ("text", h5py.string_dtype()), ("after", "S8192")])
        f["d"] = np.array([(b"", "text " * (i + 1), b"") for i in range(500)], dtype=t)
    _, dense, _ = check(binary, path, "--data")
    subprocess.run(["fallocate", "--dig-holes", path], check=True)
    tally.check(os.stat(path).st_blocks * 512 < os.path.getsize(path) / 2, "holes were made")
    sound(tally, binary, path)
    _, sparse, _ = check(binary, path, "--data")
    tally.equal((sparse["live"], sparse["dead"]), (dense["live"], dense["dead"]), "a file with holes")


def hostile(tally, binary, place):
    """Files that would take for ever, or all memory."""
    os.mkdir(place)
    hostile_make.make(place)
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    for name in sorted(os.listdir(place)):
        path = os.path.join(place, name)
        if not os.path.isfile(path) or not name.endswith(".h5"):
            continue
        command = [binary, "check", "--data", path]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, preexec_fn=limit)
            tally.check(done.returncode in (0, 1, 3) and b"panic" not in done.stderr, f"{name}: {done.returncode} {done.stderr[-200:]}")
        except subprocess.TimeoutExpired:
            tally.check(False, f"{name}: still running after 120 s")


def refused(value):
    """Errors in libhdf5's reading of a file."""
    if isinstance(value, dict):
        return bool(value.get("error")) or any(refused(part) for part in value.values())
    return isinstance(value, list) and any(refused(part) for part in value)


def corpus(tally, binary):
    """libhdf5's reading of each file, against what the check says."""
    counts = {"sound": 0, "problems": 0, "refused by both": 0}
    if not os.path.isdir(CORPUS):
        print(f"no corpus at {CORPUS}: not checked against it")
        return
    with open(os.path.join(CORPUS, "shared.txt")) as f:
        names = f.read().split("\n")
    for name in filter(None, names):
        oracle = os.path.join(CORPUS, "oracle", name + ".json")
        if not os.path.exists(oracle):
            continue
        with open(oracle) as f:
            reading = json.load(f)
        code, found, errors = check(binary, os.path.join(CORPUS, name), "--data")
        tally.check("panic" not in errors and code in (0, 1, 3), f"{name}: {code} {errors}")
        bad = not reading["openable"] or refused(reading.get("entries", []))
        counts["sound" if code == 0 else "problems" if code == 1 else "refused by both"] += 1
        if name.startswith("malformed") and bad:
            tally.check(code != 0, f"{name}: libhdf5 refuses it")
        elif not name.startswith("malformed") and not bad and name not in TOO_LARGE:
            tally.check(code == 0, f"{name}: libhdf5 reads it: {errors} {found and found['findings'][:3]}")
    print("corpus:", ", ".join(f"{n} {what}" for what, n in counts.items()))


def main():
    given, tally = arguments(__doc__), Tally()
    with folder(given.keep) as place:
        written(tally, given.bin, place)
        samples(tally, given.bin, place)
        with_holes(tally, given.bin, place)
        hostile(tally, given.bin, os.path.join(place, "hostile"))
    corpus(tally, given.bin)
    tally.finish()


if __name__ == "__main__":
    main()
