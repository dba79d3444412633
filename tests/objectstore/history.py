#!/usr/bin/env python3
"""Histories of many writers of one container, checked against every version that it has.

    history.py H5DIR [--store local|moto|seaweed|ceph] [--writers N] [--seconds S] [--seed N] [--kill]

Each writer is a process with a mount of its own. It makes random changes in batches: registers in
one chunk, files in two groups, hard links, groups that are filled and removed, files and groups that
move between groups, transfers between two datasets, attributes, an attribute that counts. Each batch ends with fsync and has a
register write that no other batch has.
Writers and a reader with new mounts also read all of that at once. Every call is logged with
CLOCK_MONOTONIC. Then iod_reader, which shares no code with h5dir, replays the records:

- versions are dense, and each record has the hash of the one before it
- what a version changed is exactly one batch, as a whole
- an acknowledged batch is one version, a refused one is none
- a batch that began after another one was acknowledged has a later version
- the sum of all accounts never changes; each moved object has one place, below the root
- each observation is one version, not older than what was acknowledged before to that mount
- h5dir mounts of old versions show the same

The last line is "N passed, N failed"."""

import argparse
import collections
import json
import multiprocessing
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

import iod_reader
import servers

SLOT = 64
SHARED = 8          # registers that all writers write
ACCOUNTS = 8        # in each of two datasets
START = 1000        # in each account
GROUPS = ["a", "b", "c"]
FILES = [f"o{i}" for i in range(5)]
DIRS = [f"d{i}" for i in range(3)]
SETS = ["s0", "s1", "links"]    # groups of names; those of "links" are hard links to "x"
BOXES = ["k0", "k1"]            # groups that come and go
OPTIONS = ("--read-write", "--commit-interval=0", "--entry-timeout=0", "--attr-timeout=0")
REFUSED = 5         # EIO


def now():
    return time.monotonic()


# ---- mounts

class Mount:
    """A mount whose daemon is a child of this process."""

    def __init__(self, h5dir, target, at, environment, *options):
        self.h5dir, self.at = h5dir, at
        os.makedirs(at, exist_ok=True)
        self.log = at + ".log"
        with open(self.log, "ab") as log:
            self.daemon = subprocess.Popen([h5dir, "mount", "-f", *options, target, at], env=environment, stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=log)
        while not os.path.ismount(at):
            if self.daemon.poll() is not None:
                with open(self.log, errors="replace") as f:
                    raise RuntimeError(f"mount of {target}: {f.read()[-500:]}")
            time.sleep(0.005)

    def path(self, name):
        return os.path.join(self.at, name)

    def close(self):
        """Unmounts; the exit code of the daemon."""
        command = ["fusermount3", "-u", self.at] if os.getuid() else ["umount", self.at]
        end = now() + 30
        # Programs that look at all mounts of the machine keep one busy for a moment.
        while (done := subprocess.run(command, capture_output=True, text=True)).returncode and "busy" in done.stderr and now() < end:
            time.sleep(0.05)
        try:
            return self.daemon.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the daemon of {self.at} does not end: {done.stderr}") from None

    def kill(self):
        self.daemon.kill()
        self.daemon.wait(30)
        subprocess.run(["umount", "-l", self.at], capture_output=True)


def write(path, data, offset=0):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(fd, data, offset)
    finally:
        os.close(fd)


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def content(token):
    """What is in a file of a set; of every third token more than a record takes."""
    return token.encode() * (2000 if token[-1] in "258" else 1)


def slot(token):
    return token.encode().ljust(SLOT, b"\0")


def prepare(m, writers):
    """The objects that all writers change."""
    write(m.path("reg"), slot("") * (SHARED + writers))
    for name in ("x", "y"):
        write(m.path(name), struct.pack("<q", START) * ACCOUNTS)
    for name in [*SETS, "ring"] + [f"ring/{g}" for g in GROUPS]:
        os.mkdir(m.path(name))
    for i, name in enumerate(FILES):
        write(m.path(f"ring/{GROUPS[i % 3]}/{name}"), name.encode())
    for i, name in enumerate(DIRS):
        os.mkdir(m.path(f"ring/{GROUPS[i % 3]}/{name}"))
    sync(m.path("reg"))


