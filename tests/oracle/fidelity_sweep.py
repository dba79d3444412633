"""Copies of whole files lose nothing: into a new file, a container, a local directory and back, and between mounts.

Each copy is compared with its source object by object, by libhdf5: types, shapes, storage, attributes with their raw bytes,
values. What a copy loses must be named by the command, which then ends with 1. The files are made here; those of the corpus are
copied, too, if it is there (CORPUS, a folder with shared.txt): CORPUS_FILES of them, in the order of the seed.
"""
import ctypes
import glob
import itertools
import os
import random
import re
import shutil
import subprocess

import h5py
import hdf5plugin  # noqa: F401 (its filters are registered)
import numpy as np
from h5py import h5a, h5d, h5g, h5o, h5p, h5s, h5t

import harness

LIB = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(h5py.__file__), "..", "h5py.libs", "libhdf5-*.so*"))[0])
ID, POINTER = ctypes.c_int64, ctypes.c_void_p
LIB.H5Aread.argtypes = [ID, ID, POINTER]
LIB.H5Dread.argtypes = [ID, ID, ID, ID, ID, POINTER]
LIB.H5Tencode.argtypes = [ID, POINTER, POINTER]
LIB.H5Pset_fill_value.argtypes = [ID, ID, POINTER]
LIB.H5Pget_fill_value.argtypes = [ID, ID, POINTER]
LIB.H5Rget_name.argtypes = [ID, ctypes.c_int, POINTER, POINTER, ctypes.c_size_t]
LIB.H5Rget_name.restype = ctypes.c_ssize_t
LIB.H5Pset_obj_track_times.argtypes = [ID, ctypes.c_bool]
LIB.H5Oget_comment.argtypes = [ID, POINTER, ctypes.c_size_t]
LIB.H5Oget_comment.restype = ctypes.c_ssize_t
LIB.H5Eset_auto2.argtypes = [ID, POINTER, POINTER]
LIB.H5Eset_auto2(0, None, None)
BYTES_MAX = 16 << 20
CORPUS = os.environ.get("CORPUS", os.path.join(harness.TOP, "..", "shared", "corpus"))
CORPUS_FILES = int(os.environ.get("CORPUS_FILES", "40"))


# What libhdf5 shows of an object.

def has_parts(kind):
    """True for a type whose elements lead elsewhere, so that their bytes are no values."""
    c = kind.get_class()
    if c == h5t.COMPOUND:
        return any(has_parts(kind.get_member_type(i)) for i in range(kind.get_nmembers()))
    if c == h5t.ARRAY:
        return has_parts(kind.get_super())
    return c in (h5t.VLEN, h5t.REFERENCE) or c == h5t.STRING and kind.is_variable_str()


def has_references_in_sequences(kind, within=False):
    """h5py crashes while it reads some values of such a type."""
    c = kind.get_class()
    if c == h5t.COMPOUND:
        return any(has_references_in_sequences(kind.get_member_type(i), within) for i in range(kind.get_nmembers()))
    if c in (h5t.ARRAY, h5t.VLEN):
        return has_references_in_sequences(kind.get_super(), within or c == h5t.VLEN)
    return within and c == h5t.REFERENCE


def encoded(kind):
    size = ctypes.c_size_t()
    LIB.H5Tencode(kind.id, None, ctypes.byref(size))
    out = ctypes.create_string_buffer(size.value)
    LIB.H5Tencode(kind.id, out, ctypes.byref(size))
    return out.raw


def type_of(thing):
    """The type without what depends on the version of its message: names as bytes, members, order."""
    kind = thing if isinstance(thing, h5t.TypeID) else thing.get_type()
    c = kind.get_class()
    if c == h5t.COMPOUND:
        names = [kind.get_member_name(i) for i in range(kind.get_nmembers())]
        members = [(kind.get_member_offset(i), type_of(kind.get_member_type(i))) for i in range(kind.get_nmembers())]
        return ("compound", kind.get_size(), names, members)
    if c == h5t.ARRAY:
        return ("array", kind.get_array_dims(), type_of(kind.get_super()))
    if c == h5t.VLEN:
        return ("sequence", type_of(kind.get_super()))
    if c == h5t.ENUM:
        members = [(kind.get_member_name(i), kind.get_member_value(i)) for i in range(kind.get_nmembers())]
        return ("enum", type_of(kind.get_super()), members)
    if c == h5t.OPAQUE:
        return ("opaque", kind.get_size(), kind.get_tag())
    if c == h5t.STRING:
        return ("string", None if kind.is_variable_str() else kind.get_size(), kind.get_cset(), kind.get_strpad())
    if c == h5t.REFERENCE:
        return ("reference", kind.get_size())
    return ("number", encoded(kind.copy() if kind.committed() else kind)[8:])


