"""Files of the released log VOL, written with h5py: its layout, version by version, from a list of writes."""
import struct
import zlib

import h5py
import numpy as np

MULTIPLE, ENCODED, REFERENCE, RECORD = 1, 4, 16, 32


def longs(values):
    return struct.pack(f"<{len(values)}q", *map(int, values))


def entry(dataset, flags, offset, length, body):
    return struct.pack("<iiiqq", 28 + len(body), dataset, flags, offset, length) + body


def selection(blocks, rank, dims, form, record=None, legacy=False):
    """Flags and body for `blocks`, (start, count) each. form: canonical, encoded or merged."""
    skip = 0 if record is None else 1
    starts, counts = [b[0][skip:] for b in blocks], [b[1][skip:] for b in blocks]
    flags, body, inner = 0, b"", rank - skip
    if record is not None:
        flags, body = RECORD, longs([record])
    if len(blocks) > 1 or form != "canonical":
        flags, body = flags | MULTIPLE, body + struct.pack("<i", len(blocks))
    if form == "encoded" and inner > 1:
        flags |= ENCODED
        steps = [int(np.prod(dims[i + 1:])) for i in range(skip, rank)]
        stored = [int(np.prod(dims[i + 1:])) for i in range(inner)] if legacy and skip else steps
        body += longs(stored[:-1])
        for values in (starts, counts):
            body += longs([sum(v * s for v, s in zip(value, steps)) for value in values])
    elif form == "merged":
        flags |= ENCODED
        for start, count in zip(starts, counts):
            body += longs([*start, *count])
    else:
        body += longs([n for s in starts for n in s]) + longs([n for c in counts for n in c])
    return flags, body


class Writer:
    """A file under construction. `version`: 1.0, 1.1, 1.2 or 1.4."""

    def __init__(self, path, version="1.4", userblock=0):
        self.path, self.version = path, version
        self.prefix = "__" if version in ("1.1", "1.2") else "_"
        self.attributes = "_" if version == "1.1" else self.prefix
        self.file = h5py.File(path, "w", libver=("earliest", "v110"), userblock_size=userblock)
        self.group = self.file.create_group(self.prefix + "LOG")
        self.userblock, self.datasets, self.data, self.metadata = userblock, 0, 0, 0

    def dataset(self, name, dtype, dims, maximum=None, fill=None):
        """Makes an anchor; returns its ID."""
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.CONTIGUOUS)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        if fill is not None:
            plist.set_fill_value(np.array([fill], dtype))
        stored = "/".join("_" + part if part.startswith("_") and self.version == "1.4" else part for part in name.split("/"))
        parent = self.file.require_group(stored.rsplit("/", 1)[0]) if "/" in stored else self.file
        space = h5py.h5s.create(h5py.h5s.NULL if self.version == "1.4" else h5py.h5s.SCALAR)
        made = h5py.Dataset(h5py.h5d.create(parent.id, stored.rsplit("/", 1)[-1].encode(), h5py.h5t.py_create(np.dtype(dtype)), space, plist))
        made.attrs.create(self.attributes + "dims", np.array(dims, "<i8"), (len(dims),), "<i8")
        made.attrs.create(self.attributes + "mdims", np.array(maximum or dims, "<i8"), (len(dims),), "<i8")
        made.attrs.create(self.attributes + "ID", np.array([self.datasets], "<i4"))
        self.datasets += 1
        return self.datasets - 1

    def bytes(self, kind, number, size):
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.CONTIGUOUS)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        return h5py.h5d.create(self.group.id, f"{self.prefix}{kind}_{number}".encode(), h5py.h5t.STD_B8LE, h5py.h5s.create_simple((size,)), plist)

    def write(self, made, raw):
        array = np.frombuffer(raw, "u1")
        # A bitfield: written as its own type.
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, array, mtype=h5py.h5t.STD_B8LE)

    def flush(self, pieces):
        """A data dataset of `pieces`; returns the file offset of each."""
        made = self.bytes("ld", self.data, sum(map(len, pieces)))
        self.write(made, b"".join(pieces))
        self.data += 1
        # The offset that libhdf5 returns includes the user block.
        offsets, at = [], made.get_offset()
        for piece in pieces:
            offsets.append(at)
            at += len(piece)
        return offsets

    def describe(self, sections):
        """A metadata dataset of sections of entries."""
        ends, at = [], 8 * (len(sections) + 1)
        for section in sections:
            at += len(section)
            ends.append(at)
        self.write(self.bytes("md", self.metadata, at), longs([len(sections), *ends]) + b"".join(sections))
        self.metadata += 1

    def close(self, config=10):
        self.file.attrs.create(self.prefix + "int_att", np.array([self.datasets, self.data, self.metadata, config, 1], "<i4"))
        self.file.close()


def deflated(raw):
    return zlib.compress(raw, 6)
