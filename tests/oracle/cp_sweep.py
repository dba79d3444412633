"""`h5dir cp`, `cat` and `diff` without a mount: against cp -a from a mount, h5py, h5diff and h5dump.

Also failing halfway: a full disk, signals, links in the destination; and the lines of the README.
"""
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

import h5py
import hdf5plugin
import numpy as np

import cp_stored_sweep
import harness

FILTERS = {
    "gzip": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf"},
    "scaleoffset": {"scaleoffset": 0},
    "szip": {"compression": "szip"},
    "zstd": hdf5plugin.Zstd(clevel=5),
    "blosc": hdf5plugin.Blosc(cname="lz4"),
    "bitshuffle": hdf5plugin.Bitshuffle(cname="lz4"),
}
DTYPES = ["i1", "u1", "<i2", ">u2", "<i4", ">i4", "<u8", ">i8", "<f2", "<f4", ">f4", "<f8", "<c8", ">c16", "?", "S5", "V3",
          [("a", "<i2"), ("b", ">f4", (2, 2)), ("c", [("d", "u1"), ("e", "S3")])]]


def run(options, *args, code=0, **more):
    """Runs h5dir; its output. None as the code: any."""
    done = subprocess.run([options.bin, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300,
                          stdin=more.pop("stdin", subprocess.DEVNULL), **more)
    if code is not None and done.returncode != code:
        sys.exit(f"h5dir {args}: {done.returncode}, not {code}\n{done.stdout[-2000:]}\n{done.stderr.decode()[-2000:]}")
    return done


def make(path, rng, libver=("v110", "v110"), plain=False):
    """A file of every type, layout, filter and kind of link that h5py can write; `plain`: h5diff can compare all of it."""
    with h5py.File(path, "w", libver=libver, track_order=False) as f:
        f.attrs["title"], f.attrs["numbers"] = "all", np.arange(5, dtype=">i2")
        types = f.create_group("types")
        for i, dtype in enumerate(DTYPES):
            dtype = np.dtype(dtype)
            data = rng.integers(0, 2, 12 * dtype.itemsize, dtype=np.uint8).view(dtype).reshape(3, 4)
            d = types.create_dataset(f"t{i}", data=data, dtype=dtype)
            d.attrs["units"], d.attrs["one"] = "m", data[0, 0]
        layouts = f.create_group("layouts")
        numbers = rng.integers(0, 1000, (40, 30)).astype("<i4")
        layouts.create_dataset("contiguous", data=numbers)
        layouts.create_dataset("scalar", data=7.5)
        if not plain:
            layouts.create_dataset("null", data=h5py.Empty("<f4"))
            layouts.create_dataset("none", (0, 4), "<f8", maxshape=(None, 4))
            layouts.create_dataset("never", (1000,), "<i2", chunks=(10,))
        layouts.create_dataset("grows", data=numbers, maxshape=(None, 60), chunks=(7, 9), fillvalue=-3)
        hole = layouts.create_dataset("hole", (1 << 20,), "<f8", chunks=(1 << 12,), maxshape=(None,))
        hole[1000:1200], hole[900_000:900_001] = 1.0, 2.0
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((5,))
        h5py.h5d.create(layouts.id, b"compact", h5py.h5t.STD_I16LE, space, compact).write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(5, dtype="<i2"))
        filters = f.create_group("filters")
        for label, kind in list(FILTERS.items())[: 1 if plain else None]:
            for dtype in ("<i4", "<f4"):
                try:
                    filters.create_dataset(f"{label} {dtype}", data=numbers.astype(dtype), chunks=(16, 16), **kind)
                except (OSError, ValueError):
                    if f"{label} {dtype}" in filters:
                        del filters[f"{label} {dtype}"]
        text = f.create_group("text")
        words = ["", "one", "two words", "\u00e9t\u00e9", "line\nbreak", "\n"]
        text.create_dataset("lines", data=words[:4], dtype=h5py.string_dtype(), maxshape=(None,))
        text.create_dataset("newlines", data=words, dtype=h5py.string_dtype())
        text.create_dataset("many", data=["a\nb"] * 20000, dtype=h5py.string_dtype(), chunks=(100,))
        sequences = text.create_dataset("sequences", (4,), h5py.vlen_dtype(np.dtype("<i4")))
        for i in range(4):
            sequences[i] = np.arange(i)
        links = f.create_group("links")
        links["hard"] = types["t0"]
        links["soft"], links["dangling"] = h5py.SoftLink("/types/t1"), h5py.SoftLink("/none")
        links["relative"], links["external"] = h5py.SoftLink("hard"), h5py.ExternalLink("other.h5", "/x")
        links["up"], links["group"] = f["/"], types
        f["named"] = np.dtype("<i8")
        f.create_dataset("of named type", data=np.arange(3), dtype=f["named"])
        if plain:
            return
        f.create_dataset("references", data=[types["t0"].ref, layouts.ref, None], dtype=h5py.ref_dtype)
        f["types"].attrs["first"] = types["t0"].ref


def tree(top):
    """What a program sees of a directory: kinds, modes, times, bytes, link targets."""
    found = {}
    for base, directories, files in os.walk(top):
        for name in directories + files:
            path = os.path.join(base, name)
            s = os.lstat(path)
            what = os.readlink(path) if stat.S_ISLNK(s.st_mode) else harness.read(path) if stat.S_ISREG(s.st_mode) else None
            mode = s.st_mode if not stat.S_ISLNK(s.st_mode) else "link"
            times = s.st_mtime_ns if what is None or not stat.S_ISLNK(s.st_mode) else None
            found[os.path.relpath(path, top)] = mode, times, what, s.st_nlink if what is not None else 0
    return found


