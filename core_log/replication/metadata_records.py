"""The records of the cluster's metadata log, and their JSON form."""

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from headwater.core_log.foundation.errors import DecodeError

FIRST_VERSION = 1
METADATA_FEATURE = "headwater.metadata.version"
"""The feature whose finalized level is the newest version of the metadata that may be written."""
METADATA_VERSION = 3
"""The newest version of the metadata that this code reads. A record that older brokers cannot read
comes with a new one, and is written once all brokers of the cluster read that."""
NO_ID = UUID(int=0)


def since(version: int, default: object) -> Any:
    """Declares a field that came with this version of its record. A record is written in the oldest
    version that holds it, so that older brokers read what they understand, and stop at the rest."""
    return field(default=default, metadata={"version": version})


class Doubt(NamedTuple):
    """A replica that had all that was committed, and may have lost some of it, with its end. It is
    elected only if no other replica has more."""

    broker_id: int
    last_epoch: int
    end_offset: int


class Assignment(NamedTuple):
    """The brokers of a partition; while it moves, some are added and some will be removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    """Those of `replicas` that copy it for the first time: nothing is promised of them yet."""
    removing: tuple[int, ...] = ()
    """Those of `replicas` that leave once all others are in sync."""

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """Returns the replicas in the end."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """Returns the replicas that are not added just now."""
        return tuple(each for each in self.replicas if each not in self.adding)

    def enough(self, min_in_sync: int) -> int:
        """Returns the least number in sync with which anything is committed."""
        return min(min_in_sync, len(self.replicas) - len(self.adding))


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic is created; its partitions and configuration follow."""

    name: str
    topic_id: UUID
    has_fixed_replicas: bool = since(2, False)
    """Somebody has said how many replicas it has. A log with one broker does not keep that: there
    was no choice."""


@dataclass(frozen=True, slots=True)
class TopicReplicasRecord:
    """Whether the number of a topic's replicas stays as it is when there are more brokers."""

    topic_id: UUID
    has_fixed_replicas: bool


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """A topic is removed with its partitions and its configuration."""

    topic_id: UUID


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition is created."""

    topic_id: UUID
    partition: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    eligible: tuple[int, ...] = since(2, ())
    adding: tuple[int, ...] = since(3, ())
    removing: tuple[int, ...] = since(3, ())
    doubtful: tuple[Doubt, ...] = since(4, ())

    @property
    def assignment(self) -> Assignment:
        return Assignment(self.replicas, self.adding, self.removing)


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """A partition gets another leader, in-sync set or assignment; None leaves the latter as it
    is."""

    topic_id: UUID
    partition: int
    in_sync: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    eligible: tuple[int, ...] = since(2, ())
    replicas: tuple[int, ...] | None = since(3, None)
    adding: tuple[int, ...] | None = since(3, None)
    removing: tuple[int, ...] | None = since(3, None)
    doubtful: tuple[Doubt, ...] = since(4, ())


@dataclass(frozen=True, slots=True)
class TopicConfigRecord:
    """One setting of a topic; None resets it to the default."""

    topic_id: UUID
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ClusterConfigRecord:
    """The default of one setting for all topics of the cluster."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class BrokerConfigRecord:
    """One setting of a running broker, or of all that have none of their own: None is their name.
    A value of None removes it."""

    broker_id: int | None
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A broker has started and registered, with a new epoch."""

    broker_id: int
    broker_epoch: int
    incarnation_id: UUID
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    directory_id: UUID = field(default=NO_ID, metadata={"version": 2})
    """The directory of its data: another one has none of what the broker promised before."""
    is_over: bool = since(2, False)
    """It was fenced after it had been alive, and must register again."""


@dataclass(frozen=True, slots=True)
class BrokerRemovalRecord:
    """A broker left the cluster for good; it has no replicas."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class BrokerFenceRecord:
    """A broker is fenced or unfenced: whether it may lead and be in sync. Fencing ends its
    registration."""

    broker_id: int
    broker_epoch: int
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """All producer ids below `next_producer_id` have been given to brokers."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """A feature is finalized at this level in the whole cluster (`transaction.version` = 2)."""

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class AclRecord:
    """An ACL is created. Types, operation and permission are Kafka's numbers."""

    acl_id: UUID
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True)
class RemoveAclRecord:
    """An ACL is removed."""

    acl_id: UUID


@dataclass(frozen=True, slots=True)
class ScramRecord:
    """A user gets a password for one mechanism of SASL/SCRAM. The bytes are in base64."""

    user: str
    mechanism: str
    salt: str = field(repr=False)
    stored_key: str = field(repr=False)
    server_key: str = field(repr=False)
    rounds: int


@dataclass(frozen=True, slots=True)
class RemoveScramRecord:
    """A user loses its password for one mechanism."""

    user: str
    mechanism: str


@dataclass(frozen=True, slots=True)
class ClientQuotaRecord:
    """A quota gets a value, or is removed: its value is None then. A part of the entity that does
    not matter is None, and an empty one stands for all that have no quota of their own."""

    user: str | None
    client_id: str | None
    ip: str | None
    key: str
    value: float | None


