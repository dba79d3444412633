"""Opens sampled crash images with stock h5py: crash_check.py FOLDER.

NAME.plain.h5 must open and be in one of the states NAME.0.h5 and NAME.1.h5; NAME.marked.h5 must be refused.
"""

import sys
from pathlib import Path

import h5py

import log_reader


def value(attributes, name):
    try:
        return repr(attributes[name])
    except (OSError, TypeError) as e:
        return type(e).__name__


def describe(path):
    lines = []
    with h5py.File(path, "r") as f:
        seen = set()
        # The first access fails where libhdf5 cannot load a metadata cache image.
        f["/"]
        # What is appended to a log counts when the commit is complete.
        log = log_reader.by_id(f)

        def visit(name, item):
            attributes = sorted((k, value(item.attrs, k)) for k in item.attrs)
            kind = type(item).__name__
            if isinstance(item, h5py.Dataset):
                try:
                    dtype = str(item.dtype)
                    if item.nbytes > 1 << 24:
                        raise TypeError
                    # Of what holds objects the bytes are addresses.
                    whole = log[int(item.attrs["_log_id"])] if "_log_id" in item.attrs else item[()]
                    data = repr(whole.tobytes() if hasattr(whole, "tobytes") and not item.dtype.hasobject else getattr(whole, "tolist", lambda: whole)())
                except (OSError, TypeError) as e:
                    # What h5py has no filter or type for; the same in each state.
                    dtype, data = "", type(e).__name__
                lines.append((name, kind, item.shape, dtype, data, attributes))
            elif isinstance(item, h5py.Group):
                if log and name == "/LOG":
                    # A compaction changes the log more than once; what is in it was read above, by the index and by the records.
                    return
                lines.append((name, kind, attributes))
                address = h5py.h5o.get_info(item.id).addr
                if address in seen:
                    return
                seen.add(address)
                for key in sorted(item):
                    link = item.get(key, getlink=True)
                    if isinstance(link, h5py.HardLink):
                        visit(f"{name}/{key}", item[key])
                    else:
                        lines.append((f"{name}/{key}", type(link).__name__, getattr(link, "path", "")))
            else:
                lines.append((name, kind, attributes))

        visit("", f)
    return lines


def state_of(path):
    """What a file holds; for one that libhdf5 2.0.0 itself can't show (it wrote a metadata cache image that it fails to load), how it fails."""
    try:
        return describe(path)
    except KeyError as e:
        if "non-parent entry has children" not in str(e):
            raise
        return str(e)


def main():
    opened = refused = failed = 0
    for path in sorted(Path(sys.argv[1]).glob("*.plain.h5")):
        stem = path.name.split(".")[0]
        states = [state_of(p) for p in sorted(path.parent.glob(f"{stem}.[01].h5"))]
        try:
            state = state_of(path)
            right = state in states
        except Exception as e:  # noqa: BLE001 - whatever h5py says, the image is wrong
            right, state = False, e
        opened += right
        if not right:
            failed += 1
            print(f"FAILED {path.name}: {state!r:.400}")
    for path in sorted(Path(sys.argv[1]).glob("*.marked.h5")):
        try:
            h5py.File(path, "r").close()
            failed += 1
            print(f"FAILED {path.name}: it was opened")
        except OSError:
            refused += 1
    print(f"h5py: {opened} images opened in a committed state, {refused} marked ones refused, {failed} wrong")
    sys.exit(1 if failed or not opened or not refused else 0)


main()