def observe(m, writers):
    """All of the state at once, by key."""
    def read(name):
        with open(m.path(name), "rb") as f:
            return f.read()
    state = {}
    registers = read("reg")
    for i in range(SHARED + writers):
        state["reg", i] = registers[i * SLOT:(i + 1) * SLOT].rstrip(b"\0").decode()
    for name in ("x", "y"):
        for i, value in enumerate(struct.unpack(f"<{ACCOUNTS}q", read(name))):
            state[name, i] = value
    for group in SETS:
        for name in os.listdir(m.path(group)):
            state[group, name] = True
    for box in set(BOXES) & set(os.listdir(m.at)):
        state["box", box] = True
        for name in os.listdir(m.path(box)):
            state["in", f"{box}/{name}"] = True
    pending = list(GROUPS)
    while pending:
        inner = pending.pop()
        for name in os.listdir(m.path(f"ring/{inner}")):
            if ("ring", name) in state:
                raise AssertionError(f"{name} has two places")
            state["ring", name] = os.path.basename(inner)
            if name in DIRS:
                pending.append(f"{inner}/{name}")
    for name in os.listxattr(m.path("x")):
        if name.startswith("user.note"):
            state["attr", name] = os.getxattr(m.path("x"), name).decode()
    return state


def ring_path(state, name):
    path = [name]
    while path[-1] not in GROUPS:
        path.append(state["ring", path[-1]])
    return "ring/" + "/".join(reversed(path))


# ---- one writer

class Writer:
    def __init__(self, number, h5dir, target, folder, environment, arguments, log):
        self.number, self.h5dir, self.target, self.environment = number, h5dir, target, environment
        self.folder, self.arguments, self.log = folder, arguments, log
        self.random = random.Random(arguments.seed * 1000 + number)
        self.mounts = self.sequence = 0
        self.mount = None

    def note(self, **event):
        self.log.write(json.dumps({"writer": self.number, "mount": self.mounts, **event}) + "\n")
        self.log.flush()

    def open(self):
        self.mounts += 1
        begin = now()
        self.mount = Mount(self.h5dir, self.target, os.path.join(self.folder, f"w{self.number}-{self.mounts}"), self.environment, *OPTIONS)
        self.note(event="mount", begin=begin, end=now())

    def look(self):
        begin = now()
        state = observe(self.mount, self.arguments.writers)
        self.note(event="read", begin=begin, end=now(), state=[[*key, value] for key, value in state.items()])
        return state

    def operate(self, state, changes):
        """One random operation on what no earlier operation of the batch changed."""
        kinds = ["register", "add", "remove", "box", "box", "file", "file", "group", "transfer", "transfer", "attribute", "count"]
        kind, m, r = self.random.choice(kinds), self.mount, self.random
        token = f"{self.number}.{self.sequence}"
        if kind == "register":
            i = r.randrange(SHARED)
            if ("reg", i) not in changes:
                write(m.path("reg"), slot(token), i * SLOT)
                changes["reg", i] = token
        elif kind == "add":
            group = r.choice(SETS)
            if (group, token) not in changes:
                if group == "links":
                    os.link(m.path("x"), m.path(f"{group}/{token}"))
                else:
                    write(m.path(f"{group}/{token}"), content(token))
                changes[group, token] = True
        elif kind == "remove":
            present = [k for k in state if k[0] in SETS and k not in changes]
            if present:
                group, name = r.choice(present)
                os.unlink(m.path(f"{group}/{name}"))
                changes[group, name] = None
        elif kind == "box":
            self.operate_box(state, changes, r.choice(BOXES), token)
        elif kind in ("file", "group"):
            name = r.choice(FILES if kind == "file" else DIRS)
            places = {**{k[1]: v for k, v in state.items() if k[0] == "ring"}, **{k[1]: v for k, v in changes.items() if k[0] == "ring"}}
            to = r.choice(GROUPS + DIRS)
            # Not into itself or below itself.
            above = to
            while above in places and above != name:
                above = places[above]
            if ("ring", name) not in changes and to != places[name] and above != name:
                both = {**state, **{k: v for k, v in changes.items() if k[0] == "ring"}}
                target = f"ring/{to}" if to in GROUPS else ring_path(both, to)
                os.rename(m.path(ring_path(both, name)), m.path(f"{target}/{name}"))
                changes["ring", name] = to
        elif kind == "transfer":
            i, j, amount = r.randrange(ACCOUNTS), r.randrange(ACCOUNTS), r.randrange(1, 50)
            if ("x", i) not in changes and ("y", j) not in changes:
                write(m.path("x"), struct.pack("<q", state["x", i] - amount), 8 * i)
                write(m.path("y"), struct.pack("<q", state["y", j] + amount), 8 * j)
                changes["x", i], changes["y", j] = state["x", i] - amount, state["y", j] + amount
        elif kind == "attribute":
            name = f"user.note{r.randrange(3)}"
            if ("attr", name) not in changes:
                os.setxattr(m.path("x"), name, token.encode())
                changes["attr", name] = token
        elif kind == "count":
            # Two writers count to the same number: one of both is refused.
            key = "attr", "user.notes"
            if key not in changes:
                changes[key] = str(int(state.get(key, 0)) + 1)
                os.setxattr(m.path("x"), key[1], changes[key].encode())

    def operate_box(self, state, changes, box, token):
        """Makes, fills, empties or removes a group."""
        m, inside = self.mount, [k for k in state if k[0] == "in" and k[1].startswith(box)]
        if any(box in str(k[1]) for k in changes):
            return
        if ("box", box) not in state:
            os.mkdir(m.path(box))
            changes["box", box] = True
        elif not inside and self.random.random() < 0.5:
            os.rmdir(m.path(box))
            changes["box", box] = None
        elif inside and self.random.random() < 0.6:
            gone = self.random.choice(inside)
            os.unlink(m.path(gone[1]))
            changes[gone] = None
        else:
            write(m.path(f"{box}/{token}"), token.encode())
            changes["in", f"{box}/{token}"] = True

    def batch(self, state):
        self.sequence += 1
        token, begin, changes, result = f"{self.number}.{self.sequence}", now(), {}, "ok"
        killer = None
        if self.arguments.kill and self.random.random() < 0.15:
            killer = threading.Timer(self.random.random() * 0.03, self.mount.daemon.kill)
            killer.start()
        try:
            for _ in range(self.random.randrange(3)):
                self.operate(state, changes)
            own = SHARED + self.number
            write(self.mount.path("reg"), slot(token), own * SLOT)
            changes["reg", own] = token
            sync(self.mount.path("reg"))
        except OSError as e:
            result = e.errno
            if killer is None and result != REFUSED:
                raise
        if killer:
            killer.join()
        self.note(event="batch", begin=begin, end=now(), token=token, result=result, killed=killer is not None,
                  changes=[[*key, value] for key, value in changes.items()])
        return result == "ok" and killer is None

    def run(self):
        try:
            self.open()
            # SeaweedFS takes seconds for the probe of a mount.
            end = now() + self.arguments.seconds
            while now() < end:
                state = self.look()
                # Others commit meanwhile.
                time.sleep(self.random.random() * self.arguments.pause)
                if not self.batch(state):
                    self.mount.kill() if self.mount.daemon.poll() is not None else self.mount.close()
                    self.mount = None
                    self.open()
        finally:
            if self.mount:
                self.mount.close()


