"""Reads datasets in a log of records with h5py, by docs/FORMAT.md alone: through the index, or from the records."""
import struct
import zlib

import numpy as np

CONTROL, ALL = 0, 2**63 - 1


class Cursor:
    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, n):
        self.at += n
        assert self.at <= len(self.data), "ends early"
        return self.data[self.at - n:self.at]

    def longs(self, n):
        return list(struct.unpack(f"<{n}q", self.take(8 * n)))

    def head(self, rank_of):
        dataset, = self.longs(1)
        kind, = struct.unpack("<i", self.take(4))
        rank = 1 if dataset == CONTROL else rank_of(dataset)
        if kind == 0:
            where = self.longs(rank), self.longs(rank)
        else:
            n, = self.longs(1)
            where = [self.longs(rank) for _ in range(n)]
        order, filters = struct.unpack("<ii", self.take(8))
        assert order == 0 and filters in (0, 1) and kind in (0, 1), (order, filters, kind)
        return dataset, where, filters


def lookup3(data):
    """Jenkins' hashlittle."""
    rot = lambda x, k: ((x << k) | (x >> (32 - k))) & 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & 0xFFFFFFFF
    while len(data) > 12:
        x, y, z = struct.unpack("<III", data[:12])
        a, b, c = (a + x) & 0xFFFFFFFF, (b + y) & 0xFFFFFFFF, (c + z) & 0xFFFFFFFF
        for k, (p, q, r) in zip((4, 6, 8, 16, 19, 4), ("acb", "bac", "cba") * 2):
            v = dict(a=a, b=b, c=c)
            v[p] = ((v[p] - v[q]) ^ rot(v[q], k)) & 0xFFFFFFFF
            v[q] = (v[q] + v[r]) & 0xFFFFFFFF
            a, b, c = v["a"], v["b"], v["c"]
        data = data[12:]
    if data:
        x, y, z = struct.unpack("<III", bytes(data).ljust(12, b"\0"))
        a, b, c = (a + x) & 0xFFFFFFFF, (b + y) & 0xFFFFFFFF, (c + z) & 0xFFFFFFFF
        for k, (p, q) in zip((14, 11, 25, 16, 4, 14, 24), ("cb", "ac", "ba", "cb", "ac", "ba", "cb")):
            v = dict(a=a, b=b, c=c)
            v[p] = ((v[p] ^ v[q]) - rot(v[q], k)) & 0xFFFFFFFF
            a, b, c = v["a"], v["b"], v["c"]
    return c


class Array:
    """One dataset: what is written, and which elements."""

    def __init__(self, anchor):
        self.shape = tuple(map(int, anchor.attrs["_log_shape"]))
        self.dtype, self.fill = anchor.dtype, anchor.fillvalue
        self.values = np.full(self.shape, self.fill, self.dtype)
        self.written = np.zeros(self.shape, bool)

    def put(self, where, data):
        if isinstance(where, list):
            for point, value in zip(where, np.frombuffer(data, self.dtype)):
                self.values[tuple(point)], self.written[tuple(point)] = value, True
            return
        start, count = where
        part = np.frombuffer(data, self.dtype).reshape(count)
        box = tuple(slice(s, s + c) for s, c in zip(start, count))
        # Rows past the extent: it shrank since.
        kept = part[tuple(slice(0, max(0, min(c, n - s))) for s, c, n in zip(start, count, self.shape))]
        self.values[box], self.written[box] = kept, True

    def erase(self, first, count):
        stop = self.values.size if count == ALL else first + count
        self.values.reshape(-1)[first:stop], self.written.reshape(-1)[first:stop] = self.fill, False


def elements(where):
    return len(where) if isinstance(where, list) else int(np.prod(where[1]))


def stored(data, at, size, filters):
    """The bytes of a record, and their stored length."""
    if not filters:
        return data[at:at + size], size
    inflate = zlib.decompressobj()
    out = inflate.decompress(data[at:])
    assert inflate.eof and len(out) == size, (len(out), size)
    return out, len(data) - at - len(inflate.unused_data)


