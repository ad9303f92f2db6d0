"""An S3 stand-in for all tests of the files source that want one."""

from collections.abc import Iterator

import pytest

from headwater.core_log.s3.settings import S3Settings
from tests.moto_server import run_s3


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Settings]:
    with run_s3() as settings:
        yield settings
