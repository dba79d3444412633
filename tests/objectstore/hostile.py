"""Checks of servers that send wrong, endless and late answers: errors, bounded memory, mounts that end."""

import contextlib
import mmap
import os
import re
import ssl
import subprocess
import tempfile
import threading
import time
from http.server import ThreadingHTTPServer

import h5py
import lying_server
import numpy as np
from containers import LONG
from servers import S3

CHECKS = []
MIB = 1 << 20
U64 = (1 << 64) - 1
# Errors of a read whose answers are not used.
ERRORS = (5, 13, 110)
# Most memory of a command or a mount beyond --cache-size, MiB.
MEMORY_MIB = 128


def check(function):
    CHECKS.append(function)
    return function


# ---- faults: each is called with the handler of a request, and sends an answer

def send(handler, status, headers, body=b""):
    """An answer of these headers; a value that is a list is repeated."""
    fields = [(name, one) for name, value in headers.items() for one in (value if isinstance(value, list) else [value])]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields if value is not None)
    handler.wfile.write(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode("latin-1") + body)


def endless(handler, piece, chunked=True, pause=0.0):
    """A body without end: until the client is gone, or the server is told to stop."""
    handler.close_connection = True
    data = b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece
    with contextlib.suppress(OSError):
        while not handler.server.stopping.wait(pause):
            handler.wfile.write(data)


def wanted(handler):
    """First and last byte that are asked for."""
    found = re.match(r"bytes=(\d+)-(\d+)$", handler.headers.get("Range", "bytes=0-99"))
    return int(found[1]), int(found[2])


def part(changed, body=None):
    """A part with `changed` headers and the right body, or `body(handler)`."""
    def fault(handler):
        first, last = wanted(handler)
        last = min(last, handler.server.size - 1)
        length = max(0, last - first + 1)
        headers = {"Content-Length": length, "Content-Range": f"bytes {first}-{last}/{handler.server.size}", "ETag": '"1"',
                   "Last-Modified": "Tue, 24 Nov 2026 00:00:00 GMT"}
        values = {name: value(first, last, handler.server.size) if callable(value) else value for name, value in changed.items()}
        handler.close_connection = True
        send(handler, 206, headers | values, b"" if body else b"\1" * min(length, 8 * MIB))
        if body:
            body(handler)
    return fault


def answer(status, headers, body=lambda handler: None):
    def fault(handler):
        handler.close_connection = True
        send(handler, status, headers)
        body(handler)
    return fault


def many(handler):
    """Headers without end."""
    with contextlib.suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 206 X\r\n")
        while not handler.server.stopping.is_set():
            handler.wfile.write(b"X: " + b"v" * 60000 + b"\r\n")
    handler.close_connection = True


