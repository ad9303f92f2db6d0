"""Every test of the decoders runs in plain Python and compiled."""

import pytest

from connectors.postgres.wal.kernels import Kernels, kernels_of
from core_log.speed import Speed


@pytest.fixture(params=["python", "fast"])
def speed(request: pytest.FixtureRequest) -> Speed:
    if request.param == "fast":
        pytest.importorskip("numba")
        return "fast"
    return "python"


@pytest.fixture
def kernels(speed: Speed) -> Kernels:
    return kernels_of(speed)
