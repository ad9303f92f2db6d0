"""A schema registry in memory that answers over HTTP as Confluent's does."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RegistryFake(ThreadingHTTPServer):
    """Numbers schemas from 1 on; `refusals` are statuses to answer with first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas: dict[int, str] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.refusals: list[int] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def schema(self, subject: str) -> Any:
        return json.loads(self.schemas[self.subjects[subject][-1]])


class _Handler(BaseHTTPRequestHandler):
    server: RegistryFake

    def register(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        subject = self.path.split("/")[2]
        numbers = {text: number for number, text in self.server.schemas.items()}
        number = numbers.setdefault(body["schema"], len(numbers) + 1)
        self.server.schemas[number] = body["schema"]
        self.server.subjects.setdefault(subject, []).append(number)
        self._answer({"id": number})

    def look_up(self) -> None:
        asked = re.match(r"/schemas/ids/(\d+)", self.path)
        if asked is not None and int(asked[1]) in self.server.schemas:
            self._answer({"schema": self.server.schemas[int(asked[1])]})
        else:
            self._answer({"error_code": 40403}, status=404)

    do_POST, do_GET = register, look_up  # noqa: N815 - so the server calls them

    def _answer(self, document: Any, status: int = 200) -> None:
        self.server.requests.append((self.path, self.headers.get("Authorization")))
        if self.server.refusals:
            status = self.server.refusals.pop(0)
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A test's output is no place for it."""


@contextmanager
def running_registry() -> Iterator[RegistryFake]:
    server = RegistryFake()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