MetadataRecord = (
    TopicRecord
    | TopicReplicasRecord
    | RemoveTopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | TopicConfigRecord
    | ClusterConfigRecord
    | BrokerConfigRecord
    | BrokerRecord
    | BrokerRemovalRecord
    | BrokerFenceRecord
    | ProducerIdsRecord
    | FeatureLevelRecord
    | AclRecord
    | RemoveAclRecord
    | ScramRecord
    | RemoveScramRecord
    | ClientQuotaRecord
)

KINDS: dict[str, type[MetadataRecord]] = {
    "topic": TopicRecord,
    "topic-replicas": TopicReplicasRecord,
    "topic-removal": RemoveTopicRecord,
    "partition": PartitionRecord,
    "partition-change": PartitionChangeRecord,
    "topic-config": TopicConfigRecord,
    "cluster-config": ClusterConfigRecord,
    "broker-config": BrokerConfigRecord,
    "broker": BrokerRecord,
    "broker-removal": BrokerRemovalRecord,
    "broker-fence": BrokerFenceRecord,
    "producer-ids": ProducerIdsRecord,
    "feature-level": FeatureLevelRecord,
    "acl": AclRecord,
    "acl-removal": RemoveAclRecord,
    "scram": ScramRecord,
    "scram-removal": RemoveScramRecord,
    "client-quota": ClientQuotaRecord,
}
_KIND_OF = {record: kind for kind, record in KINDS.items()}
_FIELDS = {
    kind: {each.name: each.metadata.get("version", FIRST_VERSION) for each in fields(record)}
    for kind, record in KINDS.items()
}
"""The fields of each kind, with the versions that they came with."""
_DEFAULTS = {
    (kind, each.name): each.default for kind, record in KINDS.items() for each in fields(record)
}
_NEWER_THAN_FIRST = {
    ("cluster-config", 1): 2,
    ("broker-config", 1): 2,
    ("client-quota", 1): 2,
    ("partition", 4): 3,
    ("partition-change", 4): 3,
}
"""Kinds and versions of records, with the version of the metadata that they came with, where that
is not the first."""
_IDS = frozenset({"topic_id", "incarnation_id", "directory_id", "acl_id"})
_LISTS = frozenset({"replicas", "in_sync", "eligible", "adding", "removing"})


def encode_record(record: MetadataRecord) -> bytes:
    version, values = _version_of(record)
    return orjson.dumps({"version": version, "type": _KIND_OF[type(record)], **values})


def metadata_version_needed(record: MetadataRecord) -> int:
    """Returns the version of the metadata that a broker must know to read this record."""
    return metadata_version_of(_KIND_OF[type(record)], _version_of(record)[0])


def metadata_version_of(kind: str, version: int) -> int:
    """Returns the version of the metadata that this version of a kind of records came with."""
    return _NEWER_THAN_FIRST.get((kind, version), FIRST_VERSION)


def record_versions(kind: str) -> range:
    """Returns the versions of a kind of records that this code reads."""
    return range(FIRST_VERSION, max(_FIELDS[kind].values()) + 1)


def _version_of(record: MetadataRecord) -> tuple[int, dict[str, object]]:
    """Returns the oldest version of its kind that holds the record, with the fields of that."""
    kind, version, values = _KIND_OF[type(record)], FIRST_VERSION, dict[str, object]()
    for name, came_with in _FIELDS[kind].items():
        value = getattr(record, name)
        if came_with == FIRST_VERSION or value != _DEFAULTS[kind, name]:
            version, values[name] = max(version, came_with), _plain(name, value)
    return version, values


def _plain(name: str, value: Any) -> object:
    return [tuple(each) for each in value] if name == "doubtful" else value


def decode_record(data: bytes) -> MetadataRecord:
    """Returns the record; raises `DecodeError` for anything that no version up to this one has
    written."""
    try:
        values: dict[str, Any] = orjson.loads(data)
        version, kind = values.pop("version"), str(values.pop("type"))
    except (orjson.JSONDecodeError, KeyError, AttributeError, TypeError):
        raise DecodeError("the record is not a metadata record", size=len(data)) from None
    known = _FIELDS.get(kind, {})
    if kind not in KINDS or version not in record_versions(kind):
        raise DecodeError(
            "metadata record was written by a newer version",
            hint="start the version of headwater that wrote this data directory",
            version=version,
            type=kind,
        )
    allowed = {name for name, came_with in known.items() if came_with <= version}
    needed = {name for name, came_with in known.items() if came_with == FIRST_VERSION}
    if not needed <= values.keys() <= allowed:
        raise DecodeError("metadata record has other fields than its type", type=kind)
    try:
        return KINDS[kind](**{name: _value(name, each) for name, each in values.items()})
    except (ValueError, TypeError, AttributeError):
        raise DecodeError("metadata record has a field of the wrong type", type=kind) from None


def _value(name: str, value: Any) -> Any:
    if name in _IDS:
        return UUID(value)
    if name == "doubtful":
        return tuple(Doubt(*each) for each in value)
    return tuple(value) if name in _LISTS and value is not None else value
