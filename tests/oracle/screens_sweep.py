#!/usr/bin/env python3
"""Screens of `ls`, `stat`, `cat` and others on a terminal of 80 columns, against the files of tests/oracle/screens.

    screens_sweep.py [--bin H5DIR] [--keep FOLDER] [--rewrite]

--rewrite writes the files anew: look at the difference before you commit it.
"""
import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import TOP, Tally, arguments, folder

SCREENS = os.path.join(TOP, "tests", "oracle", "screens")
FILES = {"sample.h5": "sample/sample.h5", "netcdf.nc": "netcdf/netcdf4.nc", "layouts.h5": "mount/layouts_new.h5", "types.h5": "mount/types.h5",
         "variable.h5": "mount/variable.h5", "names.h5": "mount/names.h5", "links.h5": "mount/links.h5", "attributes.h5": "mount/attributes_new.h5",
         "broken.h5": "mount/broken.h5"}
COLUMNS, LINES = 80, 24
# 2026-01-02 03:04:05 in UTC.
MODIFIED = 1767323045
# Command lines. Those with another exit code than 0 begin with it.
COMMANDS = {
    "ls": "ls sample.h5",
    "ls-l": "ls -l sample.h5:/run1",
    "ls-lR": "ls -lR sample.h5",
    "ls-a": "ls -a netcdf.nc",
    "ls-l-layouts": "ls -l layouts.h5",
    "ls-l-types": "ls -l types.h5:/contiguous",
    "ls-l-variable": "ls -l variable.h5",
    "ls-l-names": "ls -l names.h5",
    "ls-lR-links": "ls -lR links.h5",
    "ls-l-broken": "ls -l broken.h5",
    "ls-several": "ls -l sample.h5 links.h5",
    "ls-posix": "ls --posix sample.h5:/run1",
    "stat-file": "stat sample.h5",
    "stat-dataset": "stat sample.h5:/run1/temperature",
    "stat-compound": "stat sample.h5:/run1/station",
    "stat-sparse": "stat sample.h5:/run1/sparse",
    "stat-strings": "stat variable.h5:/strings_chunked",
    "stat-netcdf": "stat netcdf.nc:/temp",
    "stat-attributes": "stat attributes.h5:/data",
    "stat-group": "stat attributes.h5:/many",
    "stat-null": "stat layouts.h5:/null",
    "stat-broken": "stat broken.h5:/unknown_filter",
    "cat": "cat sample.h5:/run1/hours",
    "cat-cube": "cat -s 0:2,:,: sample.h5:/run1/temperature",
    "cat-notes": "cat sample.h5:/run1/notes",
    "cat-csv": "cat --csv sample.h5:/run1/station",
    "cat-group": "1 cat sample.h5:/run1",
    "summary": "summary sample.h5:/run1/temperature",
    "attr": "attr get netcdf.nc:/temp",
    "find": "find sample.h5 netcdf.nc -type d",
}


def on_terminal(command, environment, cwd):
    """Exit code, and what a terminal of 80 columns gets."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=environment, cwd=cwd)
    os.close(slave)
    text = b""
    while True:
        try:
            part = os.read(master, 1 << 16)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(master)
    return process.wait(), text.decode().replace("\r\n", "\n")


def main():
    rewrite = "--rewrite" in sys.argv
    sys.argv = [a for a in sys.argv if a != "--rewrite"]
    options, tally = arguments(__doc__), Tally()
    options.bin = os.path.abspath(options.bin)
    plain = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TERM": "xterm", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    with folder(options.keep) as place:
        # The age of a file is not shown, its time is.
        assert MODIFIED < time.time()
        for name, source in FILES.items():
            shutil.copy(os.path.join(TOP, "tests", "fixtures", source), os.path.join(place, name))
            os.chmod(os.path.join(place, name), 0o644)
            os.utime(os.path.join(place, name), (MODIFIED, MODIFIED))
        for name, line in COMMANDS.items():
            code, words = (int(line[0]), line[2:].split()) if line[0].isdigit() else (0, line.split())
            got, text = on_terminal([options.bin, *words], {**plain, "NO_COLOR": "1"}, place)
            tally.equal(got, code, f"{name}: exit code")
            text = text.replace(os.path.realpath(place) + "/", "").replace(place + "/", "")
            path = os.path.join(SCREENS, name + ".txt")
            screen = f"$ h5dir {' '.join(words)}\n{text}"
            if rewrite:
                with open(path, "w") as f:
                    f.write(screen)
            with open(path) as f:
                tally.equal(screen, f.read(), name)
            tally.check("\x1b" not in text, f"{name}: no colours with NO_COLOR")
            if words[0] == "stat":
                wide = [line for line in text.splitlines() if len(line) > COLUMNS]
                tally.check(not wide and text.count("\n") <= LINES, f"{name}: more than a screen: {wide} {text.count(chr(10))}")
            # Groups and links have colours.
            if "-lR" in words:
                tally.check("\x1b[" in on_terminal([options.bin, *words], plain, place)[1], f"{name}: colours on a terminal")
        known = {name + ".txt" for name in COMMANDS}
        tally.equal(sorted(set(os.listdir(SCREENS)) - known), [], "screens that no command has")
    tally.finish()


if __name__ == "__main__":
    main()