def content(thing, attribute, owner):
    """The elements: raw bytes; references by names; of parts what h5py shows."""
    space = thing.get_space()
    count = 0 if space.get_simple_extent_type() == h5s.NULL else space.get_simple_extent_npoints()
    kind = thing.get_type()
    size = count * kind.get_size()
    if not count or size > BYTES_MAX:
        return size
    raw = ctypes.create_string_buffer(size)
    if kind.get_class() == h5t.REFERENCE and kind.get_size() in (8, 12) or not has_parts(kind):
        read = LIB.H5Aread(thing.id, kind.id, raw) if attribute else LIB.H5Dread(thing.id, kind.id, 0, 0, 0, raw)
        if read < 0:
            return "unreadable"
        if not has_parts(kind):
            return raw.raw
        return [target(owner, kind, raw.raw[i:i + kind.get_size()]) for i in range(0, size, kind.get_size())]
    if has_references_in_sequences(kind):
        return "unjudged"
    try:
        value = h5py.Dataset(thing)[()] if not attribute else h5py.AttributeManager(owner)[attribute]
        return re.sub(r"<HDF5 [^>]*>|<h5py\S* object at [^>]*>", "", repr(np.asarray(value).tolist()))
    except Exception as e:  # h5py has no such type
        return f"unjudged {type(e).__name__}"


def target(owner, kind, reference):
    if not any(reference):
        return None
    name = ctypes.create_string_buffer(1024)
    found = LIB.H5Rget_name(owner.id.id, 0 if kind.get_size() == 8 else 1, reference, name, 1024)
    return name.value if found > 0 else "nowhere"


def fill_of(dataset):
    plist, kind = dataset.id.get_create_plist(), dataset.id.get_type()
    state = plist.fill_value_defined()
    if state != h5d.FILL_VALUE_USER_DEFINED:
        return state
    if kind.get_class() == h5t.STRING and kind.is_variable_str():
        text = ctypes.c_char_p()
        read = LIB.H5Pget_fill_value(plist.id, kind.id, ctypes.byref(text))
        return "unreadable" if read < 0 else text.value or h5d.FILL_VALUE_DEFAULT
    raw = ctypes.create_string_buffer(kind.get_size())
    if has_parts(kind) and kind.get_class() not in (h5t.REFERENCE, h5t.COMPOUND):
        return state
    if LIB.H5Pget_fill_value(plist.id, kind.id, raw) < 0:
        return "unreadable"
    # A fill value of zero bytes is the default one.
    zero = not any(raw.raw)
    if zero:
        return h5d.FILL_VALUE_DEFAULT
    return members_of(dataset, kind, raw.raw) if has_parts(kind) else raw.raw


def members_of(dataset, kind, raw):
    """The members of a compound value, with the names of what its references lead to."""
    if kind.get_class() == h5t.REFERENCE:
        return target(dataset, kind, raw)
    if kind.get_class() != h5t.COMPOUND:
        return None if has_parts(kind) else raw
    out = []
    for i in range(kind.get_nmembers()):
        member, at = kind.get_member_type(i), kind.get_member_offset(i)
        out.append(members_of(dataset, member, raw[at:at + member.get_size()]))
    return out


def storage_of(dataset):
    plist = dataset.id.get_create_plist()
    filters = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
    chunked = plist.get_layout() == h5d.CHUNKED
    times = {"fill time": plist.get_fill_time(), "allocation time": plist.get_alloc_time()}
    return {"chunks": plist.get_chunk() if chunked else None, "filters": filters, "fill": fill_of(dataset), **times}


def comment_of(obj):
    size = LIB.H5Oget_comment(obj.id.id, None, 0)
    text = ctypes.create_string_buffer(max(size, 0) + 1)
    LIB.H5Oget_comment(obj.id.id, text, len(text))
    return text.value


def shown(obj):
    """Everything of one object, as a dictionary of comparable values."""
    out = {"kind": type(obj).__name__, "comment": comment_of(obj)}
    for name in sorted(h5a.open(obj.id, index=i).name for i in range(h5a.get_num_attrs(obj.id))):
        if name == b"_h5dir_posix":
            continue
        a = h5a.open(obj.id, name)
        space = a.get_space()
        extent = None if space.get_simple_extent_type() == h5s.NULL else space.shape
        out[("attribute", name)] = (type_of(a), a.get_type().committed(), extent, content(a, name, obj))
    if isinstance(obj, h5py.Dataset):
        out["type"], out["committed"] = type_of(obj.id), obj.id.get_type().committed()
        out["shape"], out["maxshape"] = obj.shape, obj.maxshape
        out.update(storage_of(obj))
        # libhdf5 shows anything in elements that were never written.
        unspecified = out["fill"] == h5d.FILL_VALUE_UNDEFINED or out["fill time"] == h5d.FILL_TIME_NEVER
        out["data"] = None if unspecified and obj.id.get_storage_size() == 0 else content(obj.id, None, obj)
    elif isinstance(obj, h5py.Datatype):
        out["type"] = type_of(obj.id)
    return out


