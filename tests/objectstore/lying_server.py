"""An S3 server of a few lines that lies about If-None-Match. Objects are in memory.

    server = Server("honest")   # creates once
    server = Server("ignore")   # overwrites, like servers that do not know the header
    server = Server("race")     # looks first and writes later: of concurrent creators several win
    server = Server("always")   # says 412 to each creation, and keeps the first"""

import re
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Seconds between looking and writing: a file system needs about as long.
GAP = 0.002


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command == "HEAD":
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            return
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def key(self):
        return urllib.parse.unquote(self.path.split("?")[0]).split("/", 2)[2]

    def do_PUT(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        key, objects, mode = self.key(), self.server.objects, self.server.mode
        once = self.headers.get("If-None-Match") == "*" and mode != "ignore"
        if mode == "race":
            exists = key in objects
            time.sleep(GAP)
            if once and exists:
                return self.answer(412)
            objects[key] = body
            return self.answer(200, headers=[("ETag", '"1"')])
        with self.server.lock:
            if once and key in objects:
                return self.answer(412)
            objects[key] = body
        self.answer(412 if once and mode == "always" else 200, headers=[("ETag", '"1"')])

    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        if "list-type" in query:
            return self.list(query)
        body = self.server.objects.get(self.key())
        if body is None:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        headers = [("ETag", '"1"'), ("Last-Modified", "Tue, 24 Nov 2026 00:00:00 GMT")]
        given = self.headers.get("Range", "")
        if not given:
            return self.answer(200, body, headers)
        first, _, last = given.removeprefix("bytes=").partition("-")
        part = body[int(first):int(last) + 1]
        if not part:
            return self.answer(416)
        headers.append(("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(body)}"))
        self.answer(206, part, headers)

    do_HEAD = do_GET

    def do_DELETE(self):
        self.server.objects.pop(self.key(), None)
        self.answer(204)

    def do_POST(self):
        """Removes several objects."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        keys = re.findall("<Key>([^<]*)</Key>", body)
        for key in keys:
            self.server.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self.answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), [("Content-Type", "application/xml")])

    def list(self, query):
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        keys = sorted(k for k in self.server.objects if k.startswith(prefix) and k > after)
        entries = "".join(f"<Contents><Key>{k}</Key><LastModified>2026-11-24T00:00:00.000Z</LastModified><ETag>\"1\"</ETag>"
                          f"<Size>{len(self.server.objects[k])}</Size></Contents>" for k in keys)
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated><KeyCount>{len(keys)}</KeyCount>{entries}</ListBucketResult>"
        self.answer(200, body.encode(), [("Content-Type", "application/xml")])


class Server:
    def __init__(self, mode):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.objects, self.server.mode, self.server.lock = {}, mode, threading.Lock()
        self.objects = self.server.objects
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