big = lambda handler: endless(handler, b"x" * 65536)
big_plain = lambda handler: endless(handler, b"x" * 65536, chunked=False)
crumbs = lambda handler: endless(handler, b"x", chunked=False, pause=0.1)
silence = lambda handler: endless(handler, b"", chunked=False, pause=60)
CHUNKED = {"Transfer-Encoding": "chunked"}
PARTS = {
    "a range that overflows": part({"Content-Length": 5, "Content-Range": f"bytes 0-{U64}/5"}),
    "a range up to the end of all": part({"Content-Range": lambda a, b, n: f"bytes {a}-{U64}/{n}"}),
    "a range that begins at the end of all": part({"Content-Range": f"bytes {U64}-{U64}/{U64}"}),
    "a range from end to begin": part({"Content-Range": lambda a, b, n: f"bytes {b}-{a}/{n}"}),
    "another begin": part({"Content-Range": lambda a, b, n: f"bytes {a + 1}-{b + 1}/{n}"}),
    "another end": part({"Content-Range": lambda a, b, n: f"bytes {a}-{b - 1}/{n}"}),
    "a range beyond the object": part({"Content-Range": lambda a, b, n: f"bytes {a}-{b}/{a + 1}"}),
    "a size that overflows": part({"Content-Range": lambda a, b, n: f"bytes {a}-{b}/{U64}"}),
    "a size of 20 digits": part({"Content-Range": lambda a, b, n: f"bytes {a}-{b}/{10 ** 20}"}),
    "no size": part({"Content-Range": lambda a, b, n: f"bytes {a}-{b}/*"}),
    "a range of another unit": part({"Content-Range": lambda a, b, n: f"lines {a}-{b}/{n}"}),
    "no range": part({"Content-Range": None}),
    "two ranges": part({"Content-Range": lambda a, b, n: [f"bytes {a}-{b}/{n}", f"bytes 0-{U64}/5"]}),
    "two ETags": part({"ETag": ['"1"', '"2"']}),
    "an ETag of 60 kB": part({"ETag": '"' + "e" * 60000 + '"'}),
    "an ETag that is no text": part({"ETag": '"\xe4\xf6"'}),
    "a date that is none": part({"Last-Modified": "x" * 3000}),
    "a length of 1 TiB": part({"Content-Length": 1 << 40}, big_plain),
    "a body without end": part({"Content-Length": None, **CHUNKED}, big),
    "200 without end": answer(200, CHUNKED, big),
    "200 of 1 TiB": answer(200, {"Content-Length": 1 << 40}, big_plain),
    "204": answer(204, {}),
    "400 without end": answer(400, CHUNKED, big),
    "403 without end": answer(403, CHUNKED, big),
    "403 of 1 TiB": answer(403, {"Content-Length": 1 << 40}, big_plain),
    "404 without end": answer(404, CHUNKED, big),
    "a redirect in a circle": answer(302, {"Location": "/bucket/x.h5", "Content-Length": 0}),
    "a redirect to a file": answer(302, {"Location": "file:///etc/passwd", "Content-Length": 0}),
    "a redirect to nowhere": answer(302, {"Content-Length": 0}),
}
# The client repeats the request, or waits.
LATE = {
    "a length that overflows": part({"Content-Length": U64}, big_plain),
    "a body of crumbs": part({}, crumbs),
    "a short body, then silence": part({}, silence),
    "503 without end": answer(503, CHUNKED, big),
    "headers without end": many,
    "silence": silence,
}


def listing(body):
    return answer(200, {**CHUNKED, "Content-Type": "application/xml"}, body)


def entries(handler):
    """A page of 1,000 names, after which another one comes, for ever."""
    handler.server.pages += 1
    name = f"{handler.server.pages:08}-" + "n" * 40
    items = "".join(f"<Contents><Key>{name}{i:04}</Key><LastModified>2026-01-01T00:00:00Z</LastModified><ETag>\"e\"</ETag><Size>1</Size></Contents>"
                    for i in range(1000))
    body = f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{handler.server.pages}</NextContinuationToken>{items}</ListBucketResult>"
    send(handler, 200, {"Content-Length": len(body)}, body.encode())


def same_page(handler):
    body = b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken></ListBucketResult>"
    send(handler, 200, {"Content-Length": len(body)}, body)


def wrong_names(handler):
    """Keys that are none, with characters that a terminal obeys."""
    name = "f/../\x9b31m" + "n" * 5000
    items = f"<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:00Z</LastModified><ETag>\"e\"</ETag><Size>1</Size></Contents>"
    body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{items * 3}</ListBucketResult>".encode()
    send(handler, 200, {"Content-Length": len(body)}, body)


def no_xml(handler):
    body = b"<ListBucketResult></\x1b[31m>"
    send(handler, 200, {"Content-Length": len(body)}, body)


LISTINGS = {
    "names that are none": wrong_names,
    "text that is no XML": no_xml,
    "a page without end": listing(lambda handler: endless(handler, b"<a>" * 20000)),
    "text without end": listing(big),
    "a page of 1 TiB": answer(200, {"Content-Length": 1 << 40}, big_plain),
    "an error without end": answer(403, CHUNKED, big),
    "pages without end": entries,
    "a page without names for ever": same_page,
}


