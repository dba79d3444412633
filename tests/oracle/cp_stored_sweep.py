"""`h5dir cp` between containers of different kinds moves stored chunks: the same bytes and filter masks for libhdf5.

Files of h5py with every chunk index and filter are copied to a container in a folder and from there to a new file.
"""
import os
import subprocess
import sys

import h5py
import hdf5plugin
import numpy as np

import harness

FILTERS = {
    "gzip 1": {"compression": "gzip", "compression_opts": 1},
    "gzip 9 shuffle": {"compression": "gzip", "compression_opts": 9, "shuffle": True},
    "gzip fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "fletcher32": {"fletcher32": True},
    "lzf": {"compression": "lzf"},
    "szip": {"compression": "szip"},
    "scaleoffset": {"scaleoffset": 0},
    "scaleoffset gzip": {"scaleoffset": 4, "compression": "gzip"},
    "zstd": dict(hdf5plugin.Zstd(clevel=5)),
    "none": {},
}
# Shape, maximum shape, chunk: of both formats these are all kinds of chunk index.
SHAPES = {
    "fixed": ((50, 33), (50, 33), (16, 10)),
    "grows": ((50, 33), (None, 33), (16, 10)),
    "grows both": ((50, 33), (None, None), (16, 10)),
    "single": ((20, 30), (20, 30), (20, 30)),
    "cube": ((9, 10, 11), (None, 10, 20), (4, 4, 4)),
}


