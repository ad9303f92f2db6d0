"""Every test of the decoders runs in plain Python and compiled, for few rows and for many."""

import pytest

from headwater.connectors.postgres.wal.kernels import Kernels, kernels_of
from headwater.core_log.foundation.speed import Speed


@pytest.fixture(params=["python", "fast"])
def speed(request: pytest.FixtureRequest) -> Speed:
    if request.param == "fast":
        pytest.importorskip("numba")
        return "fast"
    return "python"


@pytest.fixture(params=[{}, {"few_rows": 0}], ids=["few", "many"])
def kernels(speed: Speed, request: pytest.FixtureRequest) -> Kernels:
    """As they are, and as they are for more rows than a test has."""
    return kernels_of(speed, **request.param)
