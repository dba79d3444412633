#!/usr/bin/env python3
"""Runs the corpus's compare.py, with one convention of docs/SEMANTICS.md that it does not have: an attribute whose text is
longer than an extended attribute may be (64 KiB) is not listed. It is readable below .h5dir/attrs.

  corpus.py PATH/TO/compare.py [arguments of compare.py]
"""

import errno
import importlib.util
import os
import sys

XATTR_SIZE_MAX = 65536
# Names compare.py for the processes that look at mounts.
COMPARE = "H5DIR_COMPARE"
# A text has at most so many bytes for a byte of the value, as compare.py has it.
TEXT_PER_BYTE = 8


def load(path):
    spec = importlib.util.spec_from_file_location("compare", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_too_long(path, name, attribute):
    """True when the attribute is refused for its length, may be, and is not listed."""
    if attribute.get("nbytes", 0) * TEXT_PER_BYTE <= XATTR_SIZE_MAX:
        return False
    try:
        os.getxattr(path, name)
        return False
    except OSError as e:
        return e.errno == errno.E2BIG and name not in map(os.fsencode, os.listxattr(path))


def adapt(compare):
    """Has `compare` judge attributes by that convention."""
    judge = compare.attrs

    def attrs(path, entry, tally, counts, options):
        kept = []
        for attribute in entry.get("attrs", []):
            name = None if "error" in attribute else compare.xattr_name(attribute["name"])
            if name is not None and is_too_long(path, name, attribute):
                counts["attrs_too_long"][1] += 1
            else:
                kept.append(attribute)
        judge(path, {**entry, "attrs": kept}, tally, counts, options)

    compare.attrs = attrs
    # It starts itself to look at a mount: that is this script then.
    compare.__file__ = os.path.abspath(__file__)
    return compare


def main():
    if sys.argv[1:2] == ["--walk"]:
        return adapt(load(os.environ[COMPARE])).walker()
    os.environ[COMPARE] = os.path.abspath(sys.argv.pop(1))
    return adapt(load(os.environ[COMPARE])).main()


sys.exit(main())
