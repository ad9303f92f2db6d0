"""One Spark for all tests of a run, since it takes seconds to start."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headwater.sinks.spark.session import SessionChoices, close_session, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """By the choices that a sink has when nothing is said: others in this process share it."""
    yield open_session(SessionChoices())
    close_session()