class Handler(lying_server.Handler):
    """Answers as lying_server does, or by the fault that is set for the request."""

    def do_GET(self):
        server = self.server
        server.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        if server.fault and server.is_due(self):
            with contextlib.suppress(OSError):
                return server.fault(self)
            self.close_connection = True
            return None
        return super().do_GET()

    do_HEAD = do_GET


class Server:
    """`objects` by key; `fault` answers the requests for which `is_due` is true."""

    def __init__(self, objects, certificate=None):
        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_):
                """A client that is gone is no error."""

        self.server = server = Quiet(("127.0.0.1", 0), Handler)
        server.objects, server.mode, server.lock = objects, "honest", threading.Lock()
        server.size = len(objects.get("x.h5", b""))
        server.fault, server.is_due, server.seen, server.pages = None, lambda handler: True, [], 0
        server.stopping = threading.Event()
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        self.host = f"localhost:{server.server_port}"
        self.url = f"http{'s' if certificate else ''}://{self.host}"
        threading.Thread(target=server.serve_forever, daemon=True).start()

    @contextlib.contextmanager
    def lying(self, fault, is_due=lambda handler: True):
        self.server.is_due, self.server.fault, self.server.pages = is_due, fault, 0
        self.server.stopping.clear()
        try:
            yield
        finally:
            self.server.fault = None
            self.server.stopping.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stopping.set()
        self.server.shutdown()
        self.server.server_close()


# ---- commands and mounts

def make_file(path):
    """A dataset of 2 GiB, of which nothing is written: the file is sparse."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    with h5py.File(path, "w") as f:
        f["small"] = np.arange(10)
        h5py.h5d.create(f.id, b"data", h5py.h5t.STD_U8LE, h5py.h5s.create_simple((2 << 30,)), plist)


@contextlib.contextmanager
def hostile_server(b):
    with open(b.file("hostile.h5", make_file), "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        with Server({"x.h5": data}) as server:
            yield server


def peak(pid):
    """Largest memory of a process, MiB; 0 if it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as f:
        found = re.search(r"VmHWM:\s+(\d+)", f.read())
        return int(found[1]) >> 10 if found else 0
    return 0


def limited(b, arguments, environment=None):
    """Runs a command: its exit status, its messages, and its largest memory in MiB."""
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen([b.h5dir, *arguments], env=environment or b.environment, stdout=subprocess.DEVNULL, stderr=messages)
        killer = threading.Timer(60, process.kill)
        killer.start()
        memory = 0
        while process.poll() is None:
            memory = max(memory, peak(process.pid))
            if memory > 8 * MEMORY_MIB:
                process.kill()
            time.sleep(0.01)
        killer.cancel()
        messages.seek(0)
        return process.returncode, messages.read().decode(errors="replace"), memory


def assert_fails(b, name, arguments, environment=None):
    status, text, memory = limited(b, arguments, environment)
    assert status == 3 and text.count("\n") == 1 and "panic" not in text, (name, status, text)
    assert "secret" not in text and memory < MEMORY_MIB, (name, memory, text)
    assert len(text) < 500 and not set("\x1b\x9b") & set(text), (name, text)
    return text


def outcome(path, offset):
    """The errno of a read in another thread; None if it does not end."""
    found = []

    def work():
        try:
            with open(path, "rb", buffering=0) as f:
                f.seek(offset)
                found.append(0 if len(f.read(4096)) == 4096 else -1)
        except OSError as e:
            found.append(e.errno)
    reader = threading.Thread(target=work, daemon=True)
    reader.start()
    reader.join(40)
    return found[0] if found else None


def daemon_memory(at):
    """Largest memory of the daemon of the mount `at`, MiB."""
    peaks = [0]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as f:
            line = f.read()
            if at in line and "mount" in line:
                peaks.append(peak(pid))
    return max(peaks)


