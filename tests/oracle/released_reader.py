"""Reads files of the released log VOL (1.4 and later, without subfiles) with h5py and numpy: anchors, entries, values."""
import struct

import h5py
import numpy as np

MULTIPLE, ENCODED, REFERENCE, RECORD = 1, 4, 16, 32


def longs(raw, at, n):
    return list(struct.unpack_from(f"<{n}q", raw, at))


class Log:
    """The log of an open file. `strict`: only what every version reads alike, as h5dir writes it."""

    def __init__(self, file, strict):
        self.file, self.strict = file, strict
        self.raw = open(file.filename, "rb").read()
        counts = h5py.h5a.open(file.id, b"_int_att")
        assert counts.get_type().equal(h5py.h5t.STD_I32LE) and counts.shape == (5,), "_int_att"
        self.datasets, self.data, self.metadata, self.config, subfiles = map(int, file.attrs["_int_att"])
        assert subfiles == 1
        group = file["_LOG"]
        names = [f"_ld_{i}" for i in range(self.data)] + [f"_md_{i}" for i in range(self.metadata)]
        assert sorted(group) == sorted(names), (sorted(group), names)
        self.ranges = [(group[n].id.get_offset(), group[n].shape[0]) for n in names]
        self.anchors = {}
        file.visititems(self.anchor)
        assert len({a["id"] for a in self.anchors.values()}) == len(self.anchors), "two datasets with an ID"
        if strict:
            ends = [at + size for at, size in self.ranges[:self.data]]
            assert all(e <= at for e, (at, _) in zip(ends, self.ranges[1:self.data])), f"data datasets out of order: {self.ranges}"

    def anchor(self, name, found):
        if not isinstance(found, h5py.Dataset) or name.startswith("_LOG/"):
            return
        number, dims, maximum = (found.attrs[n] for n in ("_ID", "_dims", "_mdims"))
        assert number.shape == (1,) and 0 <= number[0] < self.datasets, (name, number, self.datasets)
        assert len(dims) == len(maximum) and all(m in (-1, d) or m >= d for d, m in zip(dims, maximum)), (name, dims, maximum)
        dtype = np.dtype(found.id.dtype)
        fill = np.zeros((), dtype)
        plist = found.id.get_create_plist()
        if plist.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED:
            plist.get_fill_value(fill)
        shown = "/".join(part.removeprefix("_") for part in name.split("/"))
        self.anchors[shown] = {"id": int(number[0]), "dims": tuple(map(int, dims)), "maximum": tuple(map(int, maximum)), "dtype": dtype, "fill": fill}

    def entries(self):
        """Every entry: (dataset, blocks, offset, length)."""
        ranks = {a["id"]: len(a["dims"]) for a in self.anchors.values()}
        for start, size in self.ranges[self.data:]:
            raw = self.raw[start:start + size]
            sections, = longs(raw, 0, 1)
            ends = longs(raw, 8, sections)
            assert ends[-1] == size and (sections == 1 or not self.strict), (ends, size)
            at = 8 * (sections + 1)
            for end in ends:
                while at < end:
                    length, number = struct.unpack_from("<ii", raw, at)
                    assert 28 <= length <= end - at, (length, at, end)
                    assert number in ranks or not self.strict, f"an entry of dataset {number}, which is gone"
                    if number in ranks:
                        offset, stored = longs(raw, at + 12, 2)
                        yield number, self.blocks(raw, at, ranks[number]), offset, stored
                    at += length

    def blocks(self, raw, at, rank):
        length, _, flags = struct.unpack_from("<iii", raw, at)
        assert flags == 0 or not self.strict, flags
        body = at + 28
        if flags & REFERENCE:
            record = longs(raw, body, 1) if length == 44 else None
            back, = longs(raw, body + (8 if record else 0), 1)
            found = self.blocks(raw, at + back, rank)
            return [([*record, *s[1:]], [1, *c[1:]]) for s, c in found] if record else found
        record = longs(raw, body, 1) if flags & RECORD else []
        body += 8 * len(record)
        n, inner = 1, rank - len(record)
        if flags & MULTIPLE:
            n, = struct.unpack_from("<i", raw, body)
            body += 4
        numbers = longs(raw, body, (at + length - body) // 8)
        if flags & ENCODED and len(numbers) != 2 * n * inner:
            steps, numbers = [*numbers[:inner - 1], 1], numbers[inner - 1:]
            digits = lambda v: [v // s if i == 0 else v % steps[i - 1] // s for i, s in enumerate(steps)]
            starts = [digits(v) for v in numbers[:n]]
            counts = [[d + 1 for d in digits(v - sum(steps))] for v in numbers[n:]]
        else:
            assert len(numbers) == 2 * n * inner, (len(numbers), n, inner)
            parts = [numbers[i * inner:(i + 1) * inner] for i in range(2 * n)]
            starts, counts = parts[:n], parts[n:]
        one = [1] * len(record)
        return [(record + s, one + c) for s, c in zip(starts, counts)]

    def values(self):
        """Arrays by name: entries in the order of their data."""
        arrays = {name: np.full(a["dims"], a["fill"], a["dtype"]) for name, a in self.anchors.items()}
        by_number = {a["id"]: arrays[name] for name, a in self.anchors.items()}

        def order(entry):
            number = next(i for i, (at, size) in enumerate(self.ranges[:self.data]) if at <= entry[2] and entry[2] + entry[3] <= at + size)
            return number, entry[2]

        for number, blocks, offset, length in sorted(self.entries(), key=order):
            array, at = by_number[number], offset
            for start, count in blocks:
                size = int(np.prod(count, dtype=int)) * array.itemsize
                part = np.frombuffer(self.raw[at:at + size], array.dtype).reshape(count)
                box = tuple(slice(s, s + c) for s, c in zip(start, count))
                inside = all(s + c <= d for s, c, d in zip(start, count, array.shape))
                assert inside or not self.strict, (start, count, array.shape)
                array[box] = part[tuple(slice(0, max(0, d - s)) for s, d in zip(start, array.shape))]
                at += size
            assert at == offset + length, (at, offset, length)
        return arrays


def read(path, strict=True):
    """Values of all datasets by name, without the underscore that escapes one."""
    with h5py.File(path, "r") as file:
        return Log(file, strict).values()


def properties(found):
    """How an object is stored, without its name, its address and its attributes of users."""
    if isinstance(found, h5py.Group):
        stored = ["group"]
    else:
        plist, space, kind = found.id.get_create_plist(), found.id.get_space(), found.id.get_type()
        dims = space.get_simple_extent_dims(True) == space.get_simple_extent_dims() if space.get_simple_extent_type() == h5py.h5s.SIMPLE else None
        of_log = kind.equal(h5py.h5t.STD_B8LE)
        stored = ["dataset", plist.get_layout(), plist.get_alloc_time(), plist.get_fill_time(), plist.get_nfilters(), space.get_simple_extent_type(),
                dims, of_log, found.id.get_offset() is None, found.id.get_storage_size() == (found.shape[0] if of_log else 0)]
    for name in ("_int_att", "_ID", "_dims", "_mdims"):
        if name in found.attrs:
            attribute = h5py.h5a.open(found.id, name.encode())
            space, kind = attribute.get_space(), attribute.get_type()
            stored.append((name, kind.get_class(), kind.get_size(), kind.get_order(), kind.get_sign(), space.get_simple_extent_type(),
                         len(attribute.shape), space.get_simple_extent_dims() == space.get_simple_extent_dims(True)))
    return tuple(stored)


def structure(path):
    """What a file has of each kind of object of a log, as a set of properties."""
    found = {}
    with h5py.File(path, "r") as file:
        def add(name, item):
            kind = "root" if name == "/" else "group" if name == "_LOG" else name.split("_")[2] if name.startswith("_LOG/") else "anchor"
            if kind != "anchor" or isinstance(item, h5py.Dataset):
                found.setdefault(kind, set()).add(properties(item))

        add("/", file["/"])
        file.visititems(add)
    return found
