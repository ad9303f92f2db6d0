"""A server of one connection that sends given bytes and is gone, as a process that is killed."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def answering(data: bytes) -> Iterator[str]:
    """Its address, HOST:PORT."""

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        host, port = listener.getsockname()
        yield f"{host}:{port}"
        thread.join()
