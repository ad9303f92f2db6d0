"""A stand-in for S3 on a free loopback port."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwater.core_log.s3.settings import S3Settings


@contextmanager
def run_s3() -> Iterator[S3Settings]:
    """How its buckets are reached."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Settings.model_validate(
            {
                "endpoint": f"http://{host}:{port}",
                "region": "us-east-1",
                "access_key": "test",
                "secret_key": "canary-secret",
                "path_style": True,
            }
        )
    finally:
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
