"""Answers of the process that runs pipelines, as they come when it is killed."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headwater.core_log.foundation.errors import DecodeError, LogUnavailable
from headwater.pipelines.running.owner_client import LockHolder
from tests.raw_server import answering

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n"


@contextmanager
def answers(data: bytes) -> Iterator[LockHolder]:
    with answering(data) as address:
        yield LockHolder(address, "token")


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
