"""Tells in what two HDF5 files differ: links, types, extents, storage, fill values, elements, attributes."""

import sys

import h5py
import numpy as np

SPACES = h5py.h5s.NULL, h5py.h5s.SIMPLE


def value(f, v):
    """A value that can be compared: references become paths."""
    if isinstance(v, h5py.Empty):
        return "empty"
    if isinstance(v, h5py.Reference):
        return "to", f[v].name if v else None
    if isinstance(v, np.ndarray) and v.dtype.hasobject:
        return [value(f, x) for x in v.ravel()]
    if isinstance(v, np.ndarray):
        return v.shape, v.tobytes()
    if isinstance(v, np.void) and v.dtype.names:
        return [value(f, v[n]) for n in v.dtype.names]
    return v.tobytes() if isinstance(v, np.generic) else v


def attribute(f, o, name):
    a = h5py.h5a.open(o.id, name.encode("utf8", "surrogateescape"))
    space = a.get_space()
    kind = space.get_simple_extent_type()
    data = np.empty((0,) if kind == h5py.h5s.NULL else space.shape, dtype=a.dtype)
    if kind != h5py.h5s.NULL:
        a.read(data)
    return kind, space.shape, a.get_type(), value(f, data)


def tried(f, *args):
    try:
        return f(*args)
    except (TypeError, OSError, ValueError, KeyError) as e:
        # What h5py has no type for is compared by the rest.
        return type(e).__name__


def dataset(o):
    p, s = o.id.get_create_plist(), o.id.get_space()
    out = {"type": o.id.get_type(), "space": s.get_simple_extent_type(), "shape": o.shape, "chunks": o.chunks}
    if out["space"] == h5py.h5s.SIMPLE:
        out["maxshape"] = s.get_simple_extent_dims(True)
    out["layout"] = p.get_layout()
    out["filters"] = [(i, values) for i, _, values, _ in map(p.get_filter, range(p.get_nfilters()))]
    out["fill"] = p.fill_value_defined()
    out["fill value"] = tried(lambda: value(o.file, np.asarray(o.fillvalue)))
    # Sparse ones may be larger than memory.
    out["data"] = tried(lambda: value(o.file, o[()])) if o.id.get_space().get_simple_extent_npoints() < 1 << 24 else o.size
    return out


def differences(a, b, path):
    if type(a) is not type(b):
        return [f"{path} kind: {a} / {b}"]
    found = []
    for name in sorted(set(a.attrs) | set(b.attrs)):
        x, y = tried(attribute, a.file, a, name), tried(attribute, b.file, b, name)
        if x != y:
            found.append(f"{path} attribute {name}: {x} / {y}")
    if isinstance(a, h5py.Datatype) and a.id != b.id:
        found.append(f"{path}: {a} / {b}")
    if isinstance(a, h5py.Dataset):
        x, y = dataset(a), dataset(b)
        found += [f"{path} {k}: {x[k]} / {y.get(k)}" for k in x if x[k] != y.get(k)]
    if not isinstance(a, h5py.Group):
        return found
    for name in sorted(set(a) | set(b)):
        x, y = a.get(name, getlink=True), b.get(name, getlink=True)
        below = f"{path}/{name}"
        if type(x) is not type(y) or getattr(x, "path", None) != getattr(y, "path", None):
            found.append(f"{below} link: {x} / {y}")
        elif isinstance(x, h5py.HardLink):
            found += differences(a[name], b[name], below)
    return found


with h5py.File(sys.argv[1]) as a, h5py.File(sys.argv[2]) as b:
    print("\n".join(differences(a["/"], b["/"], "")))