def runs(logs, after, sequence, serial):
    """The runs that count, after a place: (log, data, offset, head). A sequence number None is that of the first run."""
    group, found = [], []
    for number in sorted(n for n in logs if n >= after[0]):
        data, at = logs[number], after[1] if number == after[0] else 0
        while at + 108 <= len(data):
            cursor = Cursor(data, at)
            try:
                dataset, where, _ = cursor.head(lambda _: 1)
            except (AssertionError, ValueError):
                break
            if dataset != CONTROL or isinstance(where, list) or where[1][0] < 72:
                break
            kind, version, number_of, of, length, records, continued, checksum, datasets = cursor.longs(9)
            sequence = number_of if sequence is None else sequence
            if (kind, version, number_of) != (1, 1, sequence) or at + length > len(data):
                break
            run = bytearray(data[at:at + length])
            run[92:100] = bytes(8)
            if lookup3(bytes(run)) != checksum:
                break
            shapes = {}
            for _ in range(datasets):
                key, size, rank = cursor.longs(3)
                shapes[key] = size, cursor.longs(rank)
            group.append((number, data, cursor.at, records, shapes))
            at, sequence = at + length, sequence + 1
            if not continued:
                if of > serial:
                    return found
                found, group = found + group, []
    return found


def replay(arrays, logs, after, sequence, serial):
    for number, data, at, records, shapes in runs(logs, after, sequence, serial):
        cursor = Cursor(data, at)
        for _ in range(records):
            dataset, where, filters = cursor.head(lambda key: len(shapes[key][1]))
            if dataset == CONTROL:
                kind, n = cursor.longs(2)
                assert kind == 2
                for _ in range(n):
                    key, first, count = cursor.longs(3)
                    if key in arrays:
                        arrays[key].erase(first, count)
                continue
            raw, length = stored(data, cursor.at, elements(where) * shapes[dataset][0], filters)
            cursor.at += length
            if dataset in arrays:
                arrays[dataset].put(where, raw)


def by_id(file):
    """The values of all datasets of the log by ID, by index and by records; none if the file has no log."""
    if "LOG" not in file or "state" not in file["LOG"].attrs:
        return {}
    arrays, again = read(file, ids=True), read(file, True, ids=True)
    for key, array in arrays.items():
        assert array.values.tobytes() == again[key].values.tobytes(), f"dataset {key}: the index and the records differ"
        assert (array.written == again[key].written).all(), f"dataset {key}: written elements"
    return {key: array.values for key, array in arrays.items()}


def read(file, from_records=False, ids=False):
    """The datasets of the log of an h5py file: path to Array. from_records: without the index."""
    group, arrays, paths = file["LOG"], {}, {}

    def visit(name, item):
        if "_log_id" in item.attrs:
            key = int(item.attrs["_log_id"])
            arrays[key], paths[name] = Array(item), key
    file.visititems(visit)
    logs = {int(name[4:]): bytes(item[()].tobytes()) for name, item in group.items() if name.startswith("log_")}
    assert max(logs, default=0) == group.attrs["logs"]
    version, serial, log, used, sequence, entries = map(int, group.attrs["state"][:6])
    assert version == 1
    if from_records:
        replay(arrays, logs, (0, 0), None, serial)
        return arrays if ids else {name: arrays[key] for name, key in paths.items()}
    if "index_table" in group:
        table, skip = bytes(group["index_table"][()].tobytes()), group["skip_list"][()].reshape(-1, 2)
        assert skip[:, 1].sum() == entries
        for key, (at, count) in enumerate(skip.tolist()):
            cursor = Cursor(table, at)
            for _ in range(count):
                if key not in arrays:
                    break
                array = arrays[key]
                dataset, where, filters = cursor.head(lambda _: len(array.shape))
                number, offset = cursor.longs(2)
                assert dataset == key
                array.put(where, stored(logs[number], offset, elements(where) * array.dtype.itemsize, filters)[0])
    replay(arrays, logs, (log, used), sequence, serial)
    return arrays if ids else {name: arrays[key] for name, key in paths.items()}
