#!/usr/bin/env python3
"""Chunks encoded by the filter layer are read by libhdf5: `tests/encode.rs` with ten times its cases, other each run."""
import os
import re
import subprocess
import sys

import harness

args = harness.arguments(__doc__)
env = dict(os.environ, PYTHON=sys.executable, H5DIR_ENCODE_SCALE="10", H5DIR_SEED=str(args.seed))
if args.keep:
    os.makedirs(args.keep, exist_ok=True)
    env["H5DIR_ENCODE_KEEP"] = os.path.abspath(args.keep)
# tests/run has built the tests in the profile that it names.
profile = os.environ.get("H5DIR_CARGO_PROFILE", "--profile=testing").split()
command = ["cargo", "test", *profile, "--test", "encode", "--", "--nocapture"]
output = subprocess.run(command, cwd=harness.TOP, env=env, capture_output=True, text=True, check=False)
print(output.stdout)
counts = re.search(r"(\d+) cases, (\d+) failed", output.stdout)
if output.returncode and not (counts and int(counts[2])):
    sys.exit(output.stderr[-3000:])
passed, failed = (int(counts[1]) - int(counts[2]), int(counts[2])) if counts else (0, 1)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed or output.returncode else 0)