def run_writer(number, h5dir, target, folder, environment, arguments):
    with open(os.path.join(folder, f"log{number}"), "w") as log:
        Writer(number, h5dir, target, folder, environment, arguments, log).run()


def run_reader(h5dir, target, folder, environment, arguments):
    """Mounts the container anew again and again."""
    end, n = now() + arguments.seconds, 0
    with open(os.path.join(folder, "log-reader"), "w") as log:
        while now() < end:
            n += 1
            begin = now()
            m = Mount(h5dir, target, os.path.join(folder, f"r{n}"), environment)
            try:
                state = observe(m, arguments.writers)
            finally:
                m.close()
            log.write(json.dumps({"writer": "reader", "mount": n, "event": "mount", "begin": begin, "end": begin}) + "\n")
            log.write(json.dumps({"writer": "reader", "mount": n, "event": "read", "begin": begin, "end": now(),
                                  "state": [[*k, v] for k, v in state.items()]}) + "\n")
            time.sleep(0.3)


# ---- the checker

class Replay:
    """The state of the container at each version, from its records."""

    def __init__(self, container, writers):
        self.container, self.writers = container, writers
        self.links, self.types, self.counts, self.attributes, self.chunks, self.inner = {}, {}, {}, {}, {}, {}
        self.paths_known = False

    def apply(self, record):
        for key, cell, _ in record.entries:
            ident, kind, rest = iod_reader.parts(key)
            value = None if cell is None else self.container.resolve(cell[1])
            table = {b"L": self.links, b"A": self.attributes, b"C": self.chunks, b"H": self.inner}.get(kind)
            if table is None:
                continue
            own = table.setdefault(ident, {})
            if value is None:
                own.pop(rest, None)
            else:
                own[rest] = iod_reader.link_target(value) if kind == b"L" else value

    def find(self, path):
        at = 0
        for name in path.split("/"):
            at = self.links[at][name.encode()]
        return at

    def fix(self):
        """Finds the objects by their names, once; their ids never change."""
        self.ids = {name: self.find(name) for name in ("reg", "x", "y", *SETS, *(f"ring/{g}" for g in GROUPS))}
        self.names = {self.ids[f"ring/{g}"]: g for g in GROUPS}
        for i, name in enumerate(FILES + DIRS):
            group = GROUPS[(i if i < len(FILES) else i - len(FILES)) % 3]
            self.names[self.find(f"ring/{group}/{name}")] = name

    def file(self, name, length):
        data = self.chunks[self.ids[name]][bytes(8)]
        return data.ljust(length, b"\0")

    def state(self):
        """The state as `observe` has it. Raises AssertionError where that is not possible."""
        state = {}
        registers = self.file("reg", SLOT * (SHARED + self.writers))
        for i in range(SHARED + self.writers):
            state["reg", i] = registers[i * SLOT:(i + 1) * SLOT].rstrip(b"\0").decode()
        for name in ("x", "y"):
            for i, value in enumerate(struct.unpack(f"<{ACCOUNTS}q", self.file(name, 8 * ACCOUNTS))):
                state[name, i] = value
        for group in SETS:
            for name in self.links.get(self.ids[group], {}):
                state[group, name.decode()] = True
        for box in BOXES:
            if box.encode() in self.links[0]:
                state["box", box] = True
                for name in self.links.get(self.links[0][box.encode()], {}):
                    state["in", f"{box}/{name.decode()}"] = True
        for group, place in self.names.items():
            for name, target in self.links.get(group, {}).items():
                assert self.names.get(target) == name.decode(), f"{name} leads to object {target}"
                assert ("ring", name.decode()) not in state, f"{name} has two places"
                state["ring", name.decode()] = place
        for name in FILES + DIRS:
            above, steps = name, 0
            while above not in GROUPS:
                assert ("ring", above) in state, f"{name} is lost"
                above, steps = state["ring", above], steps + 1
                assert steps <= len(DIRS) + 1, f"{name} is in a cycle"
        for name, message in self.attributes.get(self.ids["x"], {}).items():
            if name.startswith(b"note"):
                state["attr", "user." + name.decode()] = attribute_bytes(message)
        return state

    def objects(self):
        """Problems of the objects: link counts, objects without names."""
        counts = collections.Counter(target for links in self.links.values() for target in links.values() if target is not None)
        counts[0] += 1
        for ident, messages in self.inner.items():
            if not messages:
                continue
            count = int.from_bytes(messages[b"\0\x16"][1:5], "little")
            if count != counts[ident]:
                yield f"object {ident} has {counts[ident]} names and the link count {count}"
            counts.pop(ident)
        for ident in counts:
            yield f"links lead to object {ident}, which does not exist"


