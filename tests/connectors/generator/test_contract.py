"""The generator keeps the contract of sources."""

import pytest

from headwater.connectors.generator.settings import GeneratorSettings
from headwater.connectors.generator.source import GeneratorSource
from headwater.connectors.source import Source
from tests.contract.source_suite import SourceSuite, context


class GeneratorGround:
    """There is nothing outside: the history is made where it is told."""

    is_exact = True

    def __init__(self, settings: GeneratorSettings) -> None:
        self._settings = settings
        assert settings.total is not None
        self.change_count = settings.total

    def open(self) -> Source:
        return GeneratorSource(self._settings, context())

    def outside(self) -> object:
        return None

    def held(self) -> object:
        return None


class TestGenerator(SourceSuite):
    @pytest.fixture(params=["shop", "wide", "wide in large transactions"])
    def ground(self, request: pytest.FixtureRequest) -> GeneratorGround:
        shapes: dict[str, dict[str, object]] = {
            "shop": {"total": 4_025 + 29 * 70},
            "wide": {"mode": "wide", "total": 5_000, "updates": 0.3, "deletes": 0.2},
            "wide in large transactions": {
                "mode": "wide",
                "total": 7_000,
                "transaction_rows": 3_000,
                "deletes": 0.1,
            },
        }
        chosen: dict[str, object] = {"size": 1_000, "rate": 0, "batch_rows": 700}
        return GeneratorGround(GeneratorSettings.model_validate(chosen | shapes[request.param]))
