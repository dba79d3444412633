"""Reads structured chunks (layout class 4), which h5py does not open: an independent reader.

  structured.py FILE NAME     prints shape, elements, defined elements

The encoding is that of the tables of the proposal; nothing here is shared with h5dir. h5py gives
the address of the object header, which it need not open for that.
"""

import math
import struct
import sys
import zlib

import h5py
import numpy as np

U = 0xFFFFFFFFFFFFFFFF
MASK = 0xFFFFFFFF


def rot(x, k):
    return ((x << k) | (x >> (32 - k))) & MASK


def lookup3(data):
    """Jenkins' lookup3, initial value 0."""
    n = len(data)
    a = b = c = (0xDEADBEEF + n) & MASK
    if n == 0:
        return c
    at = 0
    while n - at > 12:
        x, y, z = struct.unpack_from("<3I", data, at)
        a, b, c = (a + x) & MASK, (b + y) & MASK, (c + z) & MASK
        for k, turn in zip((4, 6, 8, 16, 19, 4), range(6)):
            if turn % 3 == 0:
                a = ((a - c) & MASK) ^ rot(c, k)
                c = (c + b) & MASK
            elif turn % 3 == 1:
                b = ((b - a) & MASK) ^ rot(a, k)
                a = (a + c) & MASK
            else:
                c = ((c - b) & MASK) ^ rot(b, k)
                b = (b + a) & MASK
        at += 12
    x, y, z = struct.unpack("<3I", data[at:].ljust(12, b"\0"))
    a, b, c = (a + x) & MASK, (b + y) & MASK, (c + z) & MASK
    for k, turn in zip((14, 11, 25, 16, 4, 14, 24), range(7)):
        if turn % 3 == 0:
            c = ((c ^ b) - rot(b, k)) & MASK
        elif turn % 3 == 1:
            a = ((a ^ c) - rot(c, k)) & MASK
        else:
            b = ((b ^ a) - rot(a, k)) & MASK
    return c


assert lookup3(b"Four score and seven years ago") == 0x17770551


def uint(data, at, width):
    return int.from_bytes(data[at : at + width], "little")


def address_of(file, name):
    with h5py.File(file, "r") as f:
        value = f.id.links.get_info(name.encode()).u
    return int.from_bytes(value, "little") if isinstance(value, bytes) else int(value)


def messages(data, at):
    """Messages of an object header: type -> body."""
    found = {}
    if data[at : at + 4] == b"OHDR":
        flags = data[at + 5]
        p = at + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        blocks = [(p + width, p + width + uint(data, p, width))]
        assert lookup3(data[at : blocks[0][1]]) == uint(data, blocks[0][1], 4)
        head = 4 + (2 if flags & 4 else 0)
        while blocks:
            p, end = blocks.pop(0)
            while p + head <= end:
                kind, size = data[p], uint(data, p + 1, 2)
                body = data[p + head : p + head + size]
                if kind == 0x10:
                    start, length = struct.unpack_from("<2Q", body)
                    assert data[start : start + 4] == b"OCHK"
                    blocks.append((start + 4, start + length - 4))
                found[kind] = body
                p += head + size
        return found
    assert data[at] == 1
    blocks = [(at + 16, at + 16 + uint(data, at + 8, 4))]
    while blocks:
        p, end = blocks.pop(0)
        while p + 8 <= end:
            kind, size = uint(data, p, 2), uint(data, p + 2, 2)
            body = data[p + 8 : p + 8 + size]
            if kind == 0x10:
                start, length = struct.unpack_from("<2Q", body)
                blocks.append((start, start + length))
            found[kind] = body
            p += 8 + size
    return found


