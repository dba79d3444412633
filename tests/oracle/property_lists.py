#!/usr/bin/env python3
"""Creation property lists by libhdf5: H5Pencode2 and H5Pdecode, which h5py does not have.

As a program: reads lines `NAME HEX` from stdin, encoded lists, and compares each one with the list
of libhdf5 of this name. It must decode, be equal (H5Pequal), and have the same bytes."""
import ctypes
import sys

import h5py
import numpy as np
from h5py import h5p


def library():
    """libhdf5, as h5py loaded it."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "libhdf5" in line and "libhdf5_hl" not in line}
    lib = ctypes.CDLL(min(paths, key=len))
    hid, size = ctypes.c_int64, ctypes.c_size_t
    for name, result, arguments in (
        ("H5Pencode2", ctypes.c_int, [hid, ctypes.c_void_p, ctypes.POINTER(size), hid]),
        ("H5Pdecode", hid, [ctypes.c_char_p]),
        ("H5Pequal", ctypes.c_int, [hid, hid]),
        ("H5Pcreate", hid, [hid]),
        ("H5Pclose", ctypes.c_int, [hid]),
        ("H5Gget_create_plist", hid, [hid]),
        ("H5Tget_create_plist", hid, [hid]),
        ("H5Pset_link_phase_change", ctypes.c_int, [hid, ctypes.c_uint, ctypes.c_uint]),
        ("H5Pset_est_link_info", ctypes.c_int, [hid, ctypes.c_uint, ctypes.c_uint]),
        ("H5Pget_link_phase_change", ctypes.c_int, [hid, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_uint)]),
        ("H5Pget_link_creation_order", ctypes.c_int, [hid, ctypes.POINTER(ctypes.c_uint)]),
        ("H5Pget_est_link_info", ctypes.c_int, [hid, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_uint)]),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


LIB = library()


def encode(plist):
    """The encoded list of this identifier."""
    length, access = ctypes.c_size_t(0), h5p.create(h5p.FILE_ACCESS)
    assert LIB.H5Pencode2(plist, None, ctypes.byref(length), access.id) >= 0
    buffer = ctypes.create_string_buffer(length.value)
    assert LIB.H5Pencode2(plist, buffer, ctypes.byref(length), access.id) >= 0
    return buffer.raw[: length.value]


def decode(encoded):
    """The identifier of the list."""
    plist = LIB.H5Pdecode(encoded)
    assert plist >= 0, encoded
    return plist


def canonical(plist):
    """The encoded list, its properties in the order of a list of which each one was set."""
    again = decode(encode(plist))
    try:
        return encode(again)
    finally:
        LIB.H5Pclose(again)


def of_object(thing):
    """The identifier of the creation property list of an h5py object. The caller closes it."""
    if isinstance(thing, h5py.Dataset):
        plist = thing.id.get_create_plist()  # h5py closes it with the object.
        return decode(encode(plist.id))
    get = LIB.H5Gget_create_plist if isinstance(thing, h5py.Group) else LIB.H5Tget_create_plist
    return get(thing.id.id)


def dataset(*changes):
    plist = h5p.create(h5p.DATASET_CREATE)
    for name, *arguments in changes:
        getattr(plist, name)(*arguments)
    return plist


def group(order=0, phase=None, estimates=None, attributes=0, attribute_phase=None):
    plist = h5p.create(h5p.GROUP_CREATE)
    plist.set_link_creation_order(order)
    plist.set_attr_creation_order(attributes)
    if phase:
        assert LIB.H5Pset_link_phase_change(plist.id, *phase) >= 0
    if estimates:
        assert LIB.H5Pset_est_link_info(plist.id, *estimates) >= 0
    if attribute_phase:
        plist.set_attr_phase_change(*attribute_phase)
    return plist


def lists():
    """The lists by name."""
    chunk = ("set_chunk", (4, 5))
    return {
        "default": dataset(),
        "compact": dataset(("set_layout", h5py.h5d.COMPACT)),
        "chunked": dataset(chunk),
        "filters": dataset(chunk, ("set_shuffle",), ("set_deflate", 6), ("set_fletcher32",)),
        "unknown filter": dataset(chunk, ("set_filter", 32015, 1, (3,)), ("set_filter", 444, 1, ())),
        "scaleoffset": dataset(chunk, ("set_scaleoffset", 2, 3)),
        "fill value": dataset(("set_fill_value", np.array(7, "<i4"))),
        "times": dataset(
            ("set_obj_track_times", False),
            ("set_attr_creation_order", 3),
            ("set_alloc_time", h5py.h5d.ALLOC_TIME_EARLY),
            ("set_fill_time", h5py.h5d.FILL_TIME_NEVER),
            ("set_attr_phase_change", 10, 4),
        ),
        "external": dataset(("set_external", b"a.raw", 5, 100), ("set_external", b"b", 70000, h5py.h5f.UNLIMITED)),
        "group": group(),
        "tracked": group(order=1),
        "all of a group": group(3, (20, 10), (100, 30), 3, (10, 4)),
        "named datatype": None,
    }


def main():
    known = lists()
    cls = ctypes.c_int64.in_dll(LIB, "H5P_CLS_DATATYPE_CREATE_ID_g").value
    ids = {name: plist.id if plist else LIB.H5Pcreate(cls) for name, plist in known.items()}
    seen = set()
    for line in sys.stdin:
        name, encoded = line.rstrip("\n").rsplit(" ", 1)
        ours = decode(bytes.fromhex(encoded))
        assert LIB.H5Pequal(ours, ids[name]) > 0, (name, encode(ours), encode(ids[name]))
        assert bytes.fromhex(encoded) == canonical(ids[name]), (name, bytes.fromhex(encoded), canonical(ids[name]))
        seen.add(name)
    assert seen == set(known), set(known) - seen
    print(len(seen))


if __name__ == "__main__":
    main()
