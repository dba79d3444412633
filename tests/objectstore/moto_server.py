"""Moto as a server whose conditional requests are atomic: python3 moto_server.py -H HOST -p PORT

Moto looks for an object, then stores it, in threads. On a machine under load two writers can create one
object, and h5dir refuses such a store."""

import threading

import moto.server


class Atomic(moto.server.DomainDispatcherApplication):
    conditional = threading.Lock()

    def __call__(self, environ, start_response):
        if environ["REQUEST_METHOD"] in ("GET", "HEAD") or not {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"} & environ.keys():
            return super().__call__(environ, start_response)
        with self.conditional:
            return super().__call__(environ, start_response)


if __name__ == "__main__":
    moto.server.DomainDispatcherApplication = Atomic
    moto.server.main()
