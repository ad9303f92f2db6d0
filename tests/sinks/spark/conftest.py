"""A bucket store in a process of its own: what holds the interpreter's lock while it waits for an
answer must not wait for itself."""

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

from headwater.core_log.s3.settings import S3Settings
from tests.moto_server import run_s3

PROCESSES = multiprocessing.get_context("spawn")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Settings]:
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    yield ours.recv()
    ours.send("enough")
    process.join()


def serve(pipe: Connection) -> None:
    with run_s3() as settings:
        pipe.send(settings)
        pipe.recv()
