"""Checks of containers in object stores whose server denies, is missing or does not answer: messages and times."""

import contextlib
import http.client
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from containers import LONG, store, sync
from servers import S3, stopped

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


class Denying:
    """In front of an S3 server: answers requests of some methods with a status and a code."""

    def __init__(self, port, methods, status, code):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle_request(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.command in methods:
                    answered, headers = status, []
                    content = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode()
                else:
                    upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                    upstream.request(self.command, self.path, body, dict(self.headers))
                    answer = upstream.getresponse()
                    answered, content = answer.status, answer.read()
                    headers = [(k, v) for k, v in answer.getheaders() if k.lower() not in ("content-length", "transfer-encoding", "connection")]
                    upstream.close()
                self.send_response(answered)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_request

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def silent_port():
    """A port whose server accepts connections and answers nothing."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(64)
        yield s.getsockname()[1]


def refused(b, arguments, environment, *parts, lacks=()):
    done = b.run(*arguments, environment={**b.environment, **environment})
    text = done.stderr.decode()
    wrong = [part for part in parts if part not in text] + [part for part in (*lacks, "os error", "0x0") if part in text]
    assert done.returncode == 3 and not wrong and text.count("\n") == 1, (arguments, done.returncode, wrong, text)


@check
def errors_of_containers_name_the_status_and_a_remedy(b):
    at = os.path.join(b.folder, "refused")
    os.mkdir(at)
    with store(b, "moto") as server:
        keys, target = server.environment, server.target("errors")
        b.ok("create", target, environment={**b.environment, **keys})
        for command in ("create", "ls"):
            refused(b, (command, "iod+s3://nobucket/c"), keys, "iod+s3://nobucket/c", "404 (NoSuchBucket)", "no such bucket")
            refused(b, (command, "iod+s3://"), keys, "iod:FOLDER or iod+s3://BUCKET/PREFIX")
            refused(b, (command, "iod+s3://bucket"), keys, "a prefix of its bucket", "iod+s3://BUCKET/PREFIX")
            refused(b, (command, "iod:"), keys, "iod:FOLDER or iod+s3://BUCKET/PREFIX")
        refused(b, ("ls", server.target("none")), keys, "there is no container")
        refused(b, ("ls", "s3://nobucket/c"), keys, "404 (NoSuchBucket)", "no such bucket")
        refused(b, ("ls", "s3://bucket/errors"), keys, "404", "ends in a slash")
        with Denying(server.port, ("PUT", "DELETE"), 403, "AccessDenied") as denying:
            only_reading = S3.environment_at(denying.url)
            for command in (("create", server.target("new")), ("mount", "--read-write", target, at)):
                refused(b, command, only_reading, "403 (AccessDenied)", "denies writes", "permissions")
            b.ok("ls", target, environment={**b.environment, **only_reading})
        for code, text in (("SignatureDoesNotMatch", "check them"), ("AccessDenied", "check the credentials")):
            with Denying(server.port, ("GET", "HEAD", "PUT", "DELETE"), 403, code) as denying:
                refused(b, ("ls", target), S3.environment_at(denying.url), target, f"403 ({code})", text)
                refused(b, ("ls", "s3://bucket/x"), S3.environment_at(denying.url), f"403 ({code})", text)
        with_tls = {**keys, "AWS_ALLOW_HTTP": "false"}
        closed = S3.environment_at("http://127.0.0.1:1")
        none = {k: v for k, v in keys.items() if "KEY" not in k} | {"AWS_EC2_METADATA_DISABLED": "true"}
        for url in (target, "s3://bucket/x"):
            refused(b, ("ls", url), with_tls, "AWS_ALLOW_HTTP=true")
            refused(b, ("ls", url), closed, "cannot connect to the server", "refused")
        refused(b, ("create", target), closed, "cannot connect to the server", "refused")
        os.makedirs(os.path.join(b.folder, ".aws"), exist_ok=True)
        with open(os.path.join(b.folder, ".aws/process"), "w") as f:
            f.write("[profile process]\nregion = us-east-1\ncredential_process = /bin/true\n")
        profile = {"AWS_CONFIG_FILE": os.path.join(b.folder, ".aws/process"), "AWS_PROFILE": "process"}
        for url in (target, "s3://bucket/x"):
            refused(b, ("ls", url), none, "no credentials were found", "AWS_SKIP_SIGNATURE")
            refused(b, ("ls", url), {**none, **profile}, "credential_process", "which h5dir does not have")
    refused(b, ("ls", b.url("forbidden")), {}, "403", "its password", lacks=("AWS_", "--anonymous"))


def took(action):
    start = time.monotonic()
    try:
        action()
    except OSError as e:
        return time.monotonic() - start, e.errno
    return time.monotonic() - start, 0


def read(path):
    with open(path, "rb") as f:
        return f.read()


@check
def requests_of_containers_end_after_the_timeout(b):
    if not LONG:
        print("  left out: it measures time; --long runs it")
        return
    timeout = 4
    with store(b, "moto") as server:
        environment = {**b.environment, **server.environment}
        target = server.target("silent")
        b.ok("create", target, environment=environment)
        with b.mounted(target, "--read-write", environment=environment) as m:
            with open(m.path("a"), "wb") as f:
                f.write(os.urandom(3 << 20))
        with b.mounted(target, f"--remote-timeout={timeout}", environment=environment) as m:
            os.listdir(m.at)
            os.stat(m.path("a"))
            with stopped(server.process):
                seconds, errno = took(lambda: read(m.path("a")))
            print(f"  a read fails after {seconds:.1f} s with errno {errno}")
            assert errno == 110 and seconds <= 2.5 * timeout, (errno, seconds)
            assert len(read(m.path("a"))) == 3 << 20, "the mount works again"
        writing = b.mounted(target, "--read-write", f"--remote-timeout={timeout}", environment=environment)
        with contextlib.suppress(AssertionError), writing as m:
            with open(m.path("b"), "wb") as f:
                f.write(os.urandom(100_000))
            with stopped(server.process):
                seconds, errno = took(lambda: sync_or_raise(m.path("b")))
            print(f"  fsync fails after {seconds:.1f} s with errno {errno}")
        assert errno in (5, 110) and seconds <= 2.5 * timeout, (errno, seconds)


def sync_or_raise(path):
    error = sync(path)
    if error:
        raise OSError(error, "fsync")


@check
def a_creation_ends_when_the_server_does_not_answer(b):
    if not LONG:
        print("  left out: it measures time; --long runs it")
        return
    with silent_port() as port:
        start = time.monotonic()
        refused(b, ("create", "iod+s3://bucket/c"), S3.environment_at(f"http://127.0.0.1:{port}"), "does not answer", "iod+s3://bucket/c")
        seconds = time.monotonic() - start
    print(f"  'create' fails after {seconds:.1f} s")
    assert seconds <= 75
