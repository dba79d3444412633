#!/usr/bin/env python3
"""An HTTP server of ranges of files, with counters, latency and faults.

    range_server.py FOLDER [PEM]    prints its port; ends when its standard input is closed

With PEM, a certificate and its key, it speaks TLS.

GET /NAME answers with the file, or a range of it. GET /_stats returns counters as JSON and resets
them. POST /_control sets fields of Control by JSON. Server starts one and controls it.
"""

import base64
import http.client
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Control:
    """What the server does, and what it did."""

    def __init__(self):
        self.lock = threading.Lock()
        # Seconds before each answer.
        self.latency = 0.0
        # Answers still to come that fail: with a status, cut off, without an answer, or never.
        self.status, self.status_count = 503, 0
        self.cut_count = self.drop_count = self.hang_count = 0
        self.etags, self.etag_suffix = True, ""
        self.if_match_works = True
        self.ranges = True
        self.user = None
        self.reset()

    def reset(self):
        self.requests = self.bytes = self.largest = self.now = self.most = 0
        self.paths = []

    def stats(self):
        with self.lock:
            found = {key: getattr(self, key) for key in ("requests", "bytes", "largest", "most", "paths")}
            self.reset()
            return found

    def take(self, name):
        """True if a fault is due, which then is one fewer."""
        with self.lock:
            left = getattr(self, name)
            setattr(self, name, max(0, left - 1))
            return left > 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and a short body are one packet.
    wbufsize = 1 << 16

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for key, value in headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        control = self.server.control
        fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with control.lock:
            for key, value in fields.items():
                setattr(control, key, value)
        self.answer(200)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        control = self.server.control
        path = urllib.parse.unquote(self.path.split("?")[0])
        if path == "/_stats":
            return self.answer(200, json.dumps(control.stats()).encode())
        with control.lock:
            control.requests += 1
            control.now += 1
            control.most = max(control.most, control.now)
            control.paths.append([self.path, self.headers.get("Range")])
        try:
            self.object(control, path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with control.lock:
                control.now -= 1

    def object(self, control, path):
        if control.latency:
            time.sleep(control.latency)
        if control.take("hang_count"):
            time.sleep(60)
        if control.take("drop_count"):
            self.close_connection = True
            return
        if control.take("status_count"):
            return self.answer(control.status, b"<Error><Code>AsTheTestWants</Code></Error>")
        if control.user and self.headers.get("Authorization") != "Basic " + base64.b64encode(control.user.encode()).decode():
            return self.answer(401)
        if path == "/forbidden":
            return self.answer(403)
        try:
            file = open(os.path.join(self.server.folder, path.lstrip("/")), "rb")
        except OSError:
            return self.answer(404)
        with file:
            self.range(control, file)

    def range(self, control, file):
        status = os.fstat(file.fileno())
        etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}{control.etag_suffix}"'
        headers = [("Accept-Ranges", "bytes"), ("Last-Modified", formatdate(status.st_mtime, usegmt=True))]
        if control.etags:
            headers.append(("ETag", etag))
        wanted = self.headers.get("If-Match")
        if wanted and (wanted != etag or not control.if_match_works):
            return self.answer(412)
        first, last, code = 0, status.st_size - 1, 200
        given = self.headers.get("Range", "")
        if given.startswith("bytes=") and control.ranges:
            start, _, end = given[6:].partition("-")
            if start:
                first, last = int(start), min(int(end) if end else last, last)
            else:
                first = max(0, status.st_size - int(end))
            if first >= status.st_size:
                return self.answer(416)
            code = 206
            headers.append(("Content-Range", f"bytes {first}-{last}/{status.st_size}"))
        length = last - first + 1
        self.send_response(code)
        for key, value in headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.flush()
        is_cut = control.take("cut_count")
        sent = length // 2 if is_cut else length
        with control.lock:
            control.bytes += sent
            control.largest = max(control.largest, sent)
        while sent > 0:
            if self.server.sendfile:
                done = os.sendfile(self.connection.fileno(), file.fileno(), first, min(sent, 1 << 20))
            else:
                done = self.wfile.write(os.pread(file.fileno(), min(sent, 1 << 20), first))
            if done == 0:
                break
            first, sent = first + done, sent - done
        if is_cut:
            self.close_connection = True


class Server:
    """A server process for FOLDER."""

    def __init__(self, folder, certificate=None):
        command = [sys.executable, os.path.abspath(__file__), folder] + ([certificate] if certificate else [])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body)
        answer = connection.getresponse().read()
        connection.close()
        return answer

    def stats(self):
        return json.loads(self.ask("GET", "/_stats"))

    def set(self, **fields):
        self.ask("POST", "/_control", json.dumps(fields))

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


class ManyConnections(ThreadingHTTPServer):
    daemon_threads = True
    # The system copies the file; not through TLS.
    sendfile = True
    request_queue_size = 128

    def handle_error(self, *_):
        """A client that is gone is no error."""


def main():
    server = ManyConnections(("127.0.0.1", 0), Handler)
    server.folder, server.control = sys.argv[1], Control()
    if len(sys.argv) > 2:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[2])
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.sendfile = False
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
