"""An HTTP proxy in front of an S3 server, which does harm to one request.

    proxy = Proxy(port_of_the_server)
    proxy.arm(3, "lose_reply")     # the fourth request from now on
    proxy.requests                 # (method, path, status) since then
    proxy.close()

It runs in a thread of its own."""

import asyncio
import threading

# What becomes of the request.
FAULTS = {
    "drop": "the connection ends before the server gets it",
    "lose_reply": "the server acts, and the connection ends",
    "delay": "the server gets it after half a second",
    "late": "the client times out, then the server gets it",
    "duplicate": "the server gets it twice, the second answer counts",
    "refuse": "503, the server does not get it",
    "overload": "429, the server does not get it",
    "conflict": "409 for a conditional PUT, which the server does not get",
    "fail_after": "the server acts, the answer is 500",
    "truncate": "half of the body of the answer comes, or half of its headers",
    "garbage": "the answer is no HTTP",
}


class Proxy:
    def __init__(self, port, client_timeout=2.0):
        self.upstream, self.client_timeout = port, client_timeout
        self.index = self.fault = None
        self.requests, self.hit = [], None
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        self.thread = threading.Thread(target=self.serve, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait(10)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def arm(self, index, fault):
        """Counts from 0 again; the request `index` suffers `fault`; None: none does."""
        assert fault is None or fault in FAULTS
        self.requests, self.hit, self.fault, self.index = [], None, fault, index

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)

    def serve(self, ready):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.connection, "127.0.0.1", 0, limit=1 << 20))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self.loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.05))

    async def connection(self, reader, writer):
        try:
            while request := await read_message(reader):
                if not await self.request(request, writer):
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def request(self, request, writer):
        """Answers one request; False ends the connection."""
        method, path = request.split(b" ", 2)[:2]
        entry = [method.decode(), path.decode(), None]
        number = len(self.requests)
        self.requests.append(entry)
        fault = self.fault if number == self.index else None
        if fault == "conflict" and b"\r\nif-none-match:" not in request.split(b"\r\n\r\n")[0].lower():
            fault = None
        if fault:
            self.hit = entry
        if fault == "drop":
            return False
        if fault in ("refuse", "overload", "conflict"):
            status = {"refuse": b"503 Service Unavailable", "overload": b"429 Too Many Requests", "conflict": b"409 Conflict"}[fault]
            entry[2] = int(status[:3])
            await send(writer, simple(status))
            return True
        if fault == "delay":
            await asyncio.sleep(0.5)
        if fault == "late":
            await asyncio.sleep(self.client_timeout + 0.5)
        if fault == "duplicate":
            await self.forward(request)
        answer = await self.forward(request)
        entry[2] = int(answer.split(b" ", 2)[1])
        if fault in ("lose_reply", "late"):
            return False
        if fault == "fail_after":
            entry[2] = 500
            answer = simple(b"500 Internal Server Error")
        if fault == "truncate":
            head, _, body = answer.partition(b"\r\n\r\n")
            await send(writer, head + b"\r\n\r\n" + body[:len(body) // 2] if body else head[:len(head) // 2])
            return False
        if fault == "garbage":
            await send(writer, b"\0\1\2 no HTTP\r\n\r\n")
            return False
        await send(writer, answer)
        return True

    async def forward(self, request):
        """The answer of the server, whole. Each request has a connection of its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream, limit=1 << 20)
        try:
            await send(writer, request)
            return await read_message(reader, request.startswith(b"HEAD "))
        finally:
            writer.close()


def simple(status):
    body = b"<Error><Code>AsTheTestWants</Code></Error>"
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


async def send(writer, data):
    writer.write(data)
    await writer.drain()


async def read_message(reader, is_head=False):
    """One request or answer with its body; empty at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    headers = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    if is_head or head.split(b" ", 2)[1] in (b"204", b"304"):
        return head
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        body = b""
        while True:
            size = await reader.readuntil(b"\r\n")
            part = await reader.readexactly(int(size.split(b";")[0], 16) + 2)
            body += size + part
            if int(size.split(b";")[0], 16) == 0:
                return head + body
    return head + await reader.readexactly(int(headers.get(b"content-length", 0)))