def objects(file):
    """Paths of all objects, as bytes."""
    seen = {b"/": file["/"]}
    def visit(name):
        seen[b"/" + name] = None
    h5o.visit(file.id, visit)
    return seen


def opened(file, path):
    made = h5o.open(file.id, path)
    return {h5g.GroupID: h5py.Group, h5d.DatasetID: h5py.Dataset, h5t.TypeID: h5py.Datatype}.get(type(made), h5py.Datatype)(made)


def lost(source, copy):
    """What the file `copy` lacks of `source`: pairs of a path and what."""
    found = []
    with h5py.File(source, "r", locking=False) as a, h5py.File(copy, "r", locking=False) as b:
        there = objects(b)
        for path in objects(a):
            if path not in there:
                found.append((path, "gone"))
                continue
            try:
                x = shown(opened(a, path))
            except Exception:  # damaged, or of a type that h5py does not know
                continue
            y = shown(opened(b, path))
            # libhdf5 cannot read it, as raw data in files elsewhere.
            if x.get("data") in (None, "unreadable", "unjudged OSError"):
                x["data"] = y["data"] = None
            # Copies of virtual datasets have the same sources, which need not be beside the copy.
            if isinstance(a[path], h5py.Dataset) and a[path].is_virtual:
                x["chunks"] = y["chunks"] = None
                if b[path].is_virtual:
                    x["data"] = y["data"] = None
            found += [(path, f"{key}: {x[key]!r} | {y.get(key)!r}"[:400]) for key in x if x[key] != y.get(key)]
    return found


# Files with what copies have lost.

def create(group, name, kind, shape=(3,), plist=None):
    return h5d.create(group.id, name, kind, h5s.create_simple(shape), plist)


def attribute(obj, name, kind, raw, shape=None):
    a = h5a.create(obj.id, name, kind, h5s.create(h5s.SCALAR) if shape is None else h5s.create_simple(shape))
    LIB.H5Awrite.argtypes = [ID, ID, POINTER]
    assert LIB.H5Awrite(a.id, kind.id, raw) >= 0


def latin1(path):
    """Bytes that are not UTF-8 in names, values, members, tags."""
    with h5py.File(path, "w") as f:
        for i, unit in enumerate([b"\xb5m", b"\xb0C", b"m\xb2", b"\xc5", b"a\xb5", b"\xe4\xb5\xb5", b"\xff", b"\xed\xa0\x80", b"\\udcff"]):
            f.create_dataset(f"d{i}", data=np.arange(3.0)).attrs["units"] = np.bytes_(unit)
        f.create_dataset("vl", data=np.arange(3.0)).attrs.create("units", b"\xb5m", dtype=h5py.string_dtype("ascii"))
        f.create_dataset("array", data=np.arange(3.0)).attrs["units"] = np.array([b"\xb5m", b"s"])
        g = f.create_group("g")
        g.attrs["units"] = np.bytes_(b"\xb5m")
        t = h5t.create(h5t.COMPOUND, 8)
        t.insert(b"temp_\xb0C", 0, h5t.IEEE_F64LE)
        create(f, b"compound", t)
        e = h5t.enum_create(h5t.STD_I8LE)
        e.enum_insert(b"gro\xdf", 1)
        e.enum_insert(b"k", 0)
        create(f, b"enum", e)
        o = h5t.create(h5t.OPAQUE, 4)
        o.set_tag(b"tag\xff")
        create(f, b"opaque", o)
        f["strings"] = np.array([b"\xb5m", b"s"])
        attribute(f["vl"], b"\xb5", h5t.IEEE_F64LE, np.array(1.5).tobytes())
        h5g.create(f.id, b"gr\xfc\xdf")
        t.commit(f.id, b"typ\xe9")
        named = h5py.Dataset(create(f, b"ds\xe9", h5t.open(f.id, b"typ\xe9")))
        attribute(named, b"a\xe9", h5t.open(f.id, b"typ\xe9"), np.array(2.5).tobytes())
        f.id.links.create_soft(b"so\xe9", b"gr\xfc\xdf")
        refs = f.create_dataset("refs", (2,), dtype=h5py.ref_dtype)
        refs[...] = [h5py.h5r.create(f.id, name, h5py.h5r.OBJECT) for name in (b"ds\xe9", b"gr\xfc\xdf")]
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_fill_value(np.array(b"\xb5 \xff"))
        create(f, b"fill", h5t.py_create(np.dtype("S4")), plist=plist)


