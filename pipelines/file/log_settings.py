"""The keys of a pipeline file under `log`, which every command reads that is given a file."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from headwater.core_log.foundation.settings import (
    DurationMs,
    HostPorts,
    HttpAddress,
    SecuritySettings,
    YamlSettings,
    unless,
)
from headwater.core_log.foundation.units import DURATION, SIZE, parse_duration_ms, parse_size_bytes
from headwater.core_log.rows.settings import ValueFormat

# In YAML's spelling, which is how the manual shows defaults.
FOREVER: Any = "forever"
UNLIMITED: Any = "unlimited"


def check_format(text: str) -> str:
    """A template may name only what it is filled with."""
    strange = set(re.findall(r"\{([^{}]*)\}", text)) - {"pipeline", "schema", "table"}
    if strange or "{table}" not in text:
        raise ValueError("a topic is made of {pipeline}, {schema} and {table}, at least the last")
    return text


class Retention(YamlSettings):
    """How long topics keep what compaction does not rule; both bounds hold at once."""

    time_ms: Annotated[
        int | None,
        unless("forever", parse_duration_ms),
        WithJsonSchema({"type": "string", "pattern": rf"^(forever|{DURATION})$"}),
    ] = Field(FOREVER, examples=["30d"])
    """Age at which records may go: a duration, or `forever`."""
    size_bytes: Annotated[
        int | None,
        unless("unlimited", parse_size_bytes),
        WithJsonSchema({"type": "string", "pattern": rf"^(unlimited|{SIZE})$"}),
    ] = Field(UNLIMITED, examples=["50GiB"])
    """Size of a partition beyond which its oldest records go: a size, or `unlimited`."""


class LogSettings(YamlSettings):
    """The log between the source and the sinks: our own in this process, or a Kafka cluster."""

    type: Literal["embedded", "kafka"] = "embedded"
    """`embedded`: the log is kept by whoever runs the pipeline; `kafka`: by a cluster."""
    path: Path = Path("data")
    """Directory of the embedded log, relative to this file; pipelines with the same one share it
    and its owner."""
    listen: str = Field("127.0.0.1:0", pattern=r"^(\[[0-9a-fA-F:]+\]|[^:\s]+):\d{1,5}$")
    """HOST:PORT at which the embedded log speaks Kafka's protocol; port 0 takes a free one, which
    `endpoint.json` in the directory tells."""
    fsync: Literal["group", "never"] = "group"
    """`group`: nothing counts as written before it is on disk; `never`: the kernel decides when."""
    bootstrap: HostPorts = Field((), examples=[["kafka-1:9092", "kafka-2:9092"]])
    """HOST:PORT of some brokers of the cluster, for `type: kafka`."""
    security: SecuritySettings = SecuritySettings()
    """How that cluster is spoken to; openly and as nobody, unless it is said otherwise."""
    topic: Annotated[str, AfterValidator(check_format)] = "{pipeline}.{schema}.{table}"
    """How a table's topic is called; `{schema}.` is left out for tables without a schema."""
    partitions: Literal["auto"] | Annotated[int, Field(ge=1, le=8192)] = "auto"
    """Partitions of each topic that is made. `auto`: one, and for a table that has more than ten
    million rows just then one for each ten million, up to eight. A topic keeps what it has; another
    number for one that exists needs `run --migrate`."""
    cleanup: Literal["compact", "delete", "compact,delete"] = "compact"
    """Kafka's cleanup.policy: `compact` keeps the newest state of every key, `delete` keeps
    everything until its retention ends."""
    history_ms: DurationMs = 7 * 86_400_000
    """How far back compaction leaves every single change: the reach of rebuilds as of a time."""
    delete_retention_ms: DurationMs = 7 * 86_400_000
    """How long compaction leaves deletes in place; a sink that sleeps longer must start afresh."""
    retention: Retention = Retention()
    """How long records are kept where `cleanup` has `delete`."""
    compression: Literal["zstd", "lz4", "gzip", "none"] = "zstd"
    """How record batches are compressed."""
    value: ValueFormat = "debezium-json"
    """How rows are written: Debezium's envelope or the flat row, as JSON or Avro."""
    has_schemas: bool = Field(False, alias="schemas")
    """JSON only: every record carries Kafka Connect's schema of itself, which makes it large."""
    registry: HttpAddress = Field("", examples=["http://localhost:8081"])
    """Address of the schema registry for the Avro formats."""
