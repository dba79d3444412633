"""An independent reader of containers in object stores, after docs/FORMAT-objectstore.md.

It checks every signature, checksum and hash that it meets, and raises Damaged. It shares no code
with h5dir."""

import os
import struct

MASK = 0xFFFFFFFF


class Damaged(Exception):
    """A stored object is not as the format page has it."""


# ---- CRC32C (RFC 3720, B.4), a table of bytes
def _crc_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


CRC_TABLE = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


# ---- lookup3 (Bob Jenkins, public domain): hashlittle

def _rot(x, k):
    return ((x << k) | (x >> (32 - k))) & MASK


def lookup3(data, initial=0):
    a = b = c = (0xDEADBEEF + len(data) + initial) & MASK
    if not data:
        return c
    whole = (len(data) - 1) // 12
    words = struct.unpack_from(f"<{whole * 3}I", data)
    for i in range(0, whole * 3, 3):
        a, b, c = (a + words[i]) & MASK, (b + words[i + 1]) & MASK, (c + words[i + 2]) & MASK
        a = ((a - c) & MASK) ^ _rot(c, 4)
        c = (c + b) & MASK
        b = ((b - a) & MASK) ^ _rot(a, 6)
        a = (a + c) & MASK
        c = ((c - b) & MASK) ^ _rot(b, 8)
        b = (b + a) & MASK
        a = ((a - c) & MASK) ^ _rot(c, 16)
        c = (c + b) & MASK
        b = ((b - a) & MASK) ^ _rot(a, 19)
        a = (a + c) & MASK
        c = ((c - b) & MASK) ^ _rot(b, 4)
        b = (b + a) & MASK
    x, y, z = struct.unpack("<3I", data[whole * 12:].ljust(12, b"\0"))
    a, b, c = (a + x) & MASK, (b + y) & MASK, (c + z) & MASK
    c = ((c ^ b) - _rot(b, 14)) & MASK
    a = ((a ^ c) - _rot(c, 11)) & MASK
    b = ((b ^ a) - _rot(a, 25)) & MASK
    c = ((c ^ b) - _rot(b, 16)) & MASK
    a = ((a ^ c) - _rot(c, 4)) & MASK
    b = ((b ^ a) - _rot(a, 14)) & MASK
    return ((c ^ b) - _rot(b, 24)) & MASK


# ---- stores

class Folder:
    """Objects that are files of a folder."""

    def __init__(self, path):
        self.path = path

    def get(self, key):
        with open(os.path.join(self.path, key), "rb") as f:
            return f.read()

    def beside(self, name):
        """The bytes of the file `name`, relative to the directory that the folder is in."""
        with open(os.path.join(os.path.dirname(os.path.realpath(self.path)), os.fsdecode(name)), "rb") as f:
            return f.read()

    def keys(self):
        found = []
        for root, _, names in os.walk(self.path):
            inner = os.path.relpath(root, self.path)
            found += [name if inner == "." else f"{inner}/{name}" for name in names if not name.startswith(".")]
        return sorted(found)


class Bucket:
    """Objects below a prefix of a bucket; `client` is boto3's."""

    def __init__(self, client, bucket, prefix):
        self.client, self.bucket, self.prefix = client, bucket, prefix + "/"

    def get(self, key):
        return self.client.get_object(Bucket=self.bucket, Key=self.prefix + key)["Body"].read()

    def keys(self):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
        return sorted(o["Key"][len(self.prefix):] for page in pages for o in page.get("Contents", []))


# ---- codecs

class Reader:
    def __init__(self, data, what):
        self.data, self.what, self.at = data, what, 0

    def take(self, n):
        if self.at + n > len(self.data):
            raise Damaged(f"{self.what}: it ends early")
        self.at += n
        return self.data[self.at - n:self.at]

    def uint(self, n):
        return int.from_bytes(self.take(n), "little")

    def end(self):
        if self.at != len(self.data):
            raise Damaged(f"{self.what}: bytes follow its end")