def hidden_bytes(path):
    """Bytes that no text of a value shows: behind the NUL of a string, between members, of a NaN."""
    with h5py.File(path, "w") as f:
        def g(name):
            # One object for each: local file systems have little room for the description of attributes.
            return f.create_group(b"g " + name) if name.startswith(b"s") else f.create_dataset(b"d " + name, data=1)

        def hide(name, *value):
            attribute(g(name), name, *value)

        text = b"ab\0junk\0\xff"
        for pad in (h5t.STR_NULLTERM, h5t.STR_NULLPAD, h5t.STR_SPACEPAD):
            s = h5t.C_S1.copy()
            s.set_size(10)
            s.set_strpad(pad)
            hide(b"s%d" % pad, s, text.ljust(10, b" "))
            hide(b"list%d" % pad, s, text.ljust(10, b" ") + b"\0" * 10 + b" \0 \0 \0 \0 \0", (3,))
            hide(b"array%d" % pad, h5t.array_create(s, (2,)), b"x\0y".ljust(10, b"\0") * 2)
            c = h5t.create(h5t.COMPOUND, 24)
            c.insert(b"s", 2, s)
            c.insert(b"n", 16, h5t.STD_I32LE)
            hide(b"compound%d" % pad, c, bytes(range(1, 25)))
            plist = h5p.create(h5p.DATASET_CREATE)
            LIB.H5Pset_fill_value(plist.id, s.id, b"x\0yz\0\0 \xff\0\0")
            create(f, b"fill%d" % pad, s, plist=plist)
            plist = h5p.create(h5p.DATASET_CREATE)
            plist.set_chunk((2,))
            LIB.H5Pset_fill_value(plist.id, c.id, bytes(range(1, 25)))
            create(f, b"fillc%d" % pad, c, plist=plist)
        hide(b"nan", h5t.IEEE_F64LE, b"\1\2\3\4\5\6\xf8\xff")
        hide(b"nans", h5t.IEEE_F32BE, b"\x7f\xc0\0\0\xff\x80\0\1", (2,))
        hide(b"minus", h5t.IEEE_F32LE, np.array(-0.0, "<f4").tobytes())
        few = h5t.STD_I32LE.copy()
        few.set_precision(12)
        few.set_offset(4)
        hide(b"few bits", few, b"\xff\xff\xff\xff")
        hide(b"bits", h5t.STD_B16BE, b"\xab\xcd")
        hide(b"boolean", h5t.py_create(np.dtype(bool), logical=True), b"\7")
        plist = h5p.create(h5p.DATASET_CREATE)
        LIB.H5Pset_fill_value(plist.id, h5t.IEEE_F64LE.id, b"\1\2\3\4\5\6\xf8\xff")
        create(f, b"nanfill", h5t.IEEE_F64LE, plist=plist)
        word = h5t.C_S1.copy()
        word.set_size(9)
        variable = h5t.C_S1.copy()
        variable.set_size(h5t.VARIABLE)
        for text in (b"undefined", b"null", b" undefined", b"", b"a b\n"):
            plist = h5p.create(h5p.DATASET_CREATE)
            LIB.H5Pset_fill_value(plist.id, word.id, text.ljust(9, b"\0"))
            create(f, b"word " + text, word, plist=plist)
            plist = h5p.create(h5p.DATASET_CREATE)
            LIB.H5Pset_fill_value(plist.id, variable.id, ctypes.byref(ctypes.c_char_p(text)))
            create(f, b"variable " + text, variable, plist=plist)


def newlines(path):
    """Strings of variable length with and without newlines."""
    with h5py.File(path, "w") as f:
        text = h5py.string_dtype()
        f.create_dataset("plain", data=["one", "two", "", "four"], dtype=text)
        f.create_dataset("newlines", data=["a\nb", "c", "\n", "", "\n\nd\n"], dtype=text)
        f.create_dataset("chunked", (6,), dtype=text, chunks=(2,), maxshape=(None,))[1:3] = ["x\ny", "z"]
        f.create_dataset("scalar", data="q\nr", dtype=text)
        f.create_dataset("bytes", data=np.array([b"\xb5\n", b"\xff"], object), dtype=h5py.string_dtype("ascii"))


