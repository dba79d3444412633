"""Writes fuzz/corpus/TARGET/NAME for the targets whose inputs begin with bytes of their own. See seeds.sh."""

import os
import pathlib
import struct
import subprocess
import tempfile

FIXTURES = pathlib.Path("../tests/fixtures")
CORPUS = pathlib.Path("corpus")
# As in fuzz_targets/filters.rs.
FILTERS = [1, 2, 3, 4, 5, 6, 307, 32000, 32001, 32003, 32004, 32008, 32013, 32015, 32026, 305]
CHUNK_BYTES_MAX = 16320


def seed(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


# --- filters: the chunks that libhdf5 stored, format in tests/fixtures/codecs/make_codecs.py.


def records(pack):
    at = 0

    def take(n):
        nonlocal at
        at += n
        return pack[at - n : at]

    while at < len(pack):
        take(take(1)[0])
        (number,) = struct.unpack("<H", take(2))
        client = take(take(1)[0] * 4)
        stored = take(struct.unpack("<I", take(4))[0])
        (length,) = struct.unpack("<I", take(4))
        take(8)
        yield number, client, stored, length


def filters():
    for path in sorted(FIXTURES.glob("codecs/*.pack")):
        for n, (number, client, stored, length) in enumerate(records(path.read_bytes())):
            values = len(client) // 4
            if number not in FILTERS or values > 23 or length > CHUNK_BYTES_MAX:
                continue
            which = FILTERS.index(number)
            head = bytes([which, 1, values + 24 * min(length % 64, 9), length // 64])
            seed("filters", f"{path.stem}-{n}", head + client + stored)
            if n % 4 == 0:
                numbers = b"".join(struct.pack("<f", i % 17 / 3) for i in range(length // 4))
                seed("filters", f"{path.stem}-{n}-encode", bytes([which | 128, 1, values, 0]) + client + numbers)
    import zlib

    text = bytes(range(64)) * 20
    for level in (0, 1, 6, 9):
        head = bytes([0, 2, 1, len(text) // 64])
        seed("filters", f"deflate-{level}", head + struct.pack("<I", level) + zlib.compress(text, level))
        seed("filters", f"deflate-{level}-encode", bytes([128, 2, 1, 0]) + struct.pack("<I", level) + text)


# --- container_values: containers that h5dir makes.


# Kinds of fuzz_targets/container_values.rs by signature.
OBJECTS = {f"H5IOD{letter}1\n".encode(): kind for kind, letter in enumerate("V-NBJPETKCFG") if letter != "-"}


def h5dir(*arguments):
    subprocess.run([os.environ["H5DIR"], *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def objects(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def container_values():
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        long = root / "long"
        long.write_bytes(b"".join(struct.pack("<I", n * n) for n in range(1100)))
        for file in sorted(FIXTURES.glob("mutants/*.h5")):
            container(root / file.stem, file)
        container(root / "more", FIXTURES / "mutants/groups_latest.h5", long)


    # Objects that no command leaves behind.
    uuid, text = bytes(range(16)), struct.pack("<H", 2) + b"me"
    extent = struct.pack("<QIQII", 6, 1, 0, 98, 0)
    for name, data in {
        "joined": b"H5IODJ1\n" + uuid + struct.pack("<QQ", 9, 1000),
        "part-delta": b"H5IODP1\n" + uuid * 2 + struct.pack("<QQ", 9, 1000) + b"\0\1\1" + extent,
        "end-committed": b"H5IODE1\n" + uuid + b"\1" + struct.pack("<QH", 9, 0),
        "end-refused": b"H5IODE1\n" + uuid + b"\0" + struct.pack("<Q", 0) + text,
        "pin": b"H5IODK1\n" + struct.pack("<QQQIQI", 9, 8, 6, 1, 1000, 3600) + text,
        "inner": b"H5IODN1\n\1" + struct.pack("<I", 1) + b"\3\0abc" + extent,
    }.items():
        seed("container_values", name, bytes([OBJECTS[data[:8]]]) + data + bytes(4))


def container(folder, file, long=None):
    """The container that is a copy of `file`; with a long file, tags, transactions and collected garbage, too."""
    place = f"iod:{folder}"
    h5dir("cp", "-a", "--create", f"{file}:/", f"{place}:/")
    if long:
        h5dir("cp", "-a", long, f"{place}:/long")
        h5dir("iod", "tag", place, "t", "2")
        h5dir("tx", "begin", "--peers", "2", place, "a")
        h5dir("tx", "begin", "--after", "a", place, "b")
        h5dir("tx", "abort", place, "a")
        stored_container(folder, "open")
        h5dir("iod", "gc", "--keep-versions", "1", "--grace", "0", place)
        h5dir("cp", "-a", "-f", long, f"{place}:/long2")
        h5dir("iod", "gc", "--keep-versions", "2", "--grace", "0", place)
    stored_container(folder, folder.name)


def stored_container(folder, of):
    """The objects of a container, their values, and the container as a whole."""
    found = objects(folder)
    whole = b""
    for name, data in found.items():
        whole += bytes([len(name)]) + name.encode() + struct.pack("<I", len(data)) + data
        label = f"{of}-{name}".replace("/", "_")
        kind = OBJECTS.get(data[:8])
        if kind is not None:
            seed("container_values", label, bytes([kind]) + data)
        if kind == 0:
            (label_len,) = struct.unpack("<H", data[57:59])
            delta = data[59 + label_len + 1 : -4]
            if data[56] & 2 == 0 and data[59 + label_len] == 0:
                seed("container_values", f"{label}-delta", b"\x01" + delta)
                seed("container_values", f"{label}-walk", b"\x16" + delta)
                values(label, delta)
        elif name.startswith("d/"):
            at = data.find(b"H5IODN1\n")
            if at >= 0:
                seed("container_values", f"{label}-node", b"\x02" + data[at:])
    seed("container_values", f"{of}-whole", b"\x1f" + whole)


def values(label, delta):
    """Values by the kind of their key: those that are inside of a delta."""
    (count,) = struct.unpack("<I", delta[:4])
    at, seen = 4, set()
    for n in range(count):
        (length,) = struct.unpack("<H", delta[at : at + 2])
        key = delta[at + 2 : at + 2 + length]
        at += 2 + length
        stored, at = delta[at], at + 1
        if stored:
            if delta[at] != 0:
                return
            (length,) = struct.unpack("<I", delta[at + 5 : at + 9])
            body, cell = delta[at + 9 : at + 9 + length], delta[at : at + 9 + length]
            at += 9 + length
            message = struct.unpack(">H", key[9:11])[0] if key[8:9] == b"H" else None
            kind = {b"L": 15, b"A": 18, b"V": 19, b"O": 14}.get(key[8:9])
            kind = {3: 17, 0xFF01: 14, 0xFF03: 17, 0xFF04: 17}.get(message, kind)
            if kind is not None and (kind, len(body)) not in seen:
                seen.add((kind, len(body)))
                seed("container_values", f"{label}-{n}-value", bytes([kind]) + body)
                seed("container_values", f"{label}-{n}-cell", b"\x0c" + cell)
                seed("container_values", f"{label}-{n}-key", b"\x0d" + key)
        if delta[at] != 0:
            return
        at += 1


# --- facts and selections: texts.

DATASETS = [
    '{"dtype":"<f8","shape":[4,5],"maxshape":[null,5],"chunks":[2,5],"filters":["shuffle",{"name":"deflate","level":6}],"fillvalue":1.5}',
    '{"dtype":[["a","<i4"],["b","S5"],["c",["<f4",[2,3]]]],"shape":[3],"layout":"compact"}',
    '{"dtype":"str","shape":null}',
    '{"dtype":"|u1","shape":[9,9],"chunks":"auto","layout":"sparse","profile":"filter","filters":"zfp","undefine":"fill"}',
    '{"dtype":{"class":"H5T_ENUM","base":"<i2","members":{"a":1,"b":-2}},"filltime":"never","alloctime":"early","fillvalue":"b"}',
    '{"dtype":{"class":"H5T_REFERENCE","base":"H5T_STD_REF_OBJ"},"shape":[2],"newlines":[1,2]}',
    '{"dtype":{"class":"H5T_VLEN","base":"<i4"},"shape":[2],"fillvalue":[1,2,3]}',
    '{"dtype":"<i4","shape":[2],"fillbytes":"01020304","chunks":[7],"filters":[[1,6],[32013,1,2,3]]}',
]
FACTS = {
    0: "<f4", 1: "[3,4]", 2: "[null,4]", 3: "[2,2]", 4: "shuffle, deflate 6", 5: "12", 6: "compact", 7: "map", 8: DATASETS[0], 9: "[1,2]",
}
ATTRIBUTES = [
    '[{"name":"a","type":"<i4","shape":[2],"value":[1,-2]},{"name":"b","type":"str","value":"text"}]',
    '[{"name":"c","type":{"class":"H5T_COMPOUND","fields":[{"name":"x","type":"<f8"}]},"value":{"x":1.5}}]',
    '[{"name":"d","type":"<f8","shape":{"class":"H5S_SIMPLE","dims":[2],"maxdims":["H5S_UNLIMITED"]},"value":["nan","inf"]}]',
    '[{"name":"e","type":"S4","bytes":"61620000","value":"ab"},{"name":"f","type":{"class":"H5T_VLEN","base":"<i2"},"shape":[2],"value":[[1],[2,3]]}]',
]
REFERENCES = [
    '["/a",null,"",{"dataset":"/d","selection":{"select_type":"H5S_SEL_POINTS","selection":[[0,1],[2,3]]}}]',
    '[{"dataset":"/d","selection":{"select_type":"H5S_SEL_HYPERSLABS","selection":[[[0,2],[0,4]],[[1,1],[3,3]]]}}]',
    '[{"dataset":"/d","selection":{"select_type":"H5S_SEL_HYPERSLABS","start":[0,1],"stride":[2,3],"count":[3,2],"block":[1,2]}}]',
    '[{"dataset":"/d","selection":{"select_type":"H5S_SEL_ALL"}},{"object":"/g","attribute":"a"}]',
]
TYPES = ["<f8", "|b1", "S7", "str", "bytes", "[('a','<i4'),('b','<f8',(2,))]", "{'names':['a'],'formats':['<u2']}", "H5T_STD_I32BE",
         "H5T_COMPOUND { H5T_IEEE_F64LE \"x\"; H5T_STRING { STRSIZE H5T_VARIABLE; STRPAD H5T_STR_NULLTERM; CSET H5T_CSET_UTF8; CTYPE H5T_C_S1; } \"y\"; }",
         '{"class":"H5T_ENUM","base":"i2","members":{"A":1,"B":-1}}', '{"class":"H5T_REFERENCE","base":"H5T_STD_REF"}', "H5T_ARRAY { [2][3] H5T_STD_U8LE }", "H5T_OPAQUE { OPAQUE_TAG \"t\"; OPAQUE_SIZE 4; }"]


def facts():
    put = lambda kind, n, text: seed("facts", f"{kind}-{n}", bytes([kind]) + (text if isinstance(text, bytes) else text.encode()))
    for n, text in enumerate(DATASETS):
        put(0, n, text)
        put(5, n, text)
        put(8, n, text)
        put(10, n, b"\x03" + text.encode() + b"\0\x00" + ATTRIBUTES[n % 4].encode() + b"\0\x0a[7]\0\x06\"3\"")
    for fact, text in FACTS.items():
        put(1, fact, bytes([fact]) + text.encode())
        put(11, fact, b"\x05" + TYPES[fact].encode() + b"\0\x0b[4]\0" + bytes([3 + fact % 3]) + text.encode())
    for n, text in enumerate(ATTRIBUTES):
        put(2, n, text)
    for n, text in enumerate(REFERENCES):
        put(3, n, text)
    put(4, 0, '{"type":"/t","attributes":{"a":"/u/v","b":"/t"}}')
    put(4, 1, '["a","b"]')
    put(4, 2, '{"key":"<i8","value":"<f8"}')
    for n, text in enumerate(TYPES):
        put(6, n, text)
        put(7, n, text.encode() + b"\n\x02" + b"[1,2]")
        put(7, f"{n}-text", text.encode() + b"\n\x00" + b"1")
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }"
    header += b" " * (117 - len(header)) + b"\n"
    put(9, 0, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)


def selections():
    for n, text in enumerate(["", "1:3,2", ":, 1:", "-2:,:-1", "0,0\n1:,1:", "5:3,2:99\n:2", "2:5,1:4\n3:6,2:9"]):
        seed("selections", f"text-{n}", b"\x00\x02\x06\x09" + text.encode())
        seed("selections", f"large-{n}", b"\x00\x02\xff\x09" + text.encode())
        seed("selections", f"dataset-{n}", b"\x03\x00" + text.encode())
    for n, text in enumerate(REFERENCES):
        seed("selections", f"region-{n}", b"\x01\x02\x06\x09" + text.encode())
    u4 = lambda *numbers: struct.pack(f"<{len(numbers)}I", *numbers)
    u8 = lambda *numbers: struct.pack(f"<{len(numbers)}Q", *numbers)
    regular = u8(0, 2, 3, 1) + u8(1, 3, 2, 2)
    for name, body in {
        "none": u4(0, 1, 0, 0),
        "all": u4(3, 1, 0, 0),
        "points1": u4(1, 1, 0, 24, 2, 2, 0, 1, 2, 3),
        "points2": u4(1, 2) + b"\x08" + u4(2) + u8(2, 0, 1, 2, 3),
        "blocks1": u4(2, 1, 0, 24, 2, 1, 0, 1, 2, 3),
        "regular2": u4(2, 2) + b"\x01" + u4(68, 2) + regular,
        "regular3": u4(2, 3) + b"\x01\x08" + u4(2) + regular,
        "blocks3": u4(2, 3) + b"\x00\x08" + u4(2) + u8(2, 0, 0, 1, 1, 2, 2, 3, 3),
    }.items():
        seed("selections", f"stored-{name}", b"\x02\x02\x06\x09" + body)


# --- http_answers: kind of store, operation, first byte, length, answers.

S3_PAGE = (
    '<?xml version="1.0"?><ListBucketResult><Name>b</Name><Prefix>p/v/</Prefix><KeyCount>2</KeyCount><IsTruncated>{more}</IsTruncated>'
    "{token}<Contents><Key>p/v/0000000000000002</Key><LastModified>2024-01-02T03:04:05.000Z</LastModified><ETag>&quot;e&quot;</ETag>"
    "<Size>40</Size></Contents><Contents><Key>p/folder/name</Key><LastModified>2024-01-02T03:04:05.000Z</LastModified>"
    "<ETag>&quot;f&quot;</ETag><Size>300</Size></Contents><CommonPrefixes><Prefix>p/folder/sub/</Prefix></CommonPrefixes></ListBucketResult>"
)
AZURE_PAGE = (
    '<?xml version="1.0"?><EnumerationResults><Prefix>p/v/</Prefix><Blobs><Blob><Name>p/v/0000000000000002</Name><Properties>'
    "<Last-Modified>Wed, 21 Oct 2015 07:28:00 GMT</Last-Modified><Etag>0x8D</Etag><Content-Length>40</Content-Length>"
    "<Content-Type>a</Content-Type><ResourceType>file</ResourceType></Properties></Blob><BlobPrefix><Name>p/folder/sub/</Name></BlobPrefix>"
    "</Blobs><NextMarker>{token}</NextMarker></EnumerationResults>"
)
DAV_PAGE = (
    '<?xml version="1.0"?><D:multistatus xmlns:D="DAV:"><D:response><D:href>/p/v/0000000000000002</D:href><D:propstat><D:prop>'
    "<D:getlastmodified>Wed, 21 Oct 2015 07:28:00 GMT</D:getlastmodified><D:getcontentlength>40</D:getcontentlength>"
    "<D:resourcetype></D:resourcetype><D:getetag>e</D:getetag></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
    "</D:multistatus>"
)


def document(text, how=0):
    data = text.encode()
    return struct.pack(">H", len(data)) + bytes([24 | how, 0, 0]) + struct.pack(">H", len(data)) + data


def plain(length, how=0, right=0, others=b"\0"):
    return struct.pack(">H", length) + bytes([how, right]) + others


def http_answers():
    pages = [S3_PAGE.format(more="true", token="<NextContinuationToken>t</NextContinuationToken>"), S3_PAGE.format(more="false", token="")]
    azure = [AZURE_PAGE.format(token="t"), AZURE_PAGE.format(token="")]
    error = "<Error><Code>AccessDenied</Code><Message>m</Message></Error>"
    for kind, documents in enumerate([pages, pages, azure, [DAV_PAGE]]):
        listing = b"".join(map(document, documents))
        for operation in (1, 2, 3):
            seed("http_answers", f"list-{kind}-{operation}", bytes([kind, operation, 0, 9]) + listing + plain(300) * 3)
        for operation in (0, 4, 5, 6):
            seed("http_answers", f"read-{kind}-{operation}", bytes([kind, operation, 5, 9]) + plain(900) * 6)
            seed("http_answers", f"short-{kind}-{operation}", bytes([kind, operation, 5, 9]) + plain(90, 0, 16, b"\x10") * 6)
            seed("http_answers", f"whole-{kind}-{operation}", bytes([kind, operation, 5, 9]) + plain(900, 2) * 3)
            seed("http_answers", f"refused-{kind}-{operation}", bytes([kind, operation, 5, 9]) + document(error, 6) * 3)
            other = b"\x01\x00\x12bytes 5-149/900000"
            seed("http_answers", f"other-{kind}-{operation}", bytes([kind, operation, 5, 9]) + plain(900, 0, 1, other) * 3)


for make in (filters, container_values, facts, selections, http_answers):
    make()