def h5diff(a, b):
    """The exit code and the text of h5diff; other links than hard ones are not followed."""
    done = subprocess.run(["h5diff", "-v", a, b], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    return done.returncode, done.stdout.decode(errors="replace")


def out_of_files(t, options, place):
    """HDF5 to local: as cp -a from a mount."""
    source = os.path.join(place, "all.h5")
    for flags in ("-r", "-a"):
        mine, theirs = os.path.join(place, "mine" + flags), os.path.join(place, "theirs" + flags)
        run(options, "cp", flags, source + ":/", mine, code=None)
        with harness.mounted(options.bin, source) as mount:
            os.mkdir(theirs)
            subprocess.run(["cp", "-a", mount + "/.", theirs], timeout=300)
        a, b = tree(mine), tree(theirs)
        t.equal(sorted(a), sorted(b), f"{flags}: names")
        for name in b:
            t.equal(a.get(name), b[name], f"{flags} {name}: mode, time, content")
        t.check(len(b) > 40, f"{len(b)} files")
        for name in ("layouts/hole", "layouts/never"):
            # Two chunks of 32 KiB, and extended attributes.
            t.check(os.stat(os.path.join(mine, name)).st_blocks * 512 <= 80 << 10, f"{flags} {name}: sparse")
    t.check(b"shape" in os.getxattr(mine + "/layouts/grows", "user.h5dir.dataset"), "-a keeps the type")
    t.equal(os.getxattr(mine + "/types/t3", "user.units"), b"m", "-a keeps attributes")
    t.equal([n for n in os.listxattr(os.path.join(place, "mine-r/types/t3"))], [], "-r keeps no attributes")
    for view in ("json", "npy", "chunks", "attrs"):
        run(options, "cp", "-r", f"{source}:/.h5dir/{view}", place)
        done = run(options, "diff", "-r", f"{source}:/.h5dir/{view}", os.path.join(place, view), code=None)
        t.equal((done.returncode, done.stdout), (0, b""), f"the view {view}")
        t.check(sum(len(files) for _, _, files in os.walk(os.path.join(place, view))) > 20, f"files of the view {view}")
    one = os.path.join(place, "one.npy")
    run(options, "cp", source + ":/.h5dir/npy/layouts/contiguous.npy", one)
    with h5py.File(source) as f:
        t.check(np.array_equal(np.load(one), f["layouts/contiguous"][:]), "a file of another view")


def between_files(t, options, place):
    """HDF5 to HDF5: equal for h5diff, h5dump and h5py; hard links kept."""
    source = os.path.join(place, "all.h5")
    for label, flags in (("v110", []), ("earliest", ["--libver", "earliest"])):
        target = os.path.join(place, f"copy_{label}.h5")
        done = run(options, "cp", "-r", "--create", *flags, source + ":/", target + ":/", code=None)
        t.equal((done.returncode, done.stderr), (0, b""), f"{label}: copied")
        plain, plain_target = os.path.join(place, "plain.h5"), os.path.join(place, f"plain_{label}.h5")
        run(options, "cp", "-r", "--create", *flags, plain + ":/", plain_target + ":/")
        t.equal(h5diff(plain, plain_target)[0], 0, f"{label}: h5diff {h5diff(plain, plain_target)[1][-600:]}")
        dumps = [subprocess.run(["h5dump", "-p", "-H", f], stdout=subprocess.PIPE, timeout=300).stdout.split(b"\n", 1)[1] for f in (source, target)]
        # Addresses and sizes of storage are of the file.
        # A dataset of a named type gets the type, without the link to it.
        dumps = [d.replace(b'DATATYPE  "/named"', b"DATATYPE  H5T_STD_I64LE") for d in dumps]
        dumps = [re.sub(rb"(SIZE|OFFSET|ALLOC_TIME|COMMENT) [^\n]*", b"", d).replace(b" ", b"") for d in dumps]
        t.check(len(dumps[0]) > 5000, "h5dump prints")
        t.equal(dumps[1], dumps[0], f"{label}: h5dump")
        t.equal(run(options, "check", "--data", target, code=None).returncode, 0, f"{label}: h5dir check")
        with h5py.File(target) as g:
            t.check(g["links/hard"] == g["types/t0"] and g["links/up"] == g["/"] and g["links/group"] == g["types"], f"{label}: hard links")
            t.check(g[g["references"][0]] == g["types/t0"] and g[g["references"][1]] == g["layouts"], f"{label}: references")
            t.check(g[g["types"].attrs["first"]] == g["types/t0"], f"{label}: reference of an attribute")
            t.equal(g["links"].get("soft", getlink=True).path, "/types/t1", f"{label}: soft link")
            t.equal(g["links"].get("external", getlink=True).filename, "other.h5", f"{label}: external link")
        t.equal(run(options, "diff", "-r", "--storage", source + ":/", target + ":/", code=None).stdout, b"", f"{label}: diff --storage")
        with h5py.File(source) as f, h5py.File(target) as g:
            for name in [*(f"filters/{n}" for n in f["filters"]), *(f"layouts/{n}" for n in f["layouts"])]:
                a, b = f[name], g[name]
                same = a.shape == b.shape and a.dtype == b.dtype and a.chunks == b.chunks and a.maxshape == b.maxshape
                plists = [d.id.get_create_plist() for d in (a, b)]
                ids = [[p.get_filter(i)[0] for i in range(p.get_nfilters())] for p in plists]
                t.check(same and ids[0] == ids[1] and plists[0].get_layout() == plists[1].get_layout(), f"{label}: {name}: storage for h5py")
                t.check(a.fillvalue == b.fillvalue and np.array_equal(np.asarray(a[()]), np.asarray(b[()])) if a.shape is not None else True,
                        f"{label}: {name}: elements for h5py")
    # Again over what is there, and within one file.
    done = run(options, "cp", "-r", plain + ":/layouts", plain_target + ":/", code=None)
    t.equal((done.returncode, h5diff(plain, plain_target)[0]), (0, 0), f"copied over itself: {done.stderr.decode()}")
    run(options, "cp", "-r", target + ":/layouts", target + ":/second")
    t.equal(run(options, "diff", "-r", "--storage", source + ":/layouts", target + ":/second", code=None).stdout, b"", "copied within a file")
    t.check(b"into itself" in run(options, "cp", "-r", target + ":/layouts", target + ":/layouts/in", code=1).stderr, "a group into itself")
    t.check(b"onto itself" in run(options, "cp", target + ":/layouts/grows", target + ":/layouts/grows", code=1).stderr, "a dataset onto itself")


def refused(t, options, place):
    """What a copy would lose is refused and named, and the rest is copied."""
    source, target = os.path.join(place, "lossy.h5"), os.path.join(place, "lossless.h5")
    with h5py.File(source, "w") as f:
        f["kept"] = np.arange(3)
        d = f.create_dataset("sequence", (1,), h5py.vlen_dtype(h5py.ref_dtype))
        d[0] = np.array([f["kept"].ref], dtype=h5py.ref_dtype)
        f.create_group("in").create_dataset("leads out", data=[f["kept"].ref], dtype=h5py.ref_dtype)
    run(options, "cp", "-r", "--create", source + ":/", target + ":/")
    with h5py.File(target) as f:
        t.equal(sorted(f), ["in", "kept", "sequence"], "all of it is there")
    # References of files with addresses of another size: refused before anything is made.
    narrow, copy = os.path.join(place, "narrow.h5"), os.path.join(place, "wide.h5")
    plist = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    plist.set_sizes(4, 4)
    with h5py.File(h5py.h5f.create(narrow.encode(), h5py.h5f.ACC_TRUNC, plist)) as f:
        f["texts"] = ["a", "bc"]
        f["narrow references"] = np.array([f["texts"].ref] * 3, dtype=h5py.ref_dtype)
    for a, b, name in ((narrow, copy, "narrow references"), (source, narrow, "leads out")):
        done = run(options, "cp", "-r", "--create", f"{a}:/", f"{b}:/", code=1)
        t.check(b"short addresses" in done.stderr, f"references between {a} and {b}: {done.stderr[-300:]!r}")
        with h5py.File(b) as f:
            t.check(name not in f and f"in/{name}" not in f and len(f) > 0, f"{b}: nothing is made of {name}")
    with h5py.File(copy) as f:
        t.equal(list(f["texts"].asstr()[:]), ["a", "bc"], "strings of a file with short addresses")
    fixtures = os.path.join(harness.TOP, "tests", "fixtures", "mount")
    done = run(options, "cp", "-r", "--create", fixtures + "/names.h5:/", os.path.join(place, "names.h5") + ":/", code=1)
    t.check(b"cannot have this name" in done.stderr, f"names that no new link can have: {done.stderr[:300]!r}")
    done = run(options, "cp", "-r", "--create", fixtures + "/broken.h5:/", os.path.join(place, "broken.h5") + ":/", code=1)
    t.check(done.stderr.count(b"h5dir: cannot copy ") >= 3 and b"cannot be read" in done.stderr, f"damaged objects: {done.stderr[:300]!r}")
    t.check(b"bad_checksum: corrupt chunk" in done.stderr, f"a wrong checksum: {done.stderr[:300]!r}")
    for made, flags in (("names.h5", ["--data"]), ("broken.h5", [])):
        t.equal(run(options, "check", *flags, os.path.join(place, made), code=None).returncode, 0, f"{made} is sound")
    with h5py.File(fixtures + "/broken.h5") as f, h5py.File(os.path.join(place, "broken.h5")) as g:
        stored = [[d.id.read_direct_chunk((at,)) for at in (0, 8)] for d in (f["unknown_filter"], g["unknown_filter"])]
        t.equal(stored[1], stored[0], "chunks of a filter that is not known here are copied")
    other = os.path.join(place, "other.h5")
    done = run(options, "cp", "-r", "--create", source + ":/in", other + ":/", code=1)
    t.check(b"references differ" in done.stderr, f"a reference that leads out of the copy: {done.stderr.decode()}")


def damaged_lists(t, options, place):
    """Links and attributes that cannot be read are named, and the rest is copied."""
    source = os.path.join(place, "lists.h5")
    with h5py.File(source, "w", libver="latest") as f:
        for n in range(30):
            f.create_group(f"links/link-{n:04}")
        f["links"].attrs.create("too large", np.zeros(9 << 20))
        f["links"].attrs["small"] = 1
        f.create_dataset("d", data=1).attrs.create("too large", np.zeros(9 << 20))
        f["d"].attrs["small"] = 1
    whole = open(source, "rb").read()
    for what, damaged in (("attributes", False), ("links", True)):
        data = bytearray(whole)
        if damaged:
            # The block of the heap that has it is damaged.
            data[data.index(b"link-0017")] ^= 1
        with open(source, "wb") as f:
            f.write(data)
        copy, local = os.path.join(place, f"lists-{what}.h5"), os.path.join(place, f"lists-{what}")
        os.mkdir(local)
        for path, destination in (("/links", copy + ":/"), ("/d", copy + ":/"), ("/links", local), ("/d", local)):
            done = run(options, "cp", "-a", "--create" if destination.startswith(copy) else "--xattrs", f"{source}:{path}", destination, code=None)
            t.check(done.returncode == 1 and b"the rest is copied" in done.stderr, f"damaged {what}: {path} to {destination}: {done.stderr[-300:]!r}")
        with h5py.File(copy) as f:
            t.equal((list(f["links"].attrs), f["d"][()]), (["small"], 1), f"damaged {what}: the rest")
            t.check(0 < len(f["links"]) <= 30 and (len(f["links"]) < 30) == damaged, f"damaged {what}: the rest of the links")
            t.equal(sorted(os.listdir(os.path.join(local, "links"))), sorted(f["links"]), f"damaged {what}: the rest in a directory")


def many(t, options, place):
    """More references and larger attributes than a description has, also to objects that are copied later."""
    source, store, far = os.path.join(place, "many.h5"), "iod:" + os.path.join(place, "many-store"), "/z" + 19 * ("/" + "x" * 200) + "/far"
    with h5py.File(source, "w", libver="latest") as f:
        objects = [f.create_dataset(f"objects/{i}", data=i) for i in range(10)]
        refs = np.array([o.ref for o in objects], dtype=h5py.ref_dtype)
        f.create_dataset("references", data=np.tile(refs, 15_000), chunks=(1000,), dtype=h5py.ref_dtype)
        # Targets that wait take 64 MiB.
        f.create_dataset("a", data=np.tile(np.array([f.create_group(far).ref], dtype=h5py.ref_dtype), 20_000), dtype=h5py.ref_dtype)
        f["objects"].attrs.create("large", np.arange(7 << 20, dtype="<f8"))
        f["objects"].attrs.create("strings", ["text " * 10] * 100_000, dtype=h5py.string_dtype())
        f["objects"].attrs.create("references", np.tile(refs, 10_000), dtype=h5py.ref_dtype)
    run(options, "create", store)
    copies = [os.path.join(place, name) for name in ("many-copy.h5", "many-back.h5")]
    for a, b in ((source, copies[0]), (source, store), (store, copies[1])):
        done = run(options, "cp", "-r", "--create", a + ":/", b + ":/", code=None)
        t.equal((done.returncode, done.stderr[-300:]), (0, b""), f"many: {a} to {b}")
    for path in copies:
        with h5py.File(path) as f:
            found, attributes = f["references"][:], f["objects"].attrs
            t.check(all(f[found[i]].name == f"/objects/{i % 10}" for i in range(0, len(found), 997)) and len(found) == 150_000, f"many: references {path}")
            t.check(f[f["a"][0]].name == far and f[f["a"][19_999]].name == far, f"many: references to what is copied later {path}")
            t.check(np.array_equal(attributes["large"], np.arange(7 << 20)), f"many: a large attribute {path}")
            t.check(attributes["strings"][99_999] == "text " * 10 and f[attributes["references"][99_999]].name == "/objects/9", f"many: attributes {path}")


def into_files(t, options, place, rng):
    """A local tree to a new HDF5 file and back; as cp -a into a mount; rules; typed files."""
    local, back, typed = (os.path.join(place, n) for n in ("local", "back", "typed"))
    os.makedirs(local + "/deep/er")
    for name, n in (("empty", 0), ("small", 100), ("deep/er/large", 3_000_000)):
        with open(os.path.join(local, name), "wb") as f:
            f.write(rng.bytes(n))
    with open(local + "/sparse", "wb") as f:
        f.seek(5 << 20)
        f.write(b"end")
        f.truncate(9 << 20)
    os.symlink("deep/er/large", local + "/link")
    os.symlink("/etc/passwd", local + "/out")
    os.link(local + "/small", local + "/deep/again")
    os.chmod(local + "/small", 0o640)
    os.utime(local + "/deep/er/large", (1_000_000_000, 1_100_000_000))
    os.utime(local + "/deep/er", (1_000_000_000, 1_200_000_000))
    new, mounted = os.path.join(place, "new.h5"), os.path.join(place, "mounted.h5")
    run(options, "cp", "-a", "--create", local, new + ":/tree")
    run(options, "create", mounted)
    with harness.mounted(options.bin, mounted, "--read-write") as mount:
        subprocess.run(["cp", "-a", local, mount + "/tree"], check=True, timeout=300)
    t.equal(h5diff(new, mounted)[0], 0, "as cp -a into a mount")
    run(options, "cp", "-a", new + ":/tree", back)
    a, b = tree(local), tree(back)
    t.equal(sorted(b), sorted(a), "names after both ways")
    for name in a:
        # HDF5 stores whole seconds, and no times of links.
        x, y = ([v[0], v[1] and v[1] // 10**9, v[2], v[3]] for v in (a[name], b[name]))
        t.equal(y, x, f"{name} after both ways")
    t.check(os.stat(back + "/sparse").st_blocks * 512 < 1 << 20, "holes stay holes")
    # A tree with types.
    run(options, "cp", "-a", os.path.join(place, "all.h5") + ":/layouts", typed)
    run(options, "cp", "-a", "--create", typed, os.path.join(place, "typed.h5") + ":/layouts")
    done = run(options, "diff", "-r", "--storage", os.path.join(place, "all.h5") + ":/layouts", os.path.join(place, "typed.h5") + ":/layouts", code=None)
    t.equal((done.returncode, done.stdout), (0, b""), "types through a local tree")
    rules = os.path.join(place, "rules.yaml")
    with open(rules, "w") as f:
        f.write("create:\n  - pattern: '*.f8'\n    dtype: '<f8'\n    shape: [null, 10]\n    filters: [{deflate: 4}]\n")
    data = rng.normal(size=(20, 10))
    data.tofile(local + "/a.f8")
    run(options, "cp", "--config", rules, local + "/a.f8", new + ":/")
    with h5py.File(new) as f:
        t.check(np.array_equal(f["a.f8"][:], data) and f["a.f8"].compression == "gzip", "rules for new files")
    np.save(local + "/x.npy", data)
    run(options, "cp", local + "/x.npy", new + ":/.h5dir/npy/x.npy")
    with h5py.File(new) as f:
        t.check(np.array_equal(f["x"][:], data), "a numpy file")
    np.save(local + "/x.npy", data + 1)
    run(options, "cp", local + "/x.npy", new + ":/.h5dir/npy/x.npy")
    run(options, "cp", os.path.join(place, "typed.h5") + ":/layouts/scalar", new + ":/.h5dir/attrs/x/blob")
    run(options, "cp", "-r", os.path.join(place, "all.h5") + ":/text", new + ":/")
    exact = run(options, "cat", new + ":/.h5dir/exact/text/newlines").stdout
    with open(local + "/exact", "wb") as f:
        f.write(exact.replace(b"one", b"ONE"))
    run(options, "cp", local + "/exact", new + ":/.h5dir/exact/text/newlines")
    with h5py.File(new) as f:
        t.check(np.array_equal(f["x"][:], data + 1), "a numpy file over another")
        t.equal(f["x"].attrs["blob"].tobytes(), np.float64(7.5).tobytes(), "bytes of an attribute")
        t.equal(f["text/newlines"][1], b"ONE", "the exact form of strings")
    piped = subprocess.Popen(["printf", "from a pipe"], stdout=subprocess.PIPE)
    run(options, "cp", "-", new + ":/piped", stdin=piped.stdout)
    piped.wait()
    t.equal(run(options, "cp", new + ":/piped", "-").stdout, b"from a pipe", "standard input and output")


def existing(t, options, place):
    """Existing targets, as cp does it."""
    source, d = os.path.join(place, "all.h5"), os.path.join(place, "existing")
    os.mkdir(d)
    want = harness.read(os.path.join(place, "mine-r", "types", "t4"))
    target = d + "/t4"
    run(options, "cp", source + ":/types/t4", d)
    t.equal(harness.read(target), want, "into a directory")
    for flags, content in ((["-n"], b"old"), ([], want)):
        with open(target, "wb") as f:
            f.write(b"old")
        run(options, "cp", *flags, source + ":/types/t4", target)
        t.equal(harness.read(target), content, f"over a file {flags}")
    t.check(b"-r copies" in run(options, "cp", source + ":/types", d, code=1).stderr, "a group needs -r")
    t.check(b"directory" in run(options, "cp", source + ":/types/t4", source + ":/types/t5", d + "/none", code=2).stderr, "two sources need a directory")
    t.check(b"cp(1)" in run(options, "cp", target, d + "/x", source + ":/x", d, code=2).stderr, "local to local")
    run(options, "cp", "--create", source + ":/none", os.path.join(place, "unmade.h5") + ":/x", code=5)
    t.check(not os.path.exists(os.path.join(place, "unmade.h5")), "no file without an object")
    before = harness.read(os.path.join(place, "plain.h5"))
    run(options, "cp", source + ":/none", os.path.join(place, "plain.h5") + ":/x", code=5)
    t.equal(harness.read(os.path.join(place, "plain.h5")), before, "a file into which nothing is copied")
    t.equal(run(options, "cp", source + ":/none", d, code=5).returncode, 5, "no such path")
    t.equal(run(options, "cp", target, os.path.join(place, "absent.h5") + ":/x", code=3).returncode, 3, "no such file")
    # A dataset of another size is overwritten in place, keeps its type, or is replaced.
    new = os.path.join(place, "existing.h5")
    with h5py.File(new, "w") as f:
        f.create_dataset("grows", data=np.zeros(4, "<f8"), maxshape=(None,))
        f["fixed"] = np.zeros(4, "<f8")
    numbers = np.arange(6, dtype="<f8")
    numbers.tofile(d + "/six")
    numbers[:4].tofile(d + "/four")
    with open(d + "/odd", "wb") as f:
        f.write(b"hello\n")
    refused = run(options, "cp", d + "/six", new + ":/grows", code=1).stderr
    t.check(b"48 bytes" in refused and b"32" in refused and b"--resize" in refused, f"another size: {refused}")
    for flags in ([], ["--resize"]):
        refused = run(options, "cp", *flags, d + "/odd", new + ":/grows", code=1).stderr
        t.check(b"6 bytes" in refused and b"rows of 8" in refused, f"part of a row: {refused}")
    for name, data, code in (("fixed", b"part", 1), ("fixed", bytes(40), 1), ("fixed", numbers[:4].tobytes(), 0)):
        with open(d + "/in", "wb") as f:
            f.write(data)
        with open(d + "/in", "rb") as f:
            refused = run(options, "cp", "-", f"{new}:/{name}", stdin=f, code=code).stderr
            t.check(len(refused.splitlines()) <= 2 and b"18446744073709551615" not in refused, f"standard input: {refused}")
    with h5py.File(new) as f:
        t.check(f["grows"].shape == (4,) and not f["grows"][:].any(), "refused copies change nothing")
    run(options, "cp", "--resize", d + "/six", new + ":/grows")
    run(options, "cp", d + "/four", new + ":/fixed")
    with h5py.File(new) as f:
        t.check(np.array_equal(f["grows"][:], numbers) and np.array_equal(f["fixed"][:], numbers[:4]), "in place")
    t.check(b"-f replaces" in run(options, "cp", d + "/six", new + ":/fixed", code=1).stderr, "of a fixed size")
    run(options, "cp", "-f", d + "/six", new + ":/fixed")
    with h5py.File(new) as f:
        t.equal(f["fixed"][:].tobytes(), numbers.tobytes(), "replaced")
    with harness.mounted(options.bin, new, "--read-write"):
        t.check(b"another program has it open" in run(options, "cp", d + "/six", new + ":/y", code=3).stderr, "a mounted file is locked")


def hostile(t, options, place):
    """No link in the destination leads out of it; set-user-ID bits are dropped."""
    source, d, outside = os.path.join(place, "bad.h5"), os.path.join(place, "bad"), os.path.join(place, "outside")
    os.makedirs(d)
    os.mkdir(outside)
    with h5py.File(source, "w") as f:
        f["a/b/c"] = np.arange(3)
        f["x"] = np.arange(3)
        f.create_group("..").create_dataset("escaped", data=1)
        f["a"]["%2E%2E"] = h5py.SoftLink("/x")
    os.symlink(outside, d + "/a")
    os.symlink(outside + "/target", d + "/x")
    run(options, "cp", "-r", source + ":/", d, code=1)
    t.equal(os.listdir(outside), [], "nothing left the destination")
    t.check(os.path.islink(d + "/a") and not os.path.islink(d + "/x"), "a link is replaced by a file, not followed")
    t.check(os.path.isdir(d + "/%2E%2E"), "a group '..' is escaped")
    with harness.mounted(options.bin, source, "--read-write") as mount:
        os.chmod(mount + "/x", 0o6755)
    run(options, "cp", "-a", source + ":/x", d)
    t.equal(os.stat(d + "/x").st_mode & 0o7777, 0o755, "set-user-ID bits")


def halfway(t, options, place):
    """A full disk and signals leave no partial file, and a consistent HDF5 file."""
    big, small = os.path.join(place, "big.h5"), os.path.join(place, "small")
    with h5py.File(big, "w") as f:
        f["first"] = np.arange(1000)
        f.create_dataset("large", data=np.random.default_rng(1).integers(0, 2**62, 6 << 20))
    os.mkdir(small)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", small], check=True)
    try:
        done = run(options, "cp", "-r", big + ":/", small, code=1)
        t.check(b"No space left" in done.stderr, f"a full disk: {done.stderr.decode()}")
        t.equal(os.listdir(small), ["first"], "no partial file on a full disk")
        os.remove(small + "/first")
        target = small + "/new.h5"
        done = run(options, "cp", "-r", "--create", big + ":/", target + ":/", code=1)
        t.check(b"No space left" in done.stderr, f"a full disk: {done.stderr.decode()}")
        t.equal(sorted(os.listdir(small)), ["new.h5"], "no journal is left")
        with h5py.File(target) as f:
            t.equal((list(f), f["first"][5]), (["first"], 5), "what fitted is in the file")
        t.equal(run(options, "check", "--data", target, code=None).returncode, 0, "the file is sound")
    finally:
        subprocess.run(["umount", small], check=True)
    for number, signal_number in enumerate([signal.SIGINT, signal.SIGTERM] * 4):
        target, d = os.path.join(place, f"cut{number}.h5"), os.path.join(place, f"cut{number}")
        to = d if number % 4 < 2 else target + ":/"
        create = ["--create"] if to != d else []
        child = subprocess.Popen([options.bin, "cp", "-r", *create, big + ":/", to], stderr=subprocess.PIPE)
        # At another moment in each round: when something is there.
        deadline = time.time() + 20
        while time.time() < deadline and child.poll() is None and not (os.path.exists(d + "/first") or os.path.exists(target)):
            time.sleep(0.001)
        time.sleep(0.01 * (number // 2))
        child.send_signal(signal_number)
        message = child.communicate()[1]
        t.check(child.returncode in (0, -signal_number), f"ended by the signal, or done: {child.returncode} {message.decode()}")
        if to == d and os.path.isdir(d):
            t.check(set(os.listdir(d)) <= {"first", "large"}, f"no partial file: {os.listdir(d)}")
            if os.path.exists(d + "/large"):
                t.equal(os.stat(d + "/large").st_size, 48 << 20, "a file is whole")
        if to != d and os.path.exists(target):
            with h5py.File(target) as f:
                t.check(set(f) <= {"first", "large"}, f"no partial dataset: {list(f)}")
            t.equal(run(options, "check", "--data", target, code=None).returncode, 0, "the file is sound")
            t.check(not os.path.exists(target + ".h5dir-journal"), "no journal is left")


def waiting(t, options, place):
    """A signal ends a copy that waits for its input, and the file is as before."""
    target = os.path.join(place, "existing.h5")
    before = harness.read(target)
    child = subprocess.Popen([options.bin, "cp", "-", target + ":/waits"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdin.write(b"begun")
    child.stdin.flush()
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    t.equal(child.wait(timeout=30), -signal.SIGINT, "ended by the signal while it waited")
    with h5py.File(target) as f:
        t.equal(sorted(f), ["fixed", "grows"], "nothing of it is in the file")
    t.check(len(harness.read(target)) <= 2 * len(before) + 65536, "no space is lost")


def unprivileged(t, options, place):
    """A user without rights copies what is readable."""
    if os.geteuid() != 0:
        return
    open_place = os.path.join(place, "open")
    os.mkdir(open_place, 0o777)
    os.chmod(open_place, 0o777)
    shutil.copy(os.path.join(place, "plain.h5"), open_place)
    os.chmod(place, 0o755)
    shutil.copy(options.bin, open_place + "/h5dir")
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    for source, target in ((":/types", "/out"), (":/layouts", "/new.h5:/")):
        line = [*user, open_place + "/h5dir", "cp", "-a", "--create", open_place + "/plain.h5" + source, open_place + target]
        if target == "/out":
            line.remove("--create")
        done = subprocess.run(line, stderr=subprocess.PIPE, timeout=60)
        t.equal((done.returncode, done.stderr), (0, b""), f"as a user: {target}")
    t.equal(len(os.listdir(open_place + "/out")), len(DTYPES), "as a user: files")


def cat(t, options, place):
    source = os.path.join(place, "all.h5")
    with h5py.File(source) as f:
        want = f["layouts/hole"][:].tobytes()
    t.equal(run(options, "cat", source + ":/layouts/hole").stdout, want, "cat: holes are zeros")
    t.equal(run(options, "cat", source + ":/text/lines", source + ":/links/soft").stdout[:8], b"\none\ntwo", "cat of several")
    t.check(b'"attributes"' in run(options, "cat", source + ":/.h5dir/json/types.json").stdout, "cat of a text made at open")
    t.check(b"it is a group" in run(options, "cat", source + ":/types", code=1).stderr, "cat of a group")
    run(options, "cat", source + ":/none", code=5)
    piped = subprocess.run(["bash", "-c", f"set -o pipefail; '{options.bin}' cat '{source}:/layouts/hole' | head -c 10 | wc -c"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    t.equal((piped.returncode, piped.stdout.strip(), piped.stderr), (0, b"10", b""), "a closed pipe is quiet")


MUTATIONS = {
    "element": lambda f: f["layouts/grows"].__setitem__((39, 29), -77),
    "element of a compound": lambda f: f["types/t17"].__setitem__((0, 1), np.zeros((), f["types/t17"].dtype)),
    "filtered element": lambda f: f["filters/gzip <i4"].__setitem__((0, 1), 31337),
    "in a hole": lambda f: f["layouts/hole"].__setitem__(500_000, 3.5),
    "string": lambda f: f["text/lines"].__setitem__(2, "other"),
    "sequence": lambda f: f["text/sequences"].__setitem__(3, [9, 9, 9]),
    "shape": lambda f: f["layouts/grows"].resize((41, 30)),
    "attribute value": lambda f: f.attrs.modify("numbers", np.array([0, 1, 2, 3, 5], ">i2")),
    "attribute missing": lambda f: f["types/t3"].attrs.__delitem__("units"),
    "attribute type": lambda f: f["types/t3"].attrs.__setitem__("units", 3),
    "object missing": lambda f: f.__delitem__("types/t2"),
    "object new": lambda f: f.create_group("fresh"),
    "soft link": lambda f: (f.__delitem__("links/soft"), f["links"].__setitem__("soft", h5py.SoftLink("/types/t2"))),
    "kind": lambda f: (f.__delitem__("layouts/scalar"), f.create_group("layouts/scalar")),
    "reference": lambda f: f["references"].__setitem__(0, f["types/t4"].ref),
}


def diff(t, options, place):
    """Each mutation is found; files that are equal have no differences; h5diff agrees."""
    complete, mutant = os.path.join(place, "all.h5"), os.path.join(place, "mutant.h5")
    for other in (complete, os.path.join(place, "copy_v110.h5")):
        done = run(options, "diff", "-r", complete + ":/", other + ":/", code=0)
        t.equal(done.stdout + done.stderr, b"", f"no differences of {other}")
    for label, mutate in MUTATIONS.items():
        # h5diff gives up on the other one.
        source = complete if label == "reference" else os.path.join(place, "plain.h5")
        shutil.copy(source, mutant)
        with h5py.File(mutant, "r+") as f:
            mutate(f)
        done = run(options, "diff", "-r", source + ":/", mutant + ":/", code=None)
        t.check(done.returncode == 1 and done.stdout, f"{label}: found: {done.returncode} {done.stderr.decode()}")
        if label != "reference":
            status, text = h5diff(source, mutant)
            # h5diff returns 0 or 2 where it says that objects are not comparable, or that one is missing.
            found = status == 1 or re.search(r"Not comparable|not comparable|^    x           ", text, re.M) or re.search(r"^           x ", text, re.M)
            t.check(found, f"{label}: h5diff agrees: {status}")
        t.equal(run(options, "diff", "-rq", source + ":/", mutant + ":/", code=1).stdout, b"", f"{label}: quiet")
        rows = json.loads(run(options, "diff", "-r", "--json", source + ":/", mutant + ":/", code=1).stdout)
        t.equal(len(rows), len(done.stdout.decode().splitlines()), f"{label}: as many in JSON")
        if label == "element":
            t.equal(done.stdout, f"/layouts/grows: data [39,29]: {h5py.File(source)['layouts/grows'][39, 29]} | -77\n".encode(), label)
            t.equal(rows[0]["index"], [39, 29], "index in JSON")
        if label == "string":
            t.equal(done.stdout, b"/text/lines: data [2]: two words | other\n", label)
        if label == "in a hole":
            t.equal(done.stdout, b"/layouts/hole: data [500000]: 0.0 | 3.5\n", label)
    source, local = complete, os.path.join(place, "mine-r")
    t.equal(run(options, "diff", "-r", source + ":/layouts", local + "/layouts").stdout, b"", "equal to a local tree")
    with open(local + "/layouts/contiguous", "r+b") as f:
        f.seek(100)
        f.write(b"\xff")
    t.check(b"/contiguous: data byte 100: " in run(options, "diff", "-r", source + ":/layouts", local + "/layouts", code=1).stdout, "byte of a local file")
    t.check(run(options, "diff", source + ":/types/t0", source + ":/types/t1", code=1).stdout.startswith(b"/types/t0: type: "), "path of one object")
    run(options, "diff", source + ":/none", local, code=2)
    run(options, "diff", local + "/layouts/contiguous", local + "/layouts/contiguous", code=2)
    run(options, "diff", "--none", code=2)


def readme(t, options, place):
    """The lines of README.md with cp, cat and diff run, in order, in one folder."""
    d = os.path.join(place, "readme")
    os.makedirs(d + "/bin")
    os.symlink(os.path.abspath(options.bin), d + "/bin/h5dir")
    with h5py.File(d + "/data.h5", "w") as f:
        f["run1/temperature"], f["notes"] = np.arange(9.0).reshape(3, 3), np.bytes_(b"text")
        f["run1/table"] = np.zeros(3, [("a", "<i4"), ("b", "<f8")])
        f["run1/frames"] = np.zeros((8, 4, 4), "u1")
    np.arange(6).tofile(d + "/numbers.raw")
    with open(os.path.join(harness.TOP, "README.md")) as f:
        lines = [line for line in f.read().splitlines() if re.match(r"h5dir (cp|cat|diff) ", line)]
    t.check(len(lines) >= 4, f"{len(lines)} lines in the README")
    for line in lines:
        done = subprocess.run(["bash", "-ec", line], cwd=d, env={**os.environ, "PATH": d + "/bin:" + os.environ["PATH"]},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        t.equal(done.returncode, 0, f"README: {line}: {done.stdout.decode()}")


def same_chunks(t, path, copy):
    with h5py.File(path) as f, h5py.File(copy) as g:
        names = []
        f.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) and item.chunks else None)
        for name in names:
            if f[name].dtype.kind != "O":
                t.check(cp_stored_sweep.chunks(f[name]) == cp_stored_sweep.chunks(g[name]), f"{path}: chunks of {name}")


def corpus(t, options, place):
    """Files of other programs: out of the file as cp -a from a mount; into another file, equal for `h5dir diff`."""
    top = os.environ.get("CORPUS", os.path.join(harness.TOP, "..", "shared", "corpus"))
    if not os.path.isdir(top + "/files"):
        print(f"no corpus at {top}: not copied")
        return
    paths = sorted(os.path.join(base, n) for base, _, names in os.walk(top + "/files") for n in names)
    paths = [p for p in paths if os.path.getsize(p) < 1 << 20][:: 1 if os.environ.get("H5DIR_LONG") else 8]
    counts = {"copied out": 0, "copied whole": 0, "refused": 0, "no HDF5 file": 0}
    for number, path in enumerate(paths):
        mine, theirs, target = (os.path.join(place, f"corpus{number}{end}") for end in ("", ".cp", ".h5"))
        done = run(options, "cp", "-r", "--external=off", path + ":/", mine, code=None)
        if done.returncode == 3:
            counts["no HDF5 file"] += 1
            continue
        os.mkdir(theirs)
        with harness.mounted(options.bin, path, "--external=off") as mount:
            theirs_done = subprocess.run(["cp", "-a", mount + "/.", theirs], stderr=subprocess.PIPE, timeout=300)
        t.equal(done.returncode, int(theirs_done.returncode != 0), f"{path}: cp -a {theirs_done.stderr!r}, h5dir cp {done.stderr!r}")
        a, b = tree(mine) if os.path.isdir(mine) else {}, tree(theirs)
        # cp leaves an empty file where it could not read one.
        unread = {n for n in b if n not in a and not b[n][2]} if done.returncode else set()
        for name in set(a) | set(b) - unread:
            t.equal(a.get(name), b.get(name), f"{path}: {name}")
        counts["copied out"] += 1
        done = run(options, "cp", "-r", "--external=off", "--create", path + ":/", target + ":/", code=None)
        t.check(done.returncode in (0, 1) and (done.returncode == 0) == (b"cannot copy" not in done.stderr), f"{path}: {done.stderr[-500:]!r}")
        if done.returncode == 0:
            compared = run(options, "diff", "-r", "--external=off", path + ":/", target + ":/", code=None)
            if b" is not supported" in compared.stderr:
                # Chunks with a filter that h5dir does not have are copied as they are.
                same_chunks(t, path, target)
            else:
                t.equal((compared.returncode, compared.stdout), (0, b""), f"{path}: diff of the copy: {compared.stderr[-300:]!r}")
            with h5py.File(target):
                counts["copied whole"] += 1
        else:
            counts["refused"] += 1
            print(os.path.relpath(path, top), done.stderr.decode(errors="replace").splitlines()[0][:200])
        for made in (mine, theirs):
            shutil.rmtree(made, ignore_errors=True)
        if os.path.exists(target):
            os.remove(target)
    print("corpus:", counts)
    t.check(counts["copied whole"] > 20 and counts["copied whole"] > counts["refused"], f"corpus: {counts}")


def main():
    options = harness.arguments(__doc__)
    t, rng = harness.Tally(), np.random.default_rng(options.seed)
    with harness.folder(options.keep) as place:
        make(os.path.join(place, "all.h5"), rng)
        make(os.path.join(place, "plain.h5"), rng, plain=True)
        out_of_files(t, options, place)
        between_files(t, options, place)
        refused(t, options, place)
        damaged_lists(t, options, place)
        many(t, options, place)
        into_files(t, options, place, rng)
        existing(t, options, place)
        hostile(t, options, place)
        halfway(t, options, place)
        waiting(t, options, place)
        unprivileged(t, options, place)
        cat(t, options, place)
        diff(t, options, place)
        readme(t, options, place)
        corpus(t, options, place)
    t.finish()


if __name__ == "__main__":
    main()