class Layout:
    """The data layout message, and the section filters message."""

    def __init__(self, body, filters):
        version, cls, prop, kind, flags, n, width = struct.unpack_from("<BBBHBBB", body)
        assert (version, cls, prop, kind) == (5, 4, 0, 0), body.hex()
        dims = [uint(body, 8 + i * width, width) for i in range(n)]
        p = 8 + n * width
        self.chunk, self.size = dims[:-1], dims[-1]
        assert body[p : p + 4] == bytes([8, 2, 1, 0]), "offset size, sections, checksummed sections"
        self.index = body[p + 4]
        p += 5
        bytes_ = math.prod(dims)
        self.width = min(8, 1 + (int(math.log2(bytes_)) + 8) // 8)
        self.raw_edges = flags & 1
        self.filters = {0: [], 1: []}
        if filters is not None:
            self.filters.update(section_filters(filters))
        self.filtered = filters is not None
        self.single = None
        if self.index == 1:
            assert bool(flags & 2) == self.filtered
            size = uint(body, p, self.width)
            tail = self.tail(body, p + self.width)
            p += self.width + 8 + (24 if self.filtered else 0)
            self.single = (size, *tail)
        else:
            p += {3: 1, 4: 5, 5: 6}[self.index]
        self.address = uint(body, p, 8)

    def tail(self, data, p):
        offset = uint(data, p, 8)
        if not self.filtered:
            return offset, None, None
        return offset, struct.unpack_from("<2Q", data, p + 8), struct.unpack_from("<2I", data, p + 24)

    def tail_size(self):
        return 8 + (24 if self.filtered else 0)

    def element(self, data, p):
        """Address, size, offset of section 1, unfiltered sizes, masks."""
        address = uint(data, p, 8)
        if address == U:
            assert not any(data[p + 8 : p + 8 + self.width + self.tail_size()]), "an absent chunk has no properties"
            return None
        return (address, uint(data, p + 8, self.width), *self.tail(data, p + 8 + self.width))

    def element_size(self):
        return 8 + self.width + self.tail_size()


def section_filters(body):
    version, count = body[0], body[1]
    assert version == 1 and count > 0
    found, p = {}, 2
    for _ in range(count):
        section, filters, length = struct.unpack_from("<BBH", body, p)
        p += 4
        end, found[section] = p + length, []
        for _ in range(filters):
            ident = uint(body, p, 2)
            p += 2
            name = 0
            if ident >= 256:
                name = uint(body, p, 2)
                p += 2
            values = uint(body, p + 2, 2)
            p += 4 + name
            found[section].append((ident, struct.unpack_from(f"<{values}I", body, p)))
            p += 4 * values
        assert p == end
    return found


def fixed_array(data, at, layout):
    """Records by number."""
    assert data[at : at + 4] == b"FAHD" and data[at + 4] in (0, 1)
    client, size, bits = data[at + 5 : at + 8]
    count, block = struct.unpack_from("<2Q", data, at + 8)
    assert lookup3(data[at : at + 24]) == uint(data, at + 24, 4)
    assert (client, size) == (3 if layout.filtered else 2, layout.element_size())
    if block == U:
        return
    assert data[block : block + 4] == b"FADB" and data[block + 4] == data[at + 4]
    p, page = block + 14, 1 << bits
    if count <= page:
        assert lookup3(data[block : p + count * size]) == uint(data, p + count * size, 4)
        yield from ((i, layout.element(data, p + i * size)) for i in range(count))
        return
    pages = -(-count // page)
    bitmap, p = data[p : p + -(-pages // 8)], p + -(-pages // 8) + 4
    for n in range(pages):
        here = min(page, count - n * page)
        if bitmap[n // 8] & (0x80 >> n % 8):
            yield from ((n * page + i, layout.element(data, p + i * size)) for i in range(here))
        p += here * size + 4


def extensible_array(data, at, layout):
    assert data[at : at + 5] == b"EAHD\0"
    client, size, max_bits, index_count, min_count, min_pointers, page_bits = data[at + 5 : at + 12]
    assert (client, size) == (3 if layout.filtered else 2, layout.element_size())
    highest, block = uint(data, at + 12 + 32, 8), uint(data, at + 12 + 48, 8)
    if block == U:
        return
    assert data[block : block + 5] == b"EAIB\0"
    p = block + 14
    yield from ((i, layout.element(data, p + i * size)) for i in range(min(index_count, highest)))
    p += index_count * size
    offset_width = -(-max_bits // 8)

    def data_block(address, first, count):
        if address != U:
            assert data[address : address + 5] == b"EADB\0" and count <= 1 << page_bits
            q = address + 14 + offset_width
            assert lookup3(data[address : q + count * size]) == uint(data, q + count * size, 4)
            yield from ((first + i, layout.element(data, q + i * size)) for i in range(count))

    direct = 2 * int(math.log2(min_pointers))
    first, super_count = index_count, 1 + max_bits - int(math.log2(min_count))
    pointers = p + 8 * 2 * (min_pointers - 1)
    for u in range(super_count):
        blocks, count = 1 << u // 2, (1 << (u + 1) // 2) * min_count
        if u < direct:
            addresses = [uint(data, p + 8 * i, 8) for i in range(blocks)]
            p += 8 * blocks
        else:
            address = uint(data, pointers + 8 * (u - direct), 8)
            addresses = [U] * min(blocks, 1)
            if address != U:
                assert data[address : address + 5] == b"EASB\0" and count <= 1 << page_bits
                q = address + 14 + offset_width
                addresses = [uint(data, q + 8 * i, 8) for i in range(blocks)]
        for i, address in enumerate(addresses):
            yield from data_block(address, first + i * count, count)
        first += blocks * count


def btree(data, at, layout, rank):
    """Records with their scaled offsets."""
    assert data[at : at + 5] == b"BTHD\0"
    kind, node, size, depth = struct.unpack_from("<BIHH", data, at + 5)
    root, count = struct.unpack_from("<QH", data, at + 16)
    assert (kind, size) == (13 if layout.filtered else 12, layout.element_size() + 8 * rank)
    most = [(node - 10) // size]
    total, widths = most[:], [0]
    count_width = (most[0].bit_length() + 7) // 8
    for level in range(1, depth + 1):
        pointer = 8 + count_width + widths[-1]
        most.append((node - 10 - pointer) // (size + pointer))
        total.append((most[-1] + 1) * total[-1] + most[-1])
        widths.append((total[-1].bit_length() + 7) // 8)

    def walk(address, count, level):
        length = 6 + count * size
        assert data[address : address + 6] == (b"BTIN\0" if level else b"BTLF\0") + bytes([kind])
        records = [address + 6 + i * size for i in range(count)]
        width = widths[level - 1] if level > 1 else 0
        pointer = 8 + count_width + width
        for i in range(count + 1):
            if level:
                q = address + length + i * pointer
                yield from walk(uint(data, q, 8), uint(data, q + 8, count_width), level - 1)
            if i < count:
                yield records[i]

    last = None
    for p in walk(root, count, depth) if count else []:
        head = p + 8 + layout.width
        scaled = struct.unpack_from(f"<{rank}Q", data, head)
        assert last is None or last < scaled, "ascending"
        last = scaled
        record = (uint(data, p, 8), uint(data, p + 8, layout.width), *layout.tail(data, head + 8 * rank))
        yield scaled, record


def unfilter(stored, filters, mask):
    for i, (ident, values) in reversed(list(enumerate(filters))):
        if mask >> i & 1:
            continue
        if ident == 1:
            stored = zlib.decompress(stored)
        elif ident == 2:
            n = len(stored) // values[0]
            head = np.frombuffer(stored[: n * values[0]], "u1").reshape(values[0], n).T.tobytes()
            stored = head + stored[n * values[0] :]
        elif ident == 3:
            stored = stored[:-4]
        else:
            raise SystemExit(f"filter {ident}")
    return stored


def selected(section, chunk):
    """Numbers of the selected elements, in order."""
    assert lookup3(section[:-4]) == uint(section, len(section) - 4, 4), "checksum"
    message, version, width, length = struct.unpack_from("<BBBI", section)
    assert (message, version, width) == (1, 0, 8)
    extent = section[7 : 7 + length]
    assert extent[0] == 1 and list(struct.unpack_from(f"<{len(chunk)}Q", extent, 8)) == list(chunk), "extent"
    rest = section[7 + length : -4]
    kind, version = struct.unpack_from("<2I", rest)
    everything = np.arange(math.prod(chunk)).reshape(chunk)
    if kind == 0:
        return everything.ravel()[:0]
    if kind == 3:
        return everything.ravel()
    assert version == 1 and uint(rest, 12, 4) == len(rest) - 16
    rank, count = struct.unpack_from("<2I", rest, 16)
    assert rank == len(chunk)
    numbers = np.frombuffer(rest[24:], "<u4").astype(int)
    if kind == 1:
        return everything[tuple(numbers.reshape(count, rank).T)]
    mask = np.zeros(chunk, bool)
    for block in numbers.reshape(count, 2, rank):
        place = tuple(slice(a, b + 1) for a, b in zip(*block))
        assert not mask[place].any(), "blocks overlap"
        mask[place] = True
    return everything[mask]


def read(file, name, dtype, fill=0):
    """Elements and mask of the defined ones."""
    at = address_of(file, name)
    data = open(file, "rb").read()
    found = messages(data, at)
    assert 0x0B not in found
    space = found[1]
    rank = space[1]
    p = 8 if space[0] == 1 else 4
    dims = struct.unpack_from(f"<{rank}Q", space, p)
    maximum = struct.unpack_from(f"<{rank}Q", space, p + 8 * rank) if space[2] & 1 else dims
    layout = Layout(found[8], found.get(0x19))
    assert layout.size == np.dtype(dtype).itemsize
    values, mask = np.full(dims, fill, dtype), np.zeros(dims, bool)

    def by_number():
        walk = fixed_array if layout.index == 3 else extensible_array
        counts = [-(-m // c) for m, c in zip(maximum, layout.chunk)]
        # The unlimited dimension varies slowest.
        order = sorted(range(rank), key=lambda i: maximum[i] != U)
        for n, record in walk(data, layout.address, layout):
            scaled = [0] * rank
            for i in reversed(order[1:]):
                n, scaled[i] = divmod(n, counts[i])
            scaled[order[0]] = n
            if record:
                yield tuple(scaled), record

    if layout.address == U:
        return values, mask
    if layout.index == 1:
        chunks = [((0,) * rank, (layout.address, *layout.single))]
    elif layout.index == 5:
        chunks = btree(data, layout.address, layout, rank)
    else:
        chunks = by_number()
    for scaled, (address, size, offset, unfiltered, masks) in chunks:
        stored = data[address : address + size]
        assert len(stored) == size and 0 < offset <= size
        sections = [stored[:offset], stored[offset:]]
        origin = [s * c for s, c in zip(scaled, layout.chunk)]
        edge = any(o + c > d for o, c, d in zip(origin, layout.chunk, dims))
        if layout.filtered and not (edge and layout.raw_edges):
            for i in (0, 1):
                if sections[i]:
                    sections[i] = unfilter(sections[i], layout.filters[i], masks[i])
                assert len(sections[i]) == unfiltered[i], "unfiltered size"
        numbers = selected(sections[0], layout.chunk)
        part = np.frombuffer(sections[1], dtype)
        assert len(part) == len(numbers)
        whole, there = np.full(layout.chunk, fill, dtype).ravel(), np.zeros(math.prod(layout.chunk), bool)
        whole[numbers], there[numbers] = part, True
        place = tuple(slice(o, min(o + c, d)) for o, c, d in zip(origin, layout.chunk, dims))
        inner = tuple(slice(0, s.stop - s.start) for s in place)
        values[place], mask[place] = whole.reshape(layout.chunk)[inner], there.reshape(layout.chunk)[inner]
    return values, mask


if __name__ == "__main__":
    values, mask = read(sys.argv[1], sys.argv[2], sys.argv[3])
    print(values.shape, values.ravel()[:100].tolist(), np.argwhere(mask).tolist()[:100])