def attribute_bytes(value):
    """The text of an attribute: a version 3 attribute message, and the block of its variable-length cells."""
    r = iod_reader.Reader(value, "attribute")
    message = iod_reader.Reader(r.take(r.uint(4)), "attribute")
    version, _, name, dtype, space, _ = (message.uint(n) for n in (1, 1, 2, 2, 2, 1))
    if version != 3:
        raise iod_reader.Damaged(f"attribute message version {version}")
    message.take(name + dtype + space)
    if r.at == len(value):
        return message.data[message.at:].rstrip(b"\0").decode()
    ends = [r.uint(4) for _ in range(r.uint(4))]
    assert len(ends) == 1
    return r.take(ends[0]).decode()


def difference(before, after):
    return frozenset((key, after.get(key)) for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def frozen(state):
    return frozenset(state.items())


class Checker:
    def __init__(self):
        self.passed, self.problems = 0, []

    def check(self, right, text):
        if right:
            self.passed += 1
        else:
            self.problems.append(text)

    def versions(self, container, writers, first, batches):
        """Compares each version with the batches; the states by version."""
        replay, states, version_of = Replay(container, writers), {}, {}
        by_token = {batch["token"]: batch for batch in batches}
        for record in container.records():
            replay.apply(record)
            if record.version < first:
                continue
            if record.version == first:
                replay.fix()
                states[first] = replay.state()
                continue
            try:
                state = replay.state()
            except AssertionError as e:
                self.check(False, f"version {record.version}: {e}")
                break
            changed = difference(states[record.version - 1], state)
            states[record.version] = state
            self.check(sum(v for k, v in state.items() if k[0] in "xy") == 2 * ACCOUNTS * START, f"version {record.version}: another sum")
            tokens = {value for key, value in changed if key[0] == "reg" and key[1] >= SHARED}
            if not changed:
                # The begin of a session.
                self.check(record.session == 0 and not record.entries, f"version {record.version} changes nothing")
                continue
            batch = by_token.get(tokens.pop()) if len(tokens) == 1 else None
            if batch is None:
                self.check(False, f"version {record.version} is no batch: {sorted(map(str, changed))}")
                continue
            self.check(changed == batch["changes"], f"version {record.version} is not batch {batch['token']} as a whole: "
                       f"{sorted(map(str, changed ^ batch['changes']))}")
            self.check(batch["token"] not in version_of, f"batch {batch['token']} is two versions")
            version_of[batch["token"]] = record.version
        for problem in replay.objects():
            self.check(False, problem)
        return states, version_of

    def batches(self, batches, version_of, ambiguous):
        for batch in batches:
            version, what = version_of.get(batch["token"]), f"batch {batch['token']}"
            if batch["result"] == "ok":
                self.check(version is not None, f"{what} was acknowledged and is lost")
            elif not (ambiguous or batch["killed"]):
                self.check(version is None, f"{what} was refused and is version {version}")
        # Real time: of two acknowledged batches, the one that ended before the other began comes first.
        ordered = sorted((b for b in batches if b["token"] in version_of), key=lambda b: b["begin"])
        ends = sorted((b["end"], version_of[b["token"]]) for b in ordered if b["result"] == "ok")
        latest = at = 0
        for batch in ordered:
            while at < len(ends) and ends[at][0] < batch["begin"]:
                latest, at = max(latest, ends[at][1]), at + 1
            self.check(version_of[batch["token"]] > latest, f"batch {batch['token']} is before version {latest}, which was acknowledged earlier")

    def reads(self, events, states, version_of):
        """Each observation is one version, at least the newest that its mount is known to have."""
        versions = collections.defaultdict(list)
        for version, state in states.items():
            versions[frozen(state)].append(version)
        ends = sorted((e["end"], version_of[e["token"]]) for e in events if e["event"] == "batch" and e["result"] == "ok" and e["token"] in version_of)
        begins = {version_of[e["token"]]: e["begin"] for e in events if e["event"] == "batch" and e["token"] in version_of}
        least = {}
        for event in sorted(events, key=lambda e: e["end"]):
            mount = (event["writer"], event["mount"])
            if event["event"] == "mount":
                least[mount] = max([v for end, v in ends if end < event["begin"]] or [0])
            elif event["event"] == "batch" and event["result"] == "ok":
                least[mount] = max(least[mount], version_of.get(event["token"], 0))
            elif event["event"] == "read":
                found = [v for v in versions.get(frozen(event["state"]), ()) if v >= least[mount] and begins.get(v, 0) <= event["end"]]
                self.check(found, f"an observation of {mount} is no version from {least[mount]} on; the state is of {versions.get(frozen(event['state']))}")
                # A mount never goes back.
                least[mount] = max(least[mount], min(found or [0]))


def load(folder):
    events = []
    for name in os.listdir(folder):
        if name.startswith("log"):
            with open(os.path.join(folder, name)) as f:
                for line in f:
                    event = json.loads(line)
                    if "changes" in event:
                        event["changes"] = frozenset(((k, n), v) for k, n, v in event["changes"])
                    if "state" in event:
                        event["state"] = {(k, n): v for k, n, v in event["state"]}
                    events.append(event)
    return events


def run_history(h5dir, server, arguments, folder, name="history", environment=None, disturb=None, ambiguous=False):
    """Runs and checks one history; the Checker. `environment` is that of the writers, `disturb` runs meanwhile."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "H5DIR_"))}
    plain = {**clean, **server.environment}
    disturbed = {**clean, **(environment or server.environment)}
    target, checker = server.target(name), Checker()
    logs = os.path.join(folder, name + "-logs")
    os.makedirs(logs)
    subprocess.run([h5dir, "create", target], env=plain, check=True, capture_output=True, timeout=120)
    m = Mount(h5dir, target, os.path.join(logs, "setup"), plain, *OPTIONS)
    try:
        prepare(m, arguments.writers)
    finally:
        code = m.close()
        with open(m.log, errors="replace") as f:
            assert code == 0, f"the daemon ended with {code}: {f.read()[-500:]}"
    first = sum(key.startswith("v/") for key in server.objects(name).keys())
    context = multiprocessing.get_context("fork")
    running = [context.Process(target=run_writer, args=(n, h5dir, target, logs, disturbed, arguments)) for n in range(arguments.writers)]
    running.append(context.Process(target=run_reader, args=(h5dir, target, logs, plain, arguments)))
    for process in running:
        process.start()
    if disturb:
        disturb()
    for process in running:
        process.join(arguments.seconds + 240)
        if process.is_alive():
            process.kill()
        checker.check(process.exitcode == 0, f"a writer or reader ended with {process.exitcode}")
    events = load(logs)
    batches = [e for e in events if e["event"] == "batch"]
    container = iod_reader.Container(server.objects(name))
    try:
        states, version_of = checker.versions(container, arguments.writers, first, batches)
    except iod_reader.Damaged as e:
        checker.check(False, f"damaged: {e}")
        return checker
    checker.batches(batches, version_of, ambiguous)
    checker.reads(events, states, version_of)
    compare_mounts(checker, h5dir, target, plain, logs, states, arguments)
    results = collections.Counter(str(b["result"]) for b in batches)
    reads = sum(e["event"] == "read" for e in events)
    took = sorted(b["end"] - b["begin"] for b in batches if b["result"] == "ok") or [0]
    print(f"  {arguments.writers} writers, {arguments.seconds} s: {len(states) - 1} versions, {results['ok']} batches acknowledged, "
          f"{results['5']} refused, {sum(b['killed'] for b in batches)} killed, {reads} observations; "
          f"p50 {took[len(took) // 2] * 1000:.0f} ms, p99 {took[int(len(took) * 0.99)] * 1000:.0f} ms", flush=True)
    checker.check(results["ok"] > arguments.writers, "hardly anything was committed")
    return checker


def compare_mounts(checker, h5dir, target, environment, folder, states, arguments):
    """Mounts of some versions, the newest included, show what the replay has; so does the log."""
    chosen = random.Random(arguments.seed).sample(sorted(states), min(4, len(states))) + [max(states)]
    for version in chosen:
        m = Mount(h5dir, target, os.path.join(folder, f"v{version}"), environment, f"--version={version}")
        try:
            checker.check(observe(m, arguments.writers) == states[version], f"a mount of version {version} shows another state")
        finally:
            m.close()
    m = Mount(h5dir, target, os.path.join(folder, "newest"), environment)
    try:
        checker.check(observe(m, arguments.writers) == states[max(states)], "the newest version shows another state")
        for group in ("s0", "s1"):
            for name in os.listdir(m.path(group)):
                with open(m.path(f"{group}/{name}"), "rb") as f:
                    checker.check(f.read() == content(name), f"{group}/{name} has other content")
    finally:
        m.close()
    log = subprocess.run([h5dir, "iod", "log", target], env=environment, capture_output=True, text=True, timeout=300)
    numbers = [int(line.split()[0]) for line in log.stdout.splitlines()]
    checker.check(numbers == list(range(max(states), 0, -1)), f"h5dir iod log: {log.stderr} {numbers[:5]}...")


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("h5dir")
    parser.add_argument("--store", default="local", choices=sorted(servers.KINDS))
    parser.add_argument("--writers", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--pause", type=float, default=0.02, help="most seconds between reading and writing")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill", action="store_true", help="kill daemons in the middle of batches")
    parser.add_argument("--keep", help="folder of the container and the logs, which stay")
    return parser.parse_args(arguments)


def main():
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = arguments.keep or tempfile.mkdtemp(prefix="h5dir-history-")
    os.makedirs(folder, exist_ok=True)
    try:
        with servers.started(arguments.store, folder) as server:
            checker = run_history(os.path.realpath(arguments.h5dir), server, arguments, folder)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    for problem in checker.problems[:20]:
        print(f"FAILED {problem}")
    print(f"{checker.passed} passed, {len(checker.problems)} failed")
    sys.exit(bool(checker.problems))


if __name__ == "__main__":
    main()
