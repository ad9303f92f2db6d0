"""Becomes the conftest of aiokafka's tests: a broker that runs already, not one in Docker."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest_plugins = ["tests.own_fixtures"]
IMAGE = "headwater:4.3.0"
"""The tests read the version of Kafka from the name of the image."""


def pytest_configure(config: pytest.Config) -> None:
    config.option.docker_image = IMAGE


@pytest.fixture(scope="session")
def docker() -> None:
    """Nothing is started."""


@pytest.fixture(scope="session")
def kafka_image() -> str:
    return IMAGE


@pytest.fixture(scope="session")
def ssl_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without certificates: the broker has no TLS."""
    return tmp_path_factory.mktemp("ssl")


@pytest.fixture(scope="session")
def kafka_server() -> SimpleNamespace:
    address = os.environ["HEADWATER_BROKER"]
    host, _, port = address.rpartition(":")
    return SimpleNamespace(
        host=host,
        port=int(port),
        hosts=[address],
        ssl_port=0,
        sasl_plain_port=0,
        sasl_ssl_port=0,
        container=None,
    )


@pytest.fixture(scope="class")
def acl_manager() -> None:
    """There is no authorization."""


@pytest.fixture(scope="class")
def kafka_config() -> None:
    """There are no users."""


@pytest.fixture(scope="class")
def kerberos_utils() -> None:
    """There is no Kerberos."""
