"""Answers of the process that runs pipelines, as they come when it is killed."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headwater.core_log.foundation.errors import DecodeError, LogUnavailable
from headwater.pipelines.running.owner_client import LockHolder

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n"


@contextmanager
def answers(data: bytes) -> Iterator[LockHolder]:
    """A process that answers one request with `data` and is gone."""

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        host, port = listener.getsockname()
        yield LockHolder(f"{host}:{port}", "token")
        thread.join()


@pytest.mark.parametrize("sent", [b"", HEAD[:10], HEAD[:30], HEAD, HEAD + b'{"tasks": '])
def test_an_answer_that_a_kill_cuts_is_that_of_a_process_that_is_gone(sent: bytes) -> None:
    with answers(sent) as owner, pytest.raises(LogUnavailable):
        owner.status()


def test_a_whole_answer_that_is_no_json_is_of_another_program() -> None:
    with answers(HEAD + b"<html>not ours</html>"[:20]) as owner, pytest.raises(DecodeError):
        owner.status()


def test_a_whole_answer_is_read() -> None:
    with answers(HEAD + b'{"is_stopping":true}') as owner:
        assert owner.status() == {"is_stopping": True}
