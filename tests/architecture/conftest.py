"""All files of the project are parsed once, and forgotten when the last of these tests is done."""

import gc
from collections.abc import Iterator

import pytest

from tests.architecture.sources import forget_trees


@pytest.fixture(scope="package", autouse=True)
def trees() -> Iterator[None]:
    """Nothing of them is garbage meanwhile: looking for it takes longer than the parsing."""
    gc.disable()
    yield
    gc.enable()
    forget_trees()
