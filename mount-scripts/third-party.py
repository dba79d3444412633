#!/usr/bin/env python3
"""Prints the licences of the crates that are linked into h5dir: mount-scripts/third-party.py

Runs cargo metadata, which must have fetched the crates. A crate without a licence file of its own is listed with the expression
of its manifest. Equal texts are printed once.
"""

import json
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
NAMES = ("license", "licence", "copying", "unlicense", "notice")
RULE = "=" * 79


def linked(metadata):
    """The packages that the program h5dir is linked with, itself left out: no tests, build scripts and macros."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(p["id"] for p in metadata["packages"] if p["name"] == "h5dir" and p["source"] is None)
    found, pending = set(), [root]
    while pending:
        for dependency in nodes[pending.pop()]["deps"]:
            package = packages[dependency["pkg"]]
            normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            macro = any("proc-macro" in target["kind"] for target in package["targets"])
            if normal and not macro and package["id"] not in found:
                found.add(package["id"])
                pending.append(package["id"])
    return sorted((packages[one] for one in found), key=lambda p: (p["name"], p["version"]))


def texts(package):
    """The licence files of a package: in its folder, and in folders of bundled C sources."""
    folder = Path(package["manifest_path"]).parent
    candidates = sorted(folder.glob("*")) + sorted(folder.glob("*/*"))
    named = [path for path in candidates if path.is_file() and path.name.lower().startswith(NAMES)]
    return [path.read_text(errors="replace").strip() for path in named if path.suffix not in (".rs", ".toml", ".py")]


def main():
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"]
    packages = linked(json.loads(subprocess.run(command, cwd=TOP, stdout=subprocess.PIPE, check=True).stdout))
    if len(packages) < 20:
        sys.exit(f"third-party.py: only {len(packages)} crates found")
    users = {}
    print("h5dir is linked with these crates. Their licences follow.\n")
    for package in packages:
        name = f"{package['name']} {package['version']}"
        print(f"{name}: {package['license'] or package['license_file']}")
        for text in texts(package):
            users.setdefault(text, []).append(name)
    for text, names in users.items():
        names = list(dict.fromkeys(names))
        print(f"\n{RULE}\n{', '.join(names)}\n{RULE}\n\n{text}")


main()
