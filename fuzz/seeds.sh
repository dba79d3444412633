#!/usr/bin/env bash
# Fills fuzz/corpus/open_and_walk with the small valid files of tests/fixtures.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p corpus/open_and_walk
find ../tests/fixtures -name '*.h5' -size -64k -exec cp -t corpus/open_and_walk {} +
ls corpus/open_and_walk | wc -l
