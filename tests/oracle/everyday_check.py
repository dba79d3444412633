"""Reads a whole HDF5 file with h5py, and compares groups with folders of the host.

everyday_check.py FILE [GROUP=FOLDER]...

Names, bytes of files, hard links, and the targets of symbolic links within the folder must be equal.
"""
import os
import re
import sys
import urllib.parse

import h5py

ROOT = b"/"
# Before the target of a symbolic link that no path in the file stands for: docs/SEMANTICS.md, "Links".
VERBATIM = b"/.h5dir/symlink/"


def read(dataset):
    return b"" if dataset.shape is None or dataset.size == 0 else dataset[...].tobytes()


def read_all(f):
    """Numbers of datasets and bytes; libhdf5 reads every element and attribute."""
    seen = [0, 0]

    def visit(_name, item):
        for name in item.attrs:
            item.attrs[name]
        if isinstance(item, h5py.Dataset):
            seen[0] += 1
            seen[1] += len(read(item))

    f.visititems(visit)
    return seen


def compare(f, group, folder):
    """The number of files compared."""
    files, objects = 0, {}
    for at, folders, names in os.walk(os.fsencode(folder)):
        inside = os.path.relpath(at, os.fsencode(folder))
        path = os.path.normpath(os.path.join(ROOT, os.fsencode(group), inside))
        here = f[path]
        want, got = sorted(folders + names), sorted(os.fsencode(n) for n in here)
        if want != got:
            raise SystemExit(f"{path!r}: h5py finds {sorted(set(got) - set(want))}, not {sorted(set(want) - set(got))}")
        for name in folders + names:
            source = os.path.join(at, name)
            if os.path.islink(source):
                link(f, here, name, source, os.fsencode(folder))
            elif os.path.isfile(source):
                files += 1
                with open(source, "rb") as file:
                    if read(here[name]) != file.read():
                        raise SystemExit(f"{path!r}/{name!r}: h5py reads other bytes")
                status = os.stat(source)
                first = objects.setdefault(status.st_ino, here[name])
                if status.st_nlink > 1 and first != here[name]:
                    raise SystemExit(f"{path!r}/{name!r}: not the object of {first.name}")
            elif not isinstance(here[name], h5py.Group):
                raise SystemExit(f"{path!r}/{name!r}: not a group")
    if not files:
        raise SystemExit(f"{folder}: no files")
    return files


def is_plain(text):
    """Relative, without `.`, `..` and empty components."""
    return not {b"", b"..", b"."} & set(text.split(b"/"))


def stored_text(here, name):
    """The text that the file has beside the soft link: docs/FORMAT.md, "Owners and modes"."""
    value = here.attrs.get(b"_h5dir_posix:" + name, b"")
    texts = re.findall(rb"(?:^| )text=([^ ]*)", bytes(value))
    return urllib.parse.unquote_to_bytes(texts[0]) if texts else None


def link(f, here, name, source, folder):
    """A symbolic link is a soft link that holds its text, or has it beside a path that libhdf5 follows."""
    soft = here.get(name, getlink=True)
    if not isinstance(soft, h5py.SoftLink):
        raise SystemExit(f"{here.name}/{name!r}: not a soft link")
    path, text, target = os.fsencode(soft.path), os.readlink(source), os.path.realpath(source)
    parts = text.split(b"/")
    # Escaped names, and those that are shown escaped in some directory: docs/SEMANTICS.md, "Names".
    if parts[0] == b".h5dir" or any(re.search(rb"%([0-9A-F]{2}|EMPTY|~)", n) for n in parts):
        return
    kept = [text if is_plain(text) or text == b"." else None, VERBATIM + text]
    if path not in kept and stored_text(here, name) != text:
        raise SystemExit(f"{here.name}/{name!r}: the link holds {path!r}, not {text!r}")
    if not target.startswith(os.path.realpath(folder) + b"/") or not os.path.isfile(target):
        return
    # Links on the way may have been moved with a directory: libhdf5 follows them to where they led.
    direct = os.path.normpath(os.path.join(os.path.realpath(os.path.dirname(source)), text))
    place = os.path.normpath(os.path.join(os.fsencode(here.name), text))
    if direct != target or path.startswith(VERBATIM) or path.startswith(b"/") and path != place:
        return
    with open(target, "rb") as file:
        if read(here[name]) != file.read():
            raise SystemExit(f"{here.name}/{name!r}: the link leads to other bytes")


def main():
    with h5py.File(sys.argv[1], "r") as f:
        datasets, size = read_all(f)
        if not datasets:
            raise SystemExit("h5py finds no dataset")
        files = sum(compare(f, *pair.split("=", 1)) for pair in sys.argv[2:] if pair)
    print(f"{datasets} datasets, {size >> 10} KiB; {files} files compared")


if __name__ == "__main__":
    main()
