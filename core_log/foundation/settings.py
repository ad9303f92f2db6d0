"""Base class of every YAML-facing model, and the settings of the log itself."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    WithJsonSchema,
    model_validator,
)

from headwater.core_log.foundation.database_url import check_host_ports, check_http_address
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.name_patterns import Pattern, Patterns
from headwater.core_log.foundation.units import DURATION, SIZE, parse_duration_ms, parse_size_bytes


class Settings(BaseModel):
    """Base class of settings: frozen, without extra fields, and documented, see
    `explanations_of`."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class YamlSettings(Settings):
    """A part of a pipeline file. Keys carry no units: the field `batch_wait_ms` is written
    `batch_wait: 5ms`, as its type is `DurationMs`."""

    model_config = ConfigDict(
        alias_generator=lambda name: re.sub(r"_(ms|bytes)$|_(ms|bytes)(?=_max$)", "", name),
        populate_by_name=True,
        validate_default=True,
    )


@cache
def explanations_of(model: type[BaseModel]) -> Mapping[str, str]:
    """Returns the explanation of each field by its name: its docstring or its description.

    They are read from the source files on demand: reading them when the classes are made would
    double the time that this takes, in every process and command.
    """
    told: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, Settings):
            told.update(_docstrings(each))
    fields = model.model_fields.items()
    return {name: field.description or told.get(name, "") for name, field in fields}


