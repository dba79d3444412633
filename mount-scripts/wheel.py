#!/usr/bin/env python3
"""Makes a Python wheel that carries the program: mount-scripts/wheel.py H5DIR SHARE OUTDIR

pip and pipx install H5DIR as the command h5dir, and the folder SHARE (manual pages, completions, documents) beside it. The tags
follow from the program: a static one runs with every C library, a dynamic one with the glibc whose symbols it uses, or a newer
one. The wheel depends on nothing but its input and SOURCE_DATE_EPOCH. Prints its path.
"""

import base64
import hashlib
import os
import re
import struct
import sys
import time
import tomllib
import zipfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
MACHINES = {62: "x86_64", 183: "aarch64"}
PT_INTERP = 3


def platform_tags(program):
    """The platform tags of an ELF program: https://packaging.python.org/specifications/platform-compatibility-tags"""
    if program[:6] != b"\x7fELF\x02\x01":
        sys.exit("wheel.py: the program is no ELF file of 64 bits, little-endian")
    (machine,) = struct.unpack_from("<H", program, 18)
    name = MACHINES.get(machine) or sys.exit(f"wheel.py: unknown machine {machine} of the program")
    (offset,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    if PT_INTERP not in [struct.unpack_from("<I", program, offset + n * size)[0] for n in range(count)]:
        return [f"manylinux_2_17_{name}", f"musllinux_1_1_{name}"]
    versions = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", program)]
    return [f"manylinux_2_{max(versions)}_{name}"]


def metadata(package):
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {package['name']}",
        f"Version: {package['version']}",
        f"Summary: {package['description']}",
        f"License-Expression: {package['license']}",
        "License-File: LICENSE-APACHE",
        "License-File: LICENSE-MIT",
        "Requires-Python: >=3.7",
        "Classifier: Environment :: Console",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Topic :: System :: Filesystems",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (TOP / "README.md").read_text()


def main():
    program, share, out = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]), Path(sys.argv[3])
    package = tomllib.loads((TOP / "Cargo.toml").read_text())["package"]
    name = f"{package['name']}-{package['version']}"
    tags = platform_tags(program)
    wheel = ["Wheel-Version: 1.0", "Generator: h5dir", "Root-Is-Purelib: false"] + [f"Tag: py3-none-{tag}" for tag in tags]

    files = {f"{name}.data/scripts/h5dir": (program, 0o755)}
    for path in sorted(share.rglob("*")):
        if path.is_file():
            files[f"{name}.data/data/share/{path.relative_to(share).as_posix()}"] = (path.read_bytes(), 0o644)
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"]:
        files[f"{name}.dist-info/licenses/{licence}"] = ((TOP / licence).read_bytes(), 0o644)
    files[f"{name}.dist-info/METADATA"] = (metadata(package).encode(), 0o644)
    files[f"{name}.dist-info/WHEEL"] = (("\n".join(wheel) + "\n").encode(), 0o644)
    record = []
    for path, (content, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(content)}\n")
    files[f"{name}.dist-info/RECORD"] = ("".join(record + [f"{name}.dist-info/RECORD,,\n"]).encode(), 0o644)

    # The time of a zip member begins in 1980.
    when = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    target = out / f"{name}-py3-none-{'.'.join(tags)}.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for path, (content, mode) in files.items():
            member = zipfile.ZipInfo(path, when)
            member.create_system = 3
            member.external_attr = (0o100000 | mode) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, content, compresslevel=9)
    print(target)


main()
