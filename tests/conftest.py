"""What holds for every test: how much Hypothesis tries, and where Apache Kafka is needed."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.databases import Guest

settings.register_profile("short", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("short"), max_examples=2_000)
settings.load_profile(os.environ.get("HEADWATER_BUDGET", "short"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make compat` brings Apache Kafka; without it these are left out, because they cannot run."""
    if {"HEADWATER_KAFKA", "HEADWATER_KAFKA_JARS"} & os.environ.keys():
        return
    beside = [item for item in items if item.get_closest_marker("kafka")]
    items[:] = [item for item in items if item not in beside]
    if beside:
        config.hook.pytest_deselected(items=beside)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL that all tests of a run share, each in a database of its own."""
    from tests.databases import running_postgres

    with running_postgres() as address:
        yield address


@pytest.fixture
def guest(postgres: str) -> "Iterator[Guest]":
    """A database of its own, and a role that may read and replicate and no more."""
    from tests.databases import guest_in

    with guest_in(postgres, f"guest_{uuid4().hex}") as guest:
        yield guest


@pytest.fixture(scope="session")
def mariadb() -> Iterator[str]:
    from tests.databases import running_mariadb

    with running_mariadb() as address:
        yield address
