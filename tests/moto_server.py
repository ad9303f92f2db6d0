"""A stand-in for S3 on a free loopback port."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from headwater.core_log.objects.settings import S3Settings

PROCESSES = multiprocessing.get_context("spawn")


@contextmanager
def run_s3() -> Iterator[S3Settings]:
    """Runs in a process of its own: a client that holds the interpreter's lock while it waits for
    an answer must not wait for itself."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield S3Settings.model_validate(
            {
                "endpoint": ours.recv(),
                "region": "us-east-1",
                "access_key": "test",
                "secret_key": "canary-secret",
                "path_style": True,
            }
        )
    finally:
        ours.send("enough")
        process.join()


def _serve(pipe: Connection) -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    pipe.send(f"http://{host}:{port}")
    pipe.recv()
    server.stop()


def client_of(settings: S3Settings) -> Any:
    """Another client of it, for what a test does behind our back."""
    import boto3

    assert settings.secret_key is not None
    return boto3.client(
        "s3",
        endpoint_url=settings.endpoint,
        region_name=settings.region,
        aws_access_key_id="test",
        aws_secret_access_key=settings.secret_key.get_secret_value(),
    )
