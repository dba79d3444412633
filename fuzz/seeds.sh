#!/usr/bin/env bash
# Fills fuzz/corpus: files and packs of chunks of tests/fixtures, objects of containers that h5dir makes, and texts.
# H5DIR: the command, else target/debug/h5dir.
set -euo pipefail
cd "$(dirname "$0")"
export H5DIR=${H5DIR:-$PWD/../target/debug/h5dir}
mkdir -p corpus/open_and_walk
find ../tests/fixtures -name '*.h5' -size -64k -exec cp -t corpus/open_and_walk {} +
python3 seeds.py
for target in corpus/*; do
    printf '%s: %s\n' "${target#corpus/}" "$(find "$target" -type f | wc -l)"
done
