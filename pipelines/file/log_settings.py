"""The pipeline files of a path, and their keys under `log`, which every command reads."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import (
    BrokerSettings,
    DurationMs,
    HostPorts,
    HttpAddress,
    ListenerSettings,
    SecuritySettings,
    YamlSettings,
    unless,
)
from headwater.core_log.foundation.units import DURATION, SIZE, parse_duration_ms, parse_size_bytes
from headwater.core_log.rows.settings import ValueFormat

ADDRESS = r"(\[[0-9a-fA-F:]+\]|[^:\s]+):\d{1,5}"

# In YAML's spelling, which is how the manual shows defaults.
FOREVER: Any = "forever"
UNLIMITED: Any = "unlimited"
TEN_MINUTES: Any = "10m"

SUFFIXES = (".yaml", ".yml")
FILES_MAX = 1_000


def check_format(text: str) -> str:
    """Checks that a template has only its known placeholders."""
    strange = set(re.findall(r"\{([^{}]*)\}", text)) - {"pipeline", "schema", "table"}
    if strange or "{table}" not in text:
        raise ValueError("a topic is made of {pipeline}, {schema} and {table}, at least the last")
    return text


class Retention(YamlSettings):
    """How long topics without compaction keep records; both bounds apply."""

    time_ms: Annotated[
        int | None,
        unless("forever", parse_duration_ms),
        WithJsonSchema({"type": "string", "pattern": rf"^(forever|{DURATION})$"}),
    ] = Field(FOREVER, examples=["30d"])
    """Age at which records may be removed: a duration, or `forever`."""
    size_bytes: Annotated[
        int | None,
        unless("unlimited", parse_size_bytes),
        WithJsonSchema({"type": "string", "pattern": rf"^(unlimited|{SIZE})$"}),
    ] = Field(UNLIMITED, examples=["50GiB"])
    """Size of a partition above which its oldest records are removed: a size, or `unlimited`."""


class ClusterSettings(YamlSettings):
    """The embedded log as one broker of a cluster."""

    join: HostPorts = Field((), examples=[["127.0.0.1:9192", "127.0.0.1:9292"]])
    """HOST:PORT of other brokers of the cluster; an empty directory waits until one of them
    answers. Without any, the directory begins a cluster that others can join."""
    node_id: int = Field(1, ge=0)
    """Number of this broker in the cluster, different on each machine: `${env:NODE_ID}`, for
    example."""
    advertise: str = Field("", pattern=rf"^({ADDRESS})?$")
    """HOST:PORT that clients and other brokers are told to connect to; by default that of
    `log.listen`."""
    secret: Path | None = Field(None, examples=["cluster.secret"])
    """File with the secret by which the brokers of a cluster know each other, made by `headwater
    cluster secret`; needed beyond loopback, and where clients authenticate."""
    replace_voters_after_ms: Annotated[
        Annotated[int, Field(ge=3_000)] | None,
        unless("never", parse_duration_ms),
        WithJsonSchema({"type": "string", "pattern": rf"^(never|{DURATION})$"}),
    ] = Field(TEN_MINUTES, examples=["1h", "never"])
    """How long a voter of the metadata quorum may be away, at least 3 s, before another live broker
    votes in its place. `never` leaves that to you. That of the broker that leads the quorum
    counts."""
    security: ListenerSettings = ListenerSettings()
    """TLS of this broker, and authentication of its clients."""


class LogSettings(YamlSettings):
    """The log between the source and the sinks: embedded in this process, or a Kafka cluster."""

    type: Literal["embedded", "kafka"] = "embedded"
    """`embedded`: a process of the pipeline keeps the log; `kafka`: a cluster keeps it."""
    path: Path = Path("data")
    """Directory of the embedded log, relative to this file; pipelines with the same one share it
    and its owner."""
    listen: str = Field("127.0.0.1:0", pattern=f"^{ADDRESS}$")
    """HOST:PORT at which the embedded log serves Kafka's protocol; port 0 takes a free one, which
    is in `endpoint.json` of the directory. Beyond loopback only as part of a cluster."""
    cluster: ClusterSettings | None = None
    """The embedded log is one broker of a cluster, and runs on its brokers share their tasks.
    Default: it is alone, and has its pipelines to itself."""
    rack: str = ""
    """Where this machine is: a room, a zone. Records are read from a replica there, if one is in
    sync (Kafka's client.rack). It is also the rack of the embedded log in a cluster, where the
    replicas of a partition lie in different racks as far as there are enough."""
    fsync: Literal["group", "never"] = "group"
    """`group`: records are written only when they are on disk, synced in groups; `never`: the
    kernel decides when."""
    bootstrap: HostPorts = Field((), examples=[["kafka-1:9092", "kafka-2:9092"]])
    """HOST:PORT of some brokers of the cluster, for `type: kafka`."""
    security: SecuritySettings = SecuritySettings()
    """TLS and authentication of that cluster. Default: plain text without authentication."""
    topic: Annotated[str, AfterValidator(check_format)] = "{pipeline}.{schema}.{table}"
    """Name of a table's topic; `{schema}.` is left out for tables without a schema."""
    partitions: Literal["auto"] | Annotated[int, Field(ge=1, le=8192)] = "auto"
    """Partitions of each new topic. `auto`: one, and for a table with more than ten million rows at
    that time one for each ten million, up to eight. An existing topic keeps its number; `run
    --migrate` changes it."""
    cleanup: Literal["compact", "delete", "compact,delete"] = "compact"
    """Kafka's cleanup.policy: `compact` keeps the newest state of every key, `delete` keeps
    everything until its retention ends."""
    history_ms: DurationMs = 7 * 86_400_000
    """How long compaction keeps every single change: the reach of rebuilds as of a time."""
    delete_retention_ms: DurationMs = 7 * 86_400_000
    """How long compaction keeps deletes; a sink that is stopped for longer must start again from an
    empty target."""
    retention: Retention = Retention()
    """How long records are kept if `cleanup` has `delete`."""
    compression: Literal["zstd", "lz4", "gzip", "none"] = "zstd"
    """Compression of record batches."""
    value: ValueFormat = "debezium-json"
    """Format of rows: Debezium's envelope or the flat row, as JSON or Avro."""
    has_schemas: bool = Field(False, alias="schemas")
    """JSON only: every record contains its Kafka Connect schema, which makes it large."""
    registry: HttpAddress = Field("", examples=["http://localhost:8081"])
    """Address of the schema registry for the Avro formats."""

    @property
    def brokers(self) -> tuple[str, ...]:
        """HOST:PORT by which the log is reached from anywhere; none if it is on one machine."""
        if self.type == "kafka":
            return tuple(self.bootstrap)
        if self.cluster is None:
            return ()
        advertised = self.cluster.advertise or self.listen
        own = () if advertised.endswith(":0") else (advertised,)
        return (*own, *(each for each in self.cluster.join if each != advertised))

    def as_broker(self, data: Path, *, directory: Path, begins: bool = False) -> BrokerSettings:
        """Returns the settings of the embedded log, with relative files resolved from `directory`.
        `begins` is whether an empty directory begins a cluster beyond loopback."""
        place: dict[str, Any] = {"data": data, "listen": self.listen, "fsync": self.fsync}
        if self.cluster is not None:
            secret = self.cluster.secret
            place |= {
                "node_id": self.cluster.node_id,
                "join": list(self.cluster.join),
                "rack": self.rack,
                "advertise": self.cluster.advertise,
                "replace_voters_after_ms": self.cluster.replace_voters_after_ms,
                "cluster_secret": None if secret is None else directory / secret,
                "security": self.cluster.security.beside(directory),
                "begin": begins,
            }
        return BrokerSettings.model_validate(place | {"auto_create_topics": False})


def files_at(path: Path) -> list[Path]:
    """The file itself, or a directory's pipeline files in the order of their names."""
    if not path.is_dir():
        return [path]
    found = sorted(
        each for each in path.iterdir() if each.suffix in SUFFIXES and not each.name.startswith(".")
    )
    if not found:
        raise ConfigError(
            "the directory has no pipeline file", directory=str(path), hint="headwater init"
        )
    if len(found) > FILES_MAX:
        raise ConfigError(
            "the directory has too many pipeline files", files=len(found), at_most=FILES_MAX
        )
    return found
