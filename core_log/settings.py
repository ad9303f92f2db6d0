"""Base class of every YAML-facing model, and the settings of the log itself."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Frozen, closed, and documented: every field carries a docstring."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TopicSettings(Settings):
    """A topic as it should be; `Log.ensure_topic` creates it or checks that it already is."""

    name: str = Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")
    """Topic name: letters, digits, dot, underscore and dash, at most 249 of them."""
    partitions: int = Field(1, ge=1)
    """How many partitions."""
    config: dict[str, str] = {}
    """Kafka's topic configuration by its Kafka names, such as `cleanup.policy`."""


class BrokerSettings(Settings):
    """One broker of the log."""

    data: Path = Path("data")
    """Directory that holds everything the broker keeps; one process owns it at a time."""
    listen: str = "127.0.0.1:9092"
    """HOST:PORT of the Kafka listener; port 0 takes a free one, written to `endpoint.json`."""
    node_id: int = Field(1, ge=0)
    """This broker's number in its cluster."""
    fsync: Literal["group", "never"] = "group"
    """`group`: nothing is acknowledged (acks=all) or readable before it is on disk."""
    flush_wait_ms_max: int = Field(5, ge=0)
    """How long records written with acks 0 or 1 may wait for the next sync."""
    auto_create_topics: bool = True
    """Whether a client that asks for an unknown topic creates it."""
    default_partitions: int = Field(1, ge=1)
    """Partitions of topics that are created without saying how many."""
    internal_partitions: int = Field(16, ge=1)
    """Partitions of `__consumer_offsets` and `__transaction_state`."""
    request_bytes_max: int = Field(100 << 20, ge=1 << 16)
    """Largest request frame accepted; a larger one closes its connection before any allocation."""
    connections_max: int = Field(2048, ge=1)
    """Connections served at once; further ones are closed at accept."""
    group_rebalance_delay_ms: int = Field(0, ge=0)
    """How long a new, empty group waits for more members before its first rebalance."""
    group_session_timeout_ms_min: int = Field(6_000, ge=1)
    """Shortest session timeout a member of a group may ask for."""
    housekeeping_interval_ms: int = Field(30_000, ge=10)
    """How often retention, compaction and expired transactions are looked at."""
    config: dict[str, str] = {}
    """Defaults of topic configuration by Kafka's topic names, such as `segment.bytes`."""