def sealed(data, signature, what):
    if data[:8] != signature or len(data) < 12:
        raise Damaged(f"{what}: another signature")
    if lookup3(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise Damaged(f"{what}: wrong checksum")
    return Reader(data[8:-4], what)


def read_extent(r):
    return ("extent", r.uint(8), r.uint(4), r.uint(8), r.uint(4), r.uint(4))


def read_cell(r):
    tag, mask = r.uint(1), r.uint(4)
    if tag == 0:
        return mask, r.take(r.uint(4))
    if tag == 2:
        return mask, ("original", r.uint(8), r.uint(8), r.uint(4), r.uint(4))
    if tag != 1:
        raise Damaged(f"{r.what}: a cell of kind {tag}")
    return mask, read_extent(r)


def read_delta(r):
    """(key, cell or None, written ranges or None for all bytes) of each change."""
    entries, last = [], b""
    for _ in range(r.uint(4)):
        key = r.take(r.uint(2))
        if key <= last:
            raise Damaged(f"{r.what}: keys do not ascend")
        last = key
        cell = read_cell(r) if r.uint(1) else None
        ranges = [(r.uint(4), r.uint(4)) for _ in range(r.uint(4))] if r.uint(1) else None
        entries.append((key, cell, ranges))
    return entries


class Record:
    """One commit record."""

    def __init__(self, version, data, resolve):
        r = sealed(data, b"H5IODV1\n", f"version {version}")
        self.version, self.uuid, self.previous = r.uint(8), r.take(16), r.uint(8)
        self.session, self.seconds, self.flags = r.uint(8), r.uint(8), r.uint(1)
        self.label = r.take(r.uint(2))
        if r.uint(1):
            delta = Reader(resolve(read_extent(r)), f"delta of version {version}")
            self.entries = read_delta(delta)
            delta.end()
        else:
            self.entries = read_delta(r)
        r.end()
        if self.version != version:
            raise Damaged(f"version {version}: it is of version {self.version}")
        self.hash = lookup3(data, 1) << 32 | lookup3(data, 2)


class Container:
    """All versions of a container, from its records."""

    def __init__(self, store):
        self.store, self.packs = store, {}
        sealed(store.get("iod"), b"H5IODF1\n", "descriptor")

    def resolve(self, extent):
        """The bytes of an extent or of an inline value."""
        if not isinstance(extent, tuple):
            return extent
        if extent[0] == "original":
            _, number, offset, length, checksum = extent
            name = f"o/{number:016x}"
            r = sealed(self.store.get(name), b"H5IODO1\n", name)
            path = r.take(r.uint(2))
            r.end()
            data = self.store.beside(path)[offset:offset + length]
        else:
            _, session, pack, offset, length, checksum = extent
            name = f"d/{session:016x}/{pack:08x}"
            if name not in self.packs:
                self.packs[name] = self.store.get(name)
            data = self.packs[name][offset:offset + length]
        if len(data) != length or crc32c(data) != checksum:
            raise Damaged(f"{name}: {length} bytes at {offset} have another checksum")
        return data

    def records(self):
        """The records in order. Raises Damaged if they are not dense or do not follow one another."""
        names = [key for key in self.store.keys() if key.startswith("v/")]
        previous = 0
        for version, name in enumerate(names, 1):
            if name != f"v/{version:016x}":
                raise Damaged(f"{name}: version {version} is missing")
            record = Record(version, self.store.get(name), self.resolve)
            if record.previous != previous:
                raise Damaged(f"version {version}: it has the hash of another record before it")
            previous = record.hash
            yield record


def parts(key):
    """Object id, kind and rest of a key."""
    return int.from_bytes(key[:8], "big"), key[8:9], key[9:]


def link_target(message):
    """The object id of a hard link; None for other links. Link message, version 1."""
    r = Reader(message, "link")
    version, flags = r.uint(1), r.uint(1)
    if version != 1:
        raise Damaged(f"link message version {version}")
    kind = r.uint(1) if flags & 8 else 0
    if flags & 4:
        r.take(8)
    if flags & 16:
        r.take(1)
    r.take(r.uint(1 << (flags & 3)))
    return r.uint(8) if kind == 0 else None
