"""A source and a sink with keys of every kind, to hold pipeline files against."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, SecretStr

from headwater.connectors.source import SourceContext
from headwater.core_log.foundation.settings import (
    DurationMs,
    PatternTexts,
    SizeBytes,
    Texts,
    YamlSettings,
)
from headwater.core_log.model.table_schema import TableSchema


class SlotSettings(YamlSettings):
    """The place in the source's history."""

    name: str = Field("", pattern=r"^[a-z0-9_]{0,63}$")
    """Its name."""
    max_retained_bytes: SizeBytes = 20 << 30
    """How much it may keep back."""


class SnapshotSettings(YamlSettings):
    """What is read first."""

    mode: Literal["initial", "never"] = "initial"
    """Whether anything is."""
    parallel: int = Field(1, ge=1, le=64)
    """How many tables at once."""


class MadeUpSourceSettings(YamlSettings):
    """Reads nothing."""

    url: SecretStr = Field(examples=["${env:SHOP_URL}"])
    """Where from."""
    tables: PatternTexts = ("*",)
    """Which tables."""
    keys: dict[str, Texts] = Field({})
    """Keys of tables that have none."""
    slot: SlotSettings = SlotSettings()
    """The place in the source's history."""
    snapshot: SnapshotSettings = SnapshotSettings()
    """What is read first."""
    heartbeat_ms: DurationMs = 10_000
    """How often it says that it lives."""
    decimal: Literal["string", "precise"] = "string"
    """How decimals are written."""


class MadeUpSource:
    """Exactly nothing is read, once."""

    Settings = MadeUpSourceSettings

    def __init__(self, settings: MadeUpSourceSettings, context: SourceContext) -> None:
        self._url = settings.url.get_secret_value()

    async def discover(self) -> Sequence[TableSchema]:
        """Breaks as a careless driver does: with its address in its words."""
        raise RuntimeError(f"no answer from {self._url}")


class MadeUpSinkSettings(YamlSettings):
    """Writes nothing."""

    path: str = Field(examples=["./lake"])
    """Where to."""
    commit_every_ms: DurationMs = 10_000
    """How long changes are gathered."""
    tables: dict[str, SnapshotSettings] = Field({})
    """Per pattern of tables how they are kept."""


class MadeUpSink:
    """Exactly nothing is written, once."""

    Settings = MadeUpSinkSettings


SOURCE = "tests.pipelines.fake_components:MadeUpSource"
SINK = "tests.pipelines.fake_components:MadeUpSink"