@check
def commands_end_at_hostile_answers(b):
    with hostile_server(b) as server:
        keys = {**b.environment, **S3.environment_at(server.url)}
        for name, fault in PARTS.items():
            with server.lying(fault):
                assert_fails(b, name, ("ls", f"{server.url}/bucket/x.h5?signature=secret"))
                assert_fails(b, name, ("ls", "s3://bucket/x.h5"), keys)
        b.ok("ls", "s3://bucket/x.h5", environment=keys)


@check
def reads_of_mounts_end_at_hostile_answers(b):
    with hostile_server(b) as server:
        url, offset = f"{server.url}/bucket/x.h5", 8 * MIB
        with b.mounted(url, "--remote-timeout=1", "--cache-size=64M", "--readahead=128K") as m:
            for name, fault in {**PARTS, **LATE}.items():
                with server.lying(fault):
                    errno = outcome(m.path("data"), offset)
                    assert errno in ERRORS, (name, errno)
                time.sleep(0.05)
                assert outcome(m.path("data"), offset + 4 * MIB) == 0, f"{name}: the mount does not work afterwards"
                offset += 24 * MIB
            memory = daemon_memory(m.at)
            print(f"  {len(PARTS) + len(LATE)} faults, peak {memory} MiB")
            assert 0 < memory < 64 + MEMORY_MIB, memory
            log = m.log()
            assert "panic" not in log and "the answer cannot be used: its Content-Range is malformed" in log, log


@check
def containers_and_listings_end_at_hostile_answers(b):
    with Server({"f/x.h5": b"\x89HDF\r\n\x1a\n" + b"\0" * 1000}) as server:
        environment = {**b.environment, **S3.environment_at(server.url)}
        box = "iod+s3://bucket/box"
        b.ok("create", box, environment=environment)
        with b.mounted(box, "--read-write", environment=environment) as m:
            os.mkdir(m.path("g"))
            with open(m.path("g/a"), "wb") as f:
                f.write(os.urandom(MIB))
        is_list = lambda handler: "list-type=2" in handler.path
        for name, fault in LISTINGS.items():
            with server.lying(fault, is_list):
                text = assert_fails(b, name, ("ls", "s3://bucket/f/"), environment)
                assert "Range" not in text, (name, text)
                # The names of another listing are none of a container.
                status, text, memory = limited(b, ("ls", box), environment)
                assert status in (0, 3) and "panic" not in text and memory < MEMORY_MIB, (name, status, text, memory)
        # One request of the command is answered wrongly, and all after it; --long: each in turn.
        server.server.seen.clear()
        b.ok("cat", f"{box}:/g/a", environment=environment)
        count = len(server.server.seen)
        for i, (name, fault) in enumerate(PARTS.items()):
            for turn in range(count) if LONG else [i % count]:
                server.server.seen.clear()
                with server.lying(fault, lambda handler, turn=turn: len(handler.server.seen) > turn):
                    status, text, memory = limited(b, ("cat", f"{box}:/g/a"), environment)
                assert status in (0, 1, 3) and "panic" not in text and memory < MEMORY_MIB, (name, turn, status, text, memory)
        print(f"  {len(PARTS)} faults, {count} requests")


# ---- redirects

def redirect(url):
    return answer(302, {"Location": url, "Content-Length": 0})


