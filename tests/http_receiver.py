"""A server that keeps what it is sent."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message


@dataclass(frozen=True)
class Received:
    path: str
    headers: Message
    body: bytes


@dataclass(frozen=True)
class HttpReceiver:
    address: str
    received: list[Received] = field(default_factory=list)


@contextmanager
def receiving() -> Iterator[HttpReceiver]:
    """Answers every POST with 200."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def take(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.received.append(Received(self.path, self.headers, body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

        do_POST = take  # noqa: N815 - so the server calls it

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = HttpReceiver(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
