"""Our declarations say what Kafka's own schemas say, field by field, in every version we serve."""

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from headwater.core_log.protocol.fields import Field, Number, fields_of
from headwater.core_log.protocol.frames import FLEXIBLE_FROM
from headwater.core_log.protocol.message import NEVER, response_type
from headwater.core_log.protocol.primitives import ZERO_UUID
from tests.core_log.protocol.kafka_python import field_name, request_schemas, schema
from tests.core_log.protocol.samples import MESSAGES, RECORDS, REQUESTS, versions_of

WITH_SCHEMA = MESSAGES + [each for each in RECORDS if each.__name__.startswith("ConsumerProtocol")]
TYPES: dict[object, str] = {
    Number("?"): "bool",
    Number("b"): "int8",
    Number("h"): "int16",
    Number("H"): "uint16",
    Number("i"): "int32",
    Number("I"): "uint32",
    Number("q"): "int64",
    Number("d"): "float64",
    str: "string",
    bytes: "bytes",
    memoryview: "records",
    UUID: "uuid",
}
KAFKA_NAMES = {
    "DescribeQuorumTopic": "TopicData",
    "DescribeQuorumPartition": "PartitionData",
    "DescribedQuorumTopic": "TopicData",
    "DescribedQuorumPartition": "PartitionData",
    "QuorumReplica": "ReplicaState",
    "QuorumNode": "Node",
    "QuorumListener": "Listener",
    "AlterPartitionTopic": "TopicData",
    "AlteredPartition": "PartitionData",
    "InSyncBroker": "BrokerState",
    "AlterPartitionTopicResponse": "TopicData",
    "AlteredPartitionResponse": "PartitionData",
    "VoteTopic": "TopicData",
    "VotePartition": "PartitionData",
    "VotedTopic": "TopicData",
    "VotedPartition": "PartitionData",
    "VoteNodeEndpoint": "NodeEndpoint",
    "BegunEpochTopic": "TopicData",
    "BegunEpochPartition": "PartitionData",
    "BeginEpochAnswerTopic": "TopicData",
    "BeginEpochAnswerPartition": "PartitionData",
    "BegunEpochNodeEndpoint": "NodeEndpoint",
    "EndedEpochTopic": "TopicData",
    "EndedEpochPartition": "PartitionData",
    "EndEpochAnswerTopic": "TopicData",
    "EndEpochAnswerPartition": "PartitionData",
    "EndedEpochNodeEndpoint": "NodeEndpoint",
    "BegunEpochLeaderEndpoint": "LeaderEndpoint",
    "EndedEpochLeaderEndpoint": "LeaderEndpoint",
    "SnapshotTopic": "TopicSnapshot",
    "SnapshotPartition": "PartitionSnapshot",
    "WantedSnapshot": "SnapshotId",
    "SnapshotTopicPart": "TopicSnapshot",
    "SnapshotPart": "PartitionSnapshot",
    "ServedSnapshot": "SnapshotId",
    "SnapshotLeader": "LeaderIdAndEpoch",
    "SnapshotNodeEndpoint": "NodeEndpoint",
    "BrokerListener": "Listener",
    "BrokerFeature": "Feature",
    "AddedVoterListener": "Listener",
    "VoterListener": "Listener",
    "KRaftVersionRange": "KRaftVersionFeature",
    "QuorumLeader": "CurrentLeader",
    "QuotaFilterComponent": "ComponentData",
    "DescribedQuota": "EntryData",
    "DescribedEntity": "EntityData",
    "QuotaValue": "ValueData",
    "QuotaAlteration": "EntryData",
    "AlteredEntity": "EntityData",
    "QuotaOperation": "OpData",
    "QuotaAlterationResult": "EntryData",
}
"""The names of structs that Kafka gives to several; they are not on the wire."""
OWN_DEFAULTS = "a struct of its own defaults"
ZEROS = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": ZERO_UUID,
}


class Facts(NamedTuple):
    """What one version makes of a field; `path` leads to it from the message."""

    path: str
    type: str
    is_nullable: bool
    tag: int | None
    default: object
    is_ignorable: bool | None  # None where no version we serve lacks the field