def reference_fills(path):
    """Fill values that are references, as those of the cells of MATLAB, to objects before and behind their datasets."""
    with h5py.File(path, "w") as f:
        for name in ("a", "k/z", "z"):
            f[name] = np.arange(4.0)
        pair = h5t.create(h5t.COMPOUND, 16)
        pair.insert(b"n", 0, h5t.STD_I64LE)
        pair.insert(b"at", 8, h5t.STD_REF_OBJ)
        for name, target in ((b"k/before", b"a"), (b"k/behind", b"z"), (b"k/beside", b"k/z"), (b"k/group", b"k"), (b"k/root", b"/")):
            at = h5o.get_info(h5o.open(f.id, target)).addr.to_bytes(8, "little")
            for suffix, kind, fill in ((b"", h5t.STD_REF_OBJ, at), (b" pair", pair, bytes(8) + at)):
                for chunks in (b"", b" chunked"):
                    plist = h5p.create(h5p.DATASET_CREATE)
                    LIB.H5Pset_fill_value(plist.id, kind.id, fill)
                    if chunks:
                        plist.set_chunk((2,))
                    create(f, name + suffix + chunks, kind, plist=plist)
            written = h5py.Dataset(h5d.open(f.id, name))
            written[1] = h5py.h5r.create(f.id, b"a", h5py.h5r.OBJECT)


def named_types(path):
    """Attributes of named datatypes, whose names sort before and behind those of their users."""
    with h5py.File(path, "w") as f:
        for name in ("same", "other", "two"):
            g = f.create_group(name)
            if name == "same":
                g["type"] = np.dtype("<i4")
            elif name == "other":
                f["ztype"] = np.dtype("<i4")
            g.attrs.create("default", -1, dtype=g["type"] if name == "same" else f["ztype"])
            if name == "two":
                g.attrs["class"] = 1
        f.create_dataset("dset", data=[1, 2]).attrs.create("default", -1, dtype=f["ztype"])
        f.create_dataset("typed", data=[1, 2], dtype=f["ztype"]).attrs.create("a", [3, 4], dtype=f["ztype"])


def fill_states(path, libver="earliest", allocations=(1,)):
    """Fill values that are undefined, default or set, written at every time."""
    with h5py.File(path, "w", libver=libver) as f:
        kinds = {"number": h5t.STD_I32LE, "word": h5t.py_create(np.dtype("S4")), "text": h5t.py_create(h5py.string_dtype(), logical=True)}
        layouts = {"chunked": h5d.CHUNKED, "contiguous": h5d.CONTIGUOUS, "compact": h5d.COMPACT}
        for layout, kind, fill, write, allocate in itertools.product(layouts, kinds, ("undefined", "default", "set"), range(3), allocations):
            plist = h5p.create(h5p.DATASET_CREATE)
            plist.set_layout(layouts[layout])
            if layout == "chunked":
                plist.set_chunk((2,))
            plist.set_fill_time(write)
            plist.set_alloc_time(allocate)
            if fill != "default":
                value = b"fill" if kind != "text" else ctypes.byref(ctypes.c_char_p(b"fill"))
                LIB.H5Pset_fill_value(plist.id, kinds[kind].id, value if fill == "set" else None)
            name = f"{kind} {layout} {fill} {write} {allocate}"
            try:
                create(f, name.encode(), kinds[kind], plist=plist)
                create(f, f"{name} zeros".encode(), kinds[kind], plist=plist)
                if kind == "number":
                    f[f"{name} zeros"][...] = 0
                else:
                    f[f"{name} zeros"][...] = [b"aaaa", b"bbbb", b"cccc"]
            except (ValueError, RuntimeError):  # a combination that libhdf5 refuses
                pass
        # What new files are, but for the times.
        for write, allocate in itertools.product(range(3), range(1, 4)):
            if (write, allocate) == (h5d.FILL_TIME_IFSET, h5d.ALLOC_TIME_INCR):
                continue
            plist = h5p.create(h5p.DATASET_CREATE)
            plist.set_chunk((4096,))
            plist.set_fill_time(write)
            plist.set_alloc_time(allocate)
            h5d.create(f.id, f"bytes {write} {allocate}".encode(), h5t.STD_U8LE, h5s.create_simple((3,), (h5s.UNLIMITED,)), plist)


def fill_states_of_new_files(path):
    fill_states(path, "latest", (2,))


def comments(path, libver="earliest"):
    """Comments of objects of every kind, also such as are no UTF-8."""
    with h5py.File(path, "w", libver=libver) as f:
        for i, text in enumerate([b"a comment", b"m\xb5\n\xff", b"1", b"null", b" spaces ", b"x" * 2000]):
            f.create_group(f"g{i}")
            f[f"d{i}"] = np.arange(3.0)
            f[f"bytes{i}"] = np.arange(3, dtype="u1")
            f[f"t{i}"] = np.dtype("<f4")
            f[f"d{i}"].attrs["a"] = i
            for name in (f"g{i}", f"d{i}", f"t{i}", f"bytes{i}"):
                h5o.set_comment(f[name].id, text)
        h5o.set_comment(f.id, b"of the root")


