#!/usr/bin/env python3
"""Compares two builds of h5dir: runs the groups of rows with each in turns, and prints how fast the second one is.

    benches/compare.py BEFORE AFTER [--turns 3] [--only GROUP]...

Rates and times are those of h5dir itself, not ratios to another program, whose speed changes with the machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

GROUPS = ("contiguous", "deflate", "small", "random", "walk", "mount", "write")


def rows(binary, group):
    """Value and unit of each row of a group."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [Path(__file__).parent / "run", "--quick", "--reps", "2", "--only", group, "--json", out.name]
        subprocess.run(command, env=os.environ | {"H5DIR_BIN": str(binary)}, stdout=subprocess.DEVNULL, check=True)
        return {row["name"]: (row["ours"], row["unit"]) for row in json.load(out)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("before", type=Path)
    p.add_argument("after", type=Path)
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--only", action="append", choices=GROUPS)
    args = p.parse_args()
    slower = total = 0
    for group in args.only or GROUPS:
        found = {}
        for turn in range(args.turns):
            # The first one of a turn is the second one of the next.
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                for name, (value, unit) in rows((args.before, args.after)[side].resolve(), group).items():
                    found.setdefault((name, unit), ([], []))[side].append(value)
        for (name, unit), (before, after) in found.items():
            if not before or not after or "size" in name or "peak" in name or not all(before + after):
                continue
            # Rates grow, times shrink.
            speed = [b / a if unit in ("s", "ms", "us") else a / b for b, a in zip(before, after)]
            ratio = statistics.median(speed)
            total, slower = total + 1, slower + (ratio < 0.95)
            mark = "  < 0.95" if ratio < 0.95 else ""
            spread = f"{min(speed):.2f}-{max(speed):.2f}"
            print(f"{name:<66} {statistics.median(before):>10.4g} {statistics.median(after):>10.4g} {unit:<6} {ratio:5.2f}  {spread}{mark}", flush=True)
    print(f"{total} rows, {slower} below 0.95")


if __name__ == "__main__":
    main()