def run(options, *args):
    done = subprocess.run([options.bin, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    if done.returncode or done.stderr:
        sys.exit(f"h5dir {args}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr.decode()[-2000:]}")
    return done


def early(group, name, data, chunk):
    """A dataset with space for all chunks, without filters: an implicit index in the newest format."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(chunk)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    space = h5py.h5s.create_simple(data.shape)
    made = h5py.h5d.create(group.id, name.encode(), h5py.h5t.py_create(data.dtype), space, plist)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, data)


def masked(group, name, data, chunk):
    """Chunks with other filter masks than 0, written as they are: some filters, all filters."""
    d = group.create_dataset(name, data.shape, data.dtype, chunks=chunk, maxshape=(None, data.shape[1]), compression="gzip", shuffle=True)
    rows, columns = chunk
    for number, (i, j) in enumerate((i, j) for i in range(0, data.shape[0], rows) for j in range(0, data.shape[1], columns)):
        if number % 4 == 3:
            continue
        whole = np.zeros(chunk, data.dtype)
        part = data[i:i + rows, j:j + columns]
        whole[:part.shape[0], :part.shape[1]] = part
        if number % 4 == 0:
            d[i:i + rows, j:j + columns] = part
        elif number % 4 == 1:
            d.id.write_direct_chunk((i, j), whole.tobytes(), filter_mask=3)
        else:
            shuffled = whole.reshape(-1).view(np.uint8).reshape(-1, data.dtype.itemsize).T.tobytes()
            d.id.write_direct_chunk((i, j), shuffled, filter_mask=2)


def make(path, libver, rng):
    with h5py.File(path, "w", libver=libver) as f:
        for kind, (shape, maxshape, chunk) in SHAPES.items():
            group = f.create_group(kind)
            for label, filters in FILTERS.items():
                # Compressible, so that each level makes other bytes.
                data = np.cumsum(rng.integers(0, 3, shape), axis=0).astype("<i4")
                d = group.create_dataset(label, shape, "<i4", maxshape=maxshape, chunks=chunk, fillvalue=7 if kind == "grows both" else None, **filters)
                if kind == "cube":
                    d[:5, :3, 4:] = data[:5, :3, 4:]
                elif kind == "grows both":
                    d[17:30, 11:33] = data[17:30, 11:33]
                else:
                    d[...] = data
            group.create_dataset("empty", shape, "<f8", maxshape=maxshape, chunks=chunk, compression="gzip")
        data = rng.integers(0, 1000, (50, 33)).astype("<i4")
        early(f, "early", data + 1, (16, 10))
        masked(f, "masked", data, (16, 10))
        big = f.create_dataset("big", (1200, 1000), ">f4", chunks=(10, 100), compression="gzip", compression_opts=3)
        big[...] = np.repeat(rng.normal(size=(1200, 10)), 100, axis=1)
        noise = f.create_dataset("large", (4, 1 << 20), "<i8", chunks=(1, 1 << 20), compression="gzip", compression_opts=1)
        noise[...] = rng.integers(0, 1 << 40, noise.shape)
        compound = f.create_dataset("compound", (100,), [("a", "<i2"), ("b", ">f4", (2, 2))], chunks=(30,), compression="gzip", shuffle=True)
        compound["a"] = np.arange(100)
        # Addresses of the container: moved by their elements.
        f.create_dataset("strings", data=["one", "two"] * 20, dtype=h5py.string_dtype(), chunks=(7,), compression="gzip")
        f.create_dataset("references", data=[f["early"].ref, None, f["big"].ref], dtype=h5py.ref_dtype, chunks=(2,), compression="gzip")


def chunks(d):
    """Offset, filter mask and stored bytes of each chunk."""
    infos = [d.id.get_chunk_info(i) for i in range(d.id.get_num_chunks())]
    return {info.chunk_offset: (info.filter_mask, d.id.read_direct_chunk(info.chunk_offset)[1]) for info in infos}


def same(t, label, source, copy):
    """Both files have the same chunks, byte for byte, and values."""
    names, moved = [], 0
    source.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    for name in names:
        a, b = source[name], copy[name]
        if name in ("strings", "references"):
            values = [[x if name == "strings" else f[x].name if x else None for x in f[name][()]] for f in (source, copy)]
            t.equal(values[1], values[0], f"{label} {name}: values")
            continue
        t.check(a.dtype == b.dtype and a.shape == b.shape and a.chunks == b.chunks and a.maxshape == b.maxshape, f"{label} {name}: storage")
        t.check(a.fillvalue == b.fillvalue if a.dtype.fields is None else True, f"{label} {name}: fill value")
        t.check(np.array_equal(a[()], b[()]), f"{label} {name}: values")
        stored, copied = chunks(a), chunks(b)
        t.equal(sorted(copied), sorted(stored), f"{label} {name}: allocated chunks")
        different = [at for at in stored if stored[at] != copied.get(at)]
        t.equal(different, [], f"{label} {name}: chunks with other bytes or another filter mask")
        moved += len(stored)
    t.check(moved > 1500, f"{label}: {moved} chunks")
    masks = {mask for mask, _ in chunks(copy["masked"]).values()}
    t.equal(masks, {0, 2, 3}, f"{label}: filter masks")


def damaged(t, options, place, source):
    """A wrong checksum is an error. Other damage is moved as it is, and found by readers of the copy."""
    broken, back = os.path.join(place, "broken.h5"), os.path.join(place, "broken_back.h5")
    with open(source, "rb") as f, h5py.File(source) as g:
        data = bytearray(f.read())
        infos = [g["single/" + name].id.get_chunk_info(0) for name in ("gzip fletcher32", "gzip 1")]
    for info in infos:
        data[info.byte_offset + info.size // 2] ^= 1
    with open(broken, "wb") as f:
        f.write(data)
    into = [options.bin, "cp", "-r", broken + ":/single", f"iod:{place}/broken_folder:/"]
    done = subprocess.run(into, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    t.check(done.returncode == 1 and done.stderr.count(b"cannot copy") == 1 and b"gzip fletcher32: corrupt chunk" in done.stderr, f"{done.stderr}")
    run(options, "cp", "-r", "--create", f"iod:{place}/broken_folder:/", back + ":/")
    with h5py.File(broken) as f, h5py.File(back) as g:
        t.equal(chunks(g["single/gzip 1"]), chunks(f["single/gzip 1"]), "a damaged chunk stays as it is")
        t.equal(sorted(g["single"]), sorted(set(f["single"]) - {"gzip fletcher32"}), "the rest is copied")
    done = subprocess.run([options.bin, "cat", back + ":/single/gzip 1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    t.check(done.returncode != 0, "a damaged chunk of a copy is found")


def edges(t, options, place):
    """Partial chunks stored without filters get a mask that says so: a copy has no such property."""
    source, folder, back = (os.path.join(place, name) for name in ("edges.h5", "edges_folder", "edges_back.h5"))
    made = os.path.join(harness.TOP, "tests", "fixtures", "edges")
    for name in sorted(os.listdir(made)):
        if not name.endswith(".h5"):
            continue
        source, folder, back = os.path.join(made, name), os.path.join(place, "f_" + name[:-3]), os.path.join(place, "b_" + name)
        run(options, "cp", "-r", source + ":/", f"iod:{folder}:/")
        run(options, "cp", "-r", "--create", f"iod:{folder}:/", back + ":/")
        with h5py.File(source) as f, h5py.File(back) as g:
            for name in f:
                stored, copied = chunks(f[name]), chunks(g[name])
                t.check(np.array_equal(f[name][()], g[name][()]), f"edges {name}: values")
                t.equal({at: chunk for at, (_, chunk) in copied.items()}, {at: chunk for at, (_, chunk) in stored.items()}, f"edges {name}: chunks")


def main():
    options = harness.arguments(__doc__)
    t, rng = harness.Tally(), np.random.default_rng(options.seed)
    with harness.folder(options.keep) as place:
        for label, libver in (("earliest", ("earliest", "v108")), ("latest", ("latest", "latest"))):
            source, container, back = (os.path.join(place, label + end) for end in (".h5", "_folder", "_back.h5"))
            make(source, libver, rng)
            run(options, "cp", "-r", source + ":/", f"iod:{container}:/")
            run(options, "cp", "-r", "--create", f"iod:{container}:/", back + ":/")
            with h5py.File(source) as f, h5py.File(back) as g:
                same(t, label, f, g)
            t.equal(run(options, "diff", "-r", "--storage", source + ":/", back + ":/").stdout, b"", f"{label}: diff --storage")
            run(options, "check", "--data", back)
            if label == "earliest":
                continue
            direct = os.path.join(place, label + "_direct.h5")
            run(options, "cp", "-r", "--create", source + ":/", direct + ":/")
            with h5py.File(source) as f, h5py.File(direct) as g:
                same(t, label + ", file to file", f, g)
        damaged(t, options, place, os.path.join(place, "latest.h5"))
        edges(t, options, place)
    t.finish()


if __name__ == "__main__":
    main()