def comments_in_new_files(path):
    comments(path, "latest")


MADE = [comments, comments_in_new_files, fill_states, fill_states_of_new_files, latin1, hidden_bytes, newlines, reference_fills, named_types]


# The ways of copying.

def run(options, *args):
    done = subprocess.run([options.bin, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=300)
    return done.returncode, done.stderr.decode(errors="replace")


def by_file(options, source, place):
    return [("new.h5", *run(options, "cp", "-r", "--create", source + ":/", place + "/new.h5:/"))]


def by_container(options, source, place):
    there, said = run(options, "cp", "-r", source, f"iod:{place}/c")
    back, more = run(options, "cp", "-r", f"iod:{place}/c", place + "/back.h5")
    return [("back.h5", there or back, said + more)]


def by_directory(options, source, place):
    there, said = run(options, "cp", "-r", "-a", source + ":/.", place + "/d")
    back, more = run(options, "cp", "-r", "-a", "--create", place + "/d/.", place + "/local.h5:/")
    return [("local.h5", there or back, said + more)]


def by_mounts(options, source, place):
    """cp -a, rsync -aX and tar between two mounts."""
    pipe = "set -o pipefail; tar --xattrs -C {0} -cf - . | tar --xattrs -C {1} -xpf -"
    ways = {"cp": "cp -a {0}/. {1}/", "rsync": "rsync -aXH {0}/ {1}/", "tar": pipe}
    done = []
    with harness.mounted(options.bin, source) as left:
        for way, command in ways.items():
            if not shutil.which(way):
                continue
            new = f"{place}/{way}.h5"
            assert run(options, "create", new)[0] == 0
            with harness.mounted(options.bin, new, "--read-write") as right:
                copied = subprocess.run(["bash", "-c", command.format(left, right)], stderr=subprocess.PIPE, timeout=300)
            done.append((f"{way}.h5", copied.returncode, copied.stderr.decode(errors="replace")))
    return done


def by_local(options, source, place):
    """h5dir cp into a local directory, and cp -a and rsync -aX from there into mounts."""
    there, said = run(options, "cp", "-r", "-a", source + ":/.", place + "/here")
    done = []
    for way, command in {"cp": "cp -a {0}/. {1}/", "rsync": "rsync -aXH {0}/ {1}/"}.items():
        new = f"{place}/local_{way}.h5"
        if not shutil.which(way):
            continue
        assert run(options, "create", new)[0] == 0
        with harness.mounted(options.bin, new, "--read-write") as right:
            copied = subprocess.run(["bash", "-c", command.format(place + "/here", right)], stderr=subprocess.PIPE, timeout=300)
        done.append((os.path.basename(new), there or copied.returncode, said + copied.stderr.decode(errors="replace")))
    return done


def by_container_mounts(options, source, place):
    """cp -a from a mount of the file into one of a container, and from there into one of a new file."""
    container, new = f"iod:{place}/mounted", f"{place}/mounted.h5"
    assert run(options, "create", container)[0] == 0 and run(options, "create", new)[0] == 0
    code, said = 0, ""
    for left, right in ((source, container), (container, new)):
        with harness.mounted(options.bin, left) as a, harness.mounted(options.bin, right, "--read-write") as b:
            done = subprocess.run(["cp", "-a", f"{a}/.", f"{b}/"], stderr=subprocess.PIPE, timeout=300)
        code, said = code or done.returncode, said + done.stderr.decode(errors="replace")
    return [("mounted.h5", code, said)]


def check_made(t, options, place):
    for make in MADE:
        folder = os.path.join(place, make.__name__)
        os.mkdir(folder)
        source = os.path.join(folder, "source.h5")
        make(source)
        t.equal(run(options, "diff", "-r", "--storage", source + ":/", source + ":/"), (0, ""), f"{make.__name__}: diff with itself")
        # cp -a sets extended attributes in the order of the local file system: references may come before their type.
        ways = [by_local] if make not in (latin1, reference_fills) else []
        for way in (by_file, by_container, by_directory, by_mounts, by_container_mounts, *ways):
            for name, code, said in way(options, source, folder):
                what = f"{make.__name__}: {way.__name__}: {name}"
                t.equal(code, 0, f"{what}: {said}")
                t.equal(lost(source, os.path.join(folder, name)), [], what)
                if way not in (by_directory, by_local):
                    differs = run(options, "diff", "-r", "--storage", source + ":/", os.path.join(folder, name) + ":/")
                    t.equal(differs, (0, ""), f"{what}: diff")


def sequences_of_references(path):
    """References in sequences, to objects that are copied before and behind; in compounds, beside strings and other references."""
    with h5py.File(path, "w") as f:
        for name in ("a", "k/z", "z"):
            f[name] = np.arange(4.0)
        targets = [f["a"].ref, f["z"].ref, f["k"].ref]
        d = f.create_dataset("k/refs", (3,), dtype=h5py.vlen_dtype(h5py.ref_dtype))
        for i in range(3):
            d[i] = np.array(targets[:i], h5py.ref_dtype)
        chunked = f.create_dataset("k/chunked", (2, 2), h5py.vlen_dtype(h5py.regionref_dtype), maxshape=(None, 2), chunks=(1, 2))
        chunked[1, 0] = np.array([f["z"].regionref[1:3], f["a"].regionref[:2]], h5py.regionref_dtype)
        pair = np.dtype([("text", h5py.string_dtype()), ("at", h5py.ref_dtype), ("all", h5py.vlen_dtype(h5py.ref_dtype))])
        mixed = f.create_dataset("k/mixed", (2,), pair)
        mixed[0] = ("first", targets[1], np.array(targets, h5py.ref_dtype))


def names_in(path):
    """The elements as h5dump shows them, without addresses. h5py crashes while it reads some."""
    shown = subprocess.run(["h5dump", "-d", "/k/refs", "-d", "/k/chunked", "-d", "/k/mixed", path], stdout=subprocess.PIPE, check=True)
    return re.sub(rb"(DATASET|GROUP) \d+ ", rb"\1 ", shown.stdout.split(b"\n", 1)[1])


def check_sequences(t, options, place):
    source = os.path.join(place, "sequences.h5")
    sequences_of_references(source)
    expected = names_in(source)
    for way in (by_file, by_container):
        for name, code, said in way(options, source, place):
            copy = os.path.join(place, name)
            t.equal((code, said), (0, ""), f"sequences: {way.__name__}")
            t.equal(names_in(copy), expected, f"sequences: {way.__name__}: what they name")
            t.equal(run(options, "diff", "-r", "--storage", source + ":/", copy + ":/"), (0, ""), f"sequences: {way.__name__}: diff")
            t.equal(run(options, "check", copy)[0], 0, f"sequences: {way.__name__}: check")
            os.remove(copy)


# Pairs of files that differ in one thing.

def make_pair(right):
    """A function that makes either file of a pair; `right`: the one that differs."""
    def lines(f):
        f.create_dataset("d", data=["a", "b\nc"] if right else ["a\nb", "c"], dtype=h5py.string_dtype())

    def beside_reference(f):
        f["a"], f["b"] = [1], [2]
        pair = np.dtype([("n", "<i4"), ("at", h5py.ref_dtype)])
        f.create_dataset("d", data=np.array([(i + (right and i == 2), f["a"].ref) for i in range(4)], pair))

    def reference(f):
        f["a"], f["b"] = [1], [2]
        targets = [f["b" if right and i == 5 else "a"].ref for i in range(12)]
        f.create_dataset("d", (3, 4), data=np.array(targets, h5py.ref_dtype).reshape(3, 4), dtype=h5py.ref_dtype)

    def equal_references(f):
        # Their addresses differ.
        if right:
            f["other"] = np.arange(5.0)
        f["a"] = [1]
        if right:
            del f["other"]
        f.create_dataset("d", data=np.full(1_000_000, f["a"].ref, h5py.ref_dtype), dtype=h5py.ref_dtype)

    def sequence(f):
        f["a"], f["b"] = [1], [2]
        d = f.create_dataset("d", (2,), dtype=h5py.vlen_dtype(h5py.ref_dtype))
        d[0] = np.array([f["a"].ref, f["b"].ref], h5py.ref_dtype)
        d[1] = np.array([f["b" if right else "a"].ref], h5py.ref_dtype)

    def order(f):
        for name in ("b", "a") if right else ("a", "b"):
            f.create_group(f"d/{name}", track_order=True) if "d" in f else f.create_group("d", track_order=True).create_group(name)

    def named_type(f):
        f["t"] = np.dtype("<i4")
        f.create_dataset("d", data=[1], dtype="<i4" if right else f["t"])

    def attribute(f):
        f.create_dataset("d", data=[1]).attrs["a"] = 1.5 if right else 2.5

    def attribute_type(f):
        f.create_dataset("d", data=[1]).attrs.create("a", 1, dtype="<i8" if right else "<i2")

    def attribute_shape(f):
        f.create_dataset("d", data=[1]).attrs.create("a", [[1, 2]] if right else [1, 2])

    def hidden_bytes_of_attribute(f):
        f.create_dataset("d", data=[1]).attrs.create("a", np.array(b"x\0y" if right else b"x\0z", "S4"))

    def fill(f):
        f.create_dataset("d", (3,), "<i4", fillvalue=7 if right else 8)[...] = 1

    def shape(f):
        f.create_dataset("d", (3,) if right else (4,), "<i4")

    return locals()


DIFFERENCES = {
    "lines": ["data byte 0"], "beside_reference": ["data [2]"], "reference": ["data [1,1]"], "equal_references": [], "sequence": ["data"],
    "order": ["order of links"], "named_type": ["named datatype"], "attribute": ["attribute a"], "attribute_type": ["attribute a type"],
    "attribute_shape": ["attribute a shape"], "hidden_bytes_of_attribute": ["attribute a"], "fill": ["fillvalue"], "shape": ["shape", "maxshape"],
}


def check_differences(t, options, place):
    for name, expected in DIFFERENCES.items():
        files = [os.path.join(place, f"{name}_{side}.h5") for side in ("left", "right")]
        for file, right in zip(files, (False, True)):
            with h5py.File(file, "w") as f:
                make_pair(right)[name](f)
        done = subprocess.run([options.bin, "diff", "-r", "--storage", *(file + ":/" for file in files)], stdout=subprocess.PIPE)
        found = [re.match(r"/d: ([^:]*):", line) for line in done.stdout.decode().splitlines() if line.startswith("/d:")]
        t.equal([m and m[1] for m in found], expected, f"diff: {name}: {done.stdout[-300:]!r}")
        t.equal(done.returncode, 1 if expected else 0, f"diff: {name}: exit status")


def silently_lost(source, copy, code, said):
    """What a copy of `source` lacks without a word: pairs of a path and what."""
    if not os.path.exists(copy):
        return [] if code else [(b"/", "nothing was copied")]
    gone = lost(source, copy)
    # What a file system has no room for is named, with exit status 0, as by GNU cp.
    named = [line for line in said.splitlines() if code or "was not kept" in line]
    return [(path, what) for path, what in gone if not any(path.decode("utf-8", "backslashreplace") in line for line in named)]


def datasets_of(path):
    """The datasets of a file that can be opened."""
    with h5py.File(path, "r", locking=False) as f:
        for name in objects(f):
            try:
                thing = f[name]
            except Exception:  # damaged, or of a type that h5py does not know
                continue
            if isinstance(thing, h5py.Dataset):
                yield thing


def check_corpus(t, options, place):
    """Files of the corpus by every way: what is lost is named. Mounts take longer, so some of the files are copied by them."""
    if not os.path.isdir(CORPUS):
        print(f"no corpus at {CORPUS}: skipped (CORPUS=FOLDER names another place)")
        return
    with open(os.path.join(CORPUS, "shared.txt")) as f:
        names = [line.strip() for line in f if line.startswith("files/")]
    random.Random(options.seed).shuffle(names)
    whole, named, mounted = 0, 0, CORPUS_FILES // 4
    for name in names[:CORPUS_FILES]:
        source, folder = os.path.join(CORPUS, name), os.path.join(place, "corpus")
        try:
            with h5py.File(source, "r", locking=False) as f:
                objects(f)
        except (OSError, RuntimeError):  # one file of several, or damaged
            continue
        is_small = all(os.stat(source).st_size < 4 << 20 and thing.id.get_space().get_simple_extent_npoints() * thing.id.get_type().get_size() < 64 << 20 for thing in datasets_of(source))
        by_mount = (by_mounts, by_container_mounts) if mounted > 0 and is_small else ()
        mounted -= bool(by_mount)
        for way in (by_file, by_container, by_directory, *by_mount):
            os.mkdir(folder)
            for new, code, said in way(options, source, folder):
                what = f"{name}: {way.__name__}: {new}: exit status {code}"
                try:
                    gone = silently_lost(source, os.path.join(folder, new), code, said)
                    # A named datatype without a name of its own has no path, which a fact would state.
                    gone = [(path, lost) for path, lost in gone if way not in by_mount or lost != "committed: True | False"]
                    t.equal(gone, [], f"{what}, lost")
                except (OSError, RuntimeError, ValueError) as e:
                    t.check(False, f"{what}: h5py cannot read the copy: {e}")
                whole, named = whole + (code == 0), named + (code != 0)
            shutil.rmtree(folder)
    print(f"corpus: {whole} copies as their sources, {named} with what was lost named")


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    with harness.folder(options.keep) as place:
        check_made(t, options, os.path.realpath(place))
        check_sequences(t, options, os.path.realpath(place))
        check_differences(t, options, os.path.realpath(place))
        check_corpus(t, options, os.path.realpath(place))
    t.finish()


if __name__ == "__main__":
    main()