@check
def redirects_give_nothing_away(b):
    with hostile_server(b) as server, hostile_server(b) as other:
        location = f"{other.url}/bucket/x.h5"
        with server.lying(redirect(location)):
            b.ok("ls", f"http://bob:hunter2@{server.host}/bucket/x.h5?signature=secret")
            assert other.server.seen
            for path, headers in other.server.seen:
                assert "secret" not in path and not {"referer", "authorization", "cookie"} & set(headers), (path, headers)
            other.server.seen.clear()
            keys = {**b.environment, **S3.environment_at(server.url), "AWS_SESSION_TOKEN": "token"}
            google = {"GOOGLE_BASE_URL": server.url, "GOOGLE_ALLOW_HTTP": "true", "GOOGLE_SKIP_SIGNATURE": "true"}
            azure = {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ENDPOINT": server.url, "AZURE_ALLOW_HTTP": "true",
                     "AZURE_SKIP_SIGNATURE": "true"}
            for url, environment in (("s3://bucket/x.h5", keys), ("s3://bucket/f/", keys), ("iod+s3://bucket/c", keys),
                                     ("gs://bucket/x.h5", google), ("az://bucket/x.h5", azure)):
                status, text, _ = limited(b, ("ls", url), {**b.environment, **environment})
                assert status == 3 and "302" in text and "redirects to other hosts are not followed" in text, (url, status, text)
            assert not other.server.seen, "a redirect to another host was followed"
        import check
        certificate = check.make_certificate(b.folder)
        with Server({"x.h5": b""}, certificate) as secure, secure.lying(redirect(location)):
            environment = {**b.environment, "SSL_CERT_FILE": certificate}
            status, text, _ = limited(b, ("ls", f"{secure.url}/bucket/x.h5"), environment)
            assert status == 3 and "from https to http" in text and not other.server.seen, (status, text)


# ---- the disk cache

def shared_file(byte):
    with tempfile.NamedTemporaryFile(suffix=".h5") as f:
        with h5py.File(f.name, "w") as h:
            h["d"] = np.full(4 * MIB, byte, "u1")
        return f.read()


def bytes_at(mount, name):
    with open(mount.path(name), "rb") as f:
        return f.read()


@check
def cached_bytes_are_of_one_store_and_user(b):
    """Servers with the same names, ETags and dates, and other bytes."""
    cache = os.path.join(b.folder, "cache-of-stores")
    options = ("--cache-dir", cache)
    with Server({"x.h5": shared_file(1)}) as foreign, Server({"x.h5": shared_file(2)}) as own:
        def keys(server, identity="AK"):
            return {**b.environment, **S3.environment_at(server.url), "AWS_ACCESS_KEY_ID": identity}

        def fetched(target, environment):
            own.server.seen.clear()
            with b.mounted(target, *options, environment=environment) as m:
                data = bytes_at(m, "d")
                time.sleep(0.5)
            return data, len(own.server.seen)

        for target, place in (("s3://bucket/x.h5", keys), ("{}/bucket/x.h5", lambda server: b.environment)):
            assert fetched(target.format(foreign.url), place(foreign))[0] == b"\1" * 4 * MIB
            data, most = fetched(target.format(own.url), place(own))
            assert data == b"\2" * 4 * MIB and most > 1, (target, most)
            data, least = fetched(target.format(own.url), place(own))
            assert data == b"\2" * 4 * MIB and least == 1, (target, least)
        assert fetched("s3://bucket/x.h5", keys(own, "other"))[1] > least, "another user has other files"
        # A container at another server, and at another prefix of the same one.
        b.ok("create", "iod+s3://bucket/box", environment=keys(own))
        with b.mounted("iod+s3://bucket/box", "--read-write", environment=keys(own)) as m, open(m.path("d"), "wb") as f:
            f.write(os.urandom(MIB))
        copy = {key: body for key, body in own.server.objects.items() if key.startswith("box/")}
        foreign.server.objects.update(copy)
        own.server.objects.update({f"else/{key}": body for key, body in copy.items()})
        packs = lambda server: sum("/d/" in path for path, _ in server.server.seen)
        for server, target in ((foreign, "box"), (own, "else/box"), (own, "box")):
            for is_cached in (False, True):
                server.server.seen.clear()
                with b.mounted(f"iod+s3://bucket/{target}", *options, environment=keys(server)) as m:
                    assert len(bytes_at(m, "d")) == MIB
                assert (packs(server) == 0) == is_cached, (target, is_cached, server.server.seen)
    for name in os.listdir(cache):
        assert re.fullmatch(r"[0-9a-f]{64}(-[0-9a-f]+-[0-9a-f]+)?\.h5dir-(blocks|extent)", name), name