def declared_facts(struct: type, versions: range, version: int, path: str = "") -> Iterator[Facts]:
    for field in fields_of(struct):
        present = [each for each in versions if field.is_in(each)]
        if version not in present:
            continue
        yield Facts(
            path=f"{path}.{field.name}",
            type="[]" * field.is_array + _declared_type(field.kind),
            is_nullable=field.is_nullable_in(version),
            tag=field.tag,
            default=_declared_default(field),
            is_ignorable=None if len(present) == len(versions) else field.is_ignorable,
        )
        if isinstance(field.kind, type) and field.kind not in TYPES:
            nested = range(present[0], present[-1] + 1)
            yield from declared_facts(field.kind, nested, version, f"{path}.{field.name}")


def _declared_type(kind: Number | type) -> str:
    if kind in TYPES or isinstance(kind, Number):
        return TYPES[kind]
    return KAFKA_NAMES.get(kind.__name__, kind.__name__)


def _declared_default(field: Field) -> object:
    if field.kind is memoryview:  # Kafka's schemas name none for records
        return None
    if field.is_array or field.kind in TYPES or field.default is None:
        return field.default
    assert isinstance(field.kind, type)
    return OWN_DEFAULTS if field.default == field.kind() else field.default


def kafka_facts(
    fields: list[dict[str, Any]], versions: range, version: int, path: str = ""
) -> Iterator[Facts]:
    for field in fields:
        present = [each for each in versions if _covers(field["versions"], each)]
        if version not in present:
            continue
        name = field_name(field["name"])
        yield Facts(
            path=f"{path}.{name}",
            type=field["type"],
            is_nullable=_covers(field.get("nullableVersions", "none"), version),
            tag=field["tag"] if _covers(field.get("taggedVersions", "none"), version) else None,
            default=_kafka_default(field["type"], field.get("default")),
            is_ignorable=None if len(present) == len(versions) else field.get("ignorable", False),
        )
        if "fields" in field:
            nested = range(present[0], present[-1] + 1)
            yield from kafka_facts(field["fields"], nested, version, f"{path}.{name}")


def _covers(versions: str, version: int) -> bool:
    """`versions` is one number, a range such as 2-7, an open one such as 2+, or none."""
    if versions == "none":
        return False
    first, _, last = versions.removesuffix("+").partition("-")
    if versions.endswith("+"):
        return version >= int(first)
    return int(first) <= version <= int(last or first)


def _kafka_default(kind: str, default: Any) -> object:
    if default == "null":
        return None
    if kind.startswith("[]"):
        return ()
    if "int" in kind:
        return int(str(default or "0"), 0)
    if kind == "bool":
        return str(default).lower() == "true"
    return default or ZEROS.get(kind, OWN_DEFAULTS)


@pytest.mark.parametrize("message", WITH_SCHEMA, ids=lambda message: message.__name__)
def test_every_field_is_as_kafka_declares_it(message: Any) -> None:
    kafka = schema(message.__name__)
    for version in versions_of(message):
        ours = list(declared_facts(message, versions_of(message), version))
        assert ours == list(kafka_facts(kafka["fields"], versions_of(message), version))


@pytest.mark.parametrize("message", WITH_SCHEMA, ids=lambda message: message.__name__)
def test_versions_are_those_of_kafka(message: Any) -> None:
    kafka = schema(message.__name__)
    first, last = message.versions
    assert kafka["validVersions"] == (str(first) if first == last else f"{first}-{last}")
    flexible = "none" if message.flexible_from == NEVER else f"{message.flexible_from}+"
    assert kafka["flexibleVersions"] == flexible


@pytest.mark.parametrize("request_class", REQUESTS, ids=lambda message: message.__name__)
def test_a_request_names_its_key_and_its_response(request_class: Any) -> None:
    response = response_type(request_class)
    assert request_class.api_key == schema(request_class.__name__)["apiKey"]
    assert response.__name__ == request_class.__name__.removesuffix("Request") + "Response"


@pytest.mark.parametrize("request_class", REQUESTS, ids=lambda message: message.__name__)
def test_a_module_opens_with_key_and_versions(request_class: Any) -> None:
    first, last = request_class.versions
    versions = f"version {first}" if first == last else f"versions {first} to {last}"
    name = request_class.__name__.removesuffix("Request")
    opening = f"{name} (key {request_class.api_key}), {versions}: "
    assert (sys.modules[request_class.__module__].__doc__ or "").startswith(opening)


def test_the_headers_of_every_request_a_client_may_send_can_be_read() -> None:
    for kafka in request_schemas():
        first = FLEXIBLE_FROM.get(kafka["apiKey"])
        assert kafka["flexibleVersions"] == ("none" if first is None else f"{first}+")