def _docstrings(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    try:
        source = inspect.getsource(model)
    except (OSError, TypeError):
        return  # no source file, or the class was made without one
    [definition] = ast.parse(dedent(source)).body
    assert isinstance(definition, ast.ClassDef), "the source of a class defines it"
    for field, text in pairwise(definition.body):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                yield name, inspect.cleandoc(words)


def as_list(value: Any) -> Any:
    """Accepts a single element instead of a list."""
    return value if value is None or isinstance(value, list | tuple) else [value]


def split_addresses(value: Any) -> Any:
    """Accepts addresses in one text, between commas."""
    return [each.strip() for each in value.split(",")] if isinstance(value, str) else value


def split_super_users(value: Any) -> Any:
    """Accepts principals in one text, between semicolons as in Kafka, since names of certificates
    have commas."""
    return [each.strip() for each in value.split(";")] if isinstance(value, str) else value


def parse_unless(word: str, parse: Callable[[Any], Any], value: Any) -> Any:
    """Parses the text; `word` means that there is no bound."""
    return None if value == word else parse(value)


def unless(word: str, parse: Callable[[Any], Any]) -> BeforeValidator:
    """Returns the type of a duration or size that may be unbounded: `Annotated[int | None,
    unless(...)]`."""
    return BeforeValidator(partial(parse_unless, word, parse))


def check_pattern(text: str) -> str:
    """Raises unless the text is a valid pattern for table names."""
    try:
        Pattern(text)
    except ConfigError as error:
        raise ValueError(error.problem) from None
    return text


def check_patterns(texts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        Patterns(texts)
    except ConfigError as error:
        raise ValueError(error.problem) from None
    return texts


DurationMs = Annotated[
    int,
    BeforeValidator(parse_duration_ms),
    Field(ge=0),
    WithJsonSchema({"type": "string", "pattern": rf"^{DURATION}$", "examples": ["5s"]}),
]
SizeBytes = Annotated[
    int,
    BeforeValidator(parse_size_bytes),
    Field(ge=0),
    WithJsonSchema({"type": "string", "pattern": rf"^{SIZE}$", "examples": ["8MiB"]}),
]
ONE_OR_MORE = WithJsonSchema(
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
)
Texts = Annotated[tuple[str, ...], BeforeValidator(as_list), ONE_OR_MORE]
HostPorts = Annotated[Texts, BeforeValidator(split_addresses), AfterValidator(check_host_ports)]
"""Addresses of brokers, such as `kafka-1:9092`, as a list or as Kafka's tools take them."""
HttpAddress = Annotated[str, AfterValidator(check_http_address)]
PatternText = Annotated[str, AfterValidator(check_pattern)]
"""A glob or a `/regex/`, see `headwater.core_log.foundation.name_patterns`."""
PatternTexts = Annotated[Texts, AfterValidator(check_patterns)]
"""Any number of globs or `/regex/`; those that begin with `!` exclude."""


class TopicSettings(Settings):
    """The settings of a topic; `Log.ensure_topic` creates it or checks that it has them."""

    name: str = Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")
    """Topic name: letters, digits, dot, underscore and dash, at most 249 of them."""
    partitions: int = Field(1, ge=1)
    """Number of partitions."""
    replication_factor: int = Field(-1, ge=-1)
    """Replicas of each partition; -1 leaves it to the client's settings, and then to the log."""
    keeps_partitions: bool = False
    """Whether an existing topic keeps another number of partitions."""
    config: dict[str, str] = {}
    """Kafka's topic configuration by its Kafka names, such as `cleanup.policy`."""


SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class SecuritySettings(YamlSettings):
    """How to connect to a Kafka cluster: with or without TLS, with or without a user. The names are
    Kafka's."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Kafka's security.protocol of the listener: `SSL` is TLS, `SASL_` needs a user."""
    mechanism: SaslMechanism = "SCRAM-SHA-512"
    """SASL mechanism. SCRAM never sends the password; `PLAIN` does, so others on the network can
    read it unless the protocol is `SASL_SSL`."""
    user: str = Field("", examples=["shop"])
    """Name of the user, for `SASL_`."""
    password: SecretStr = Field(SecretStr(""), examples=["${env:KAFKA_PASSWORD}"])
    """Password of the user, by reference."""
    ca_file: Path | None = None
    """PEM file with the certificate authorities that sign the brokers' certificates; the system's
    own if left out. Like the other files it must be on every machine that reads the log."""
    certificate_file: Path | None = None
    """PEM file with the client certificate and its chain, if the brokers ask for one."""
    key_file: Path | None = None
    """PEM file with the key of that certificate, if it is not in the same file."""
    key_password: SecretStr = SecretStr("")
    """Password of that key, by reference."""
    check_host: bool = True
    """Whether a broker's certificate must contain the host name of the connection."""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.has_user != bool(self.user):
            raise ValueError(
                "security.protocol begins with SASL_ if there is a user, and only then"
            )
        files = (self.ca_file, self.certificate_file, self.key_file)
        if not self.is_encrypted and any(files):
            raise ValueError("certificates need security.protocol SSL or SASL_SSL")
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("security.key_file needs security.certificate_file")
        return self

    @property
    def is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_user(self) -> bool:
        return self.protocol.startswith("SASL_")

    def beside(self, directory: Path) -> Self:
        """Returns these settings with relative files resolved from `directory`, the pipeline
        file's."""
        names = ("ca_file", "certificate_file", "key_file")
        found = {name: directory / path for name in names if (path := getattr(self, name))}
        return self.model_copy(update=found)


class TlsSettings(YamlSettings):
    """Encryption of a listener."""

    certificate_file: Path
    """PEM file with the certificate of this broker and its chain. Like the other files it is read
    again when it changes."""
    key_file: Path
    """PEM file with its key, without a password."""
    ca_file: Path | None = None
    """PEM file with the authorities that sign the certificates of the cluster's brokers; without
    one the other brokers must have this broker's own certificate."""
    client_ca_file: Path | None = None
    """PEM file with the authorities that sign the certificates of clients. A client with such a
    certificate is known by the name in it, without SASL."""

    @property
    def trusted_file(self) -> Path:
        """PEM file by which the certificates of the cluster's brokers are checked."""
        return self.ca_file or self.certificate_file

    def beside(self, directory: Path) -> Self:
        """Returns these settings with relative files resolved from `directory`."""
        files = {
            name: directory / path
            for name in type(self).model_fields
            if (path := getattr(self, name))
        }
        return self.model_copy(update=files)


def parse_duration_or_ms(value: Any) -> Any:
    """Parses a duration with a unit, or milliseconds as the broker's command line has them."""
    is_number = isinstance(value, str) and value.isdecimal()
    return int(value) if is_number else parse_duration_ms(value)


class ListenerSettings(YamlSettings):
    """A listener, and who may connect to it."""

    tls: TlsSettings | None = None
    """Certificate and key; without them connections are not encrypted."""
    sasl: Annotated[list[SaslMechanism], BeforeValidator(split_addresses), ONE_OR_MORE] = []
    """SASL mechanisms of clients, such as `SCRAM-SHA-512`; `PLAIN` only with `tls`."""
    session_ms_max: Annotated[DurationMs, BeforeValidator(parse_duration_or_ms)] = 0
    """Longest time until a client must authenticate by SASL again; 0 is for ever. It is Kafka's
    connections.max.reauth.ms. Clients that do not know how lose their connection, and make
    another."""
    super_users: Annotated[list[str], BeforeValidator(split_super_users), ONE_OR_MORE] = []
    """Principals that may do everything, such as `User:admin`."""
    allow_plaintext: bool = False
    """Whether clients that prove nothing are served beyond loopback."""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if "PLAIN" in self.sasl and self.tls is None:
            raise ValueError("security.sasl has PLAIN, which needs security.tls")
        return self

    @property
    def authenticates(self) -> bool:
        """Whether every client must prove who it is."""
        return bool(self.sasl) or (self.tls is not None and self.tls.client_ca_file is not None)

    def beside(self, directory: Path) -> Self:
        """Returns these settings with relative files resolved from `directory`."""
        if self.tls is None:
            return self
        return self.model_copy(update={"tls": self.tls.beside(directory)})


class BrokerSettings(Settings):
    """Settings of one broker of the log."""

    data: Path = Path("data")
    """Directory of all data of the broker; one process owns it at a time."""
    listen: str = "127.0.0.1:9092"
    """HOST:PORT of the Kafka listener; port 0 takes a free one, written to `endpoint.json`."""
    advertise: str = ""
    """HOST:PORT that clients and other brokers are told to connect to; by default that of
    `listen`."""
    security: ListenerSettings = ListenerSettings()
    """TLS and authentication."""
    cluster_secret: Path | None = None
    """File with the secret by which the brokers of a cluster know each other."""
    node_id: int = Field(1, ge=0)
    """Number of this broker in its cluster."""
    rack: str = ""
    """Where this broker is: a room, a zone. The replicas of a partition lie in different racks as
    far as there are enough, and clients of the same rack (client.rack) read from this broker what
    it has in sync."""
    join: list[str] = []
    """HOST:PORT of some brokers of the cluster that this one joins; without any it begins a cluster
    of its own."""
    begin: bool = False
    """Whether an empty directory begins a cluster beyond loopback, instead of joining one."""
    replace_voters_after_ms: Annotated[
        Annotated[int, Field(ge=3_000)] | None, unless("never", parse_duration_or_ms)
    ] = 600_000
    """How long a voter of the metadata quorum may be away (`10m`, `24h`; at least the 3 s after
    which a silent broker is fenced) before another live broker votes in its place. `never` leaves
    that to you. The setting of the broker that leads the quorum counts."""
    fsync: Literal["group", "never"] = "group"
    """`group`: records are acknowledged (acks=all) and readable only when they are on disk. `never`
    leaves syncing to the operating system, and records written since the start are not
    compacted."""
    flush_wait_ms_max: int = Field(5, ge=0)
    """Longest time that records written with acks 0 or 1 wait for the next sync."""
    auto_create_topics: bool = True
    """Whether an unknown topic is created when a client asks for it."""
    default_partitions: int = Field(1, ge=1)
    """Partitions of a topic that is created without a number of partitions."""
    internal_partitions: int = Field(16, ge=1)
    """Partitions of `__consumer_offsets` and `__transaction_state`."""
    request_bytes_max: int = Field(100 << 20, ge=1 << 16)
    """Largest request frame accepted; a larger one closes its connection before any allocation."""
    connections_max: int = Field(2048, ge=1)
    """Connections served at once. At this limit one that has not authenticated yet gives way to
    a new one; without any the new one is closed."""
    connections_per_address_max: int = Field(1024, ge=1)
    """Connections served at once from one address; further ones are closed at once."""
    connections_per_principal_max: int = Field(1024, ge=1)
    """Connections served at once of one user, or of one certificate's name; further ones are
    refused."""
    request_bytes_per_principal_max: int = Field(256 << 20, ge=1 << 20)
    """Memory for the unfinished requests of one user, or of one certificate's name; further ones
    wait, unread."""
    authentication_wait_ms_max: int = Field(10_000, ge=1)
    """Longest time that a client may take for TLS and authentication."""
    group_rebalance_delay_ms: int = Field(0, ge=0)
    """How long a new, empty group waits for more members before its first rebalance."""
    group_session_timeout_ms_min: int = Field(6_000, ge=1)
    """Shortest session timeout that a group member may ask for."""
    housekeeping_interval_ms: int = Field(30_000, ge=10)
    """Interval at which retention, compaction and expired transactions are checked."""
    config: dict[str, str] = {}
    """Defaults of the topic configuration by Kafka's names, such as `segment.bytes`."""
