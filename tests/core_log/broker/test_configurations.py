"""Configurations are explained and changed as Kafka does it, in every version served."""

from typing import Any

import pytest

from headwater.core_log.broker.batch_validation import (
    AppendedBatch,
    InvalidTimestamp,
    append_batch,
    read_header,
)
from headwater.core_log.broker.broker import Broker
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages import alter_configs as replacing
from headwater.core_log.protocol.messages import incremental_alter_configs as changing
from headwater.core_log.protocol.messages import list_config_resources as listing
from headwater.core_log.protocol.messages import update_features as features
from headwater.core_log.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headwater.core_log.replication.features import SUPPORTED
from headwater.core_log.replication.metadata_records import METADATA_FEATURE, METADATA_VERSION
from tests.builders import Sequenced, batch
from tests.core_log.broker.in_memory import ask, create, versions

TOPIC, BROKER = 2, 4
NONE = ErrorCode.NONE


def resource(kind: int, name: str, *keys: str) -> DescribeConfigsResource:
    return DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys or None
    )


@pytest.mark.parametrize("version", versions(DescribeConfigsRequest))
async def test_the_configuration_of_a_topic_is_explained(broker: Broker, version: int) -> None:
    await create(broker, "t", retention_ms="5")
    request = DescribeConfigsRequest(
        resources=[resource(TOPIC, "t", "retention.ms", "segment.ms")],
        include_synonyms=True,
        include_documentation=version >= 3,
    )

    response = await ask(broker, request, version)

    retention, segment = response.results[0].configs
    assert (retention.name, retention.value, retention.config_source) == ("retention.ms", "5", 1)
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "5", 1)
    ]
    assert (segment.value, segment.config_source) == ("60000", 4)
    assert not (retention.read_only or retention.is_sensitive)
    if version >= 3:
        assert retention.config_type == 5
        assert retention.documentation.endswith(".")


async def test_the_settings_of_this_broker_are_shown_and_cannot_be_set(broker: Broker) -> None:
    request = DescribeConfigsRequest(resources=[resource(BROKER, "1"), resource(BROKER, "")])

    response = await ask(broker, request)

    own, common = response.results
    values = {each.name: (each.value, each.config_source) for each in own.configs}
    assert values["node.id"] == ("1", 5)
    assert values["auto.create.topics.enable"] == ("true", 5)
    assert values["log.roll.ms"] == ("60000", 4)
    assert values["message.max.bytes"] == ("1048588", 5)
    assert all(each.read_only for each in own.configs)
    assert (common.error_code, list(common.configs)) == (NONE, [])


async def test_a_resource_without_a_configuration_says_so(broker: Broker) -> None:
    wanted = {
        (TOPIC, "missing"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (TOPIC, ".."): ErrorCode.INVALID_TOPIC_EXCEPTION,
        (BROKER, "2"): ErrorCode.INVALID_REQUEST,
        (BROKER, "one"): ErrorCode.INVALID_REQUEST,
        (32, "group"): ErrorCode.INVALID_REQUEST,
        (0, "x"): ErrorCode.INVALID_REQUEST,
    }
    request = DescribeConfigsRequest(resources=[resource(*each) for each in wanted])

    response = await ask(broker, request)

    assert [each.error_code for each in response.results] == list(wanted.values())
    assert [(each.resource_type, each.resource_name) for each in response.results] == list(wanted)


def replacement(kind: int, name: str, **config: str | None) -> replacing.AlterConfigsResource:
    return replacing.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            replacing.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ],
    )


def change(kind: int, name: str, *each: tuple[str, int, str | None]) -> Any:
    return changing.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            changing.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in each
        ],
    )


@pytest.mark.parametrize("version", versions(replacing.AlterConfigsRequest))
async def test_a_configuration_is_replaced_and_takes_hold(broker: Broker, version: int) -> None:
    await create(broker, "t", retention_ms="5", segment_bytes="1000")
    request = replacing.AlterConfigsRequest(
        resources=[replacement(TOPIC, "t", max_message_bytes="77")]
    )

    response = await ask(broker, request, version)

    assert response.responses[0].error_code == NONE
    assert broker.image.topics["t"].config == {"max.message.bytes": "77"}
    partition = broker.find_led("t", 0)
    assert partition is not None and partition.log.config.max_message_bytes == 77


@pytest.mark.parametrize("version", versions(changing.IncrementalAlterConfigsRequest))
async def test_single_settings_change_and_take_hold(broker: Broker, version: int) -> None:
    await create(broker, "t", retention_ms="5")
    request = changing.IncrementalAlterConfigsRequest(
        resources=[
            change(TOPIC, "t", ("segment.bytes", 0, "1000"), ("cleanup.policy", 2, "compact"))
        ]
    )

    response = await ask(broker, request, version)

    assert (response.responses[0].error_code, response.responses[0].error_message) == (NONE, None)
    assert broker.image.topics["t"].config == {
        "retention.ms": "5",
        "segment.bytes": "1000",
        "cleanup.policy": "delete,compact",
    }
    partition = broker.find_led("t", 0)
    assert partition is not None and partition.log.config.is_compacted


async def test_validating_a_configuration_changes_nothing(broker: Broker) -> None:
    await create(broker, "t")
    by_key = changing.IncrementalAlterConfigsRequest(
        resources=[change(TOPIC, "t", ("segment.bytes", 0, "1000"))], validate_only=True
    )
    whole = replacing.AlterConfigsRequest(
        resources=[replacement(TOPIC, "t", segment_bytes="1000")], validate_only=True
    )

    responses = [await ask(broker, each) for each in (by_key, whole)]

    assert [each.responses[0].error_code for each in responses] == [NONE, NONE]
    assert broker.image.topics["t"].config == {}


async def test_configurations_that_cannot_be_set_say_why(broker: Broker) -> None:
    await create(broker, "t")
    await create(broker, "u")
    setting = ("segment.bytes", 0, "1000")
    wanted = [
        (change(TOPIC, "missing", setting), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (change(TOPIC, "", setting), ErrorCode.INVALID_REQUEST),
        (change(TOPIC, "t", ("segment.bytes", 0, "-1")), ErrorCode.INVALID_CONFIG),
        (change(TOPIC, "u", setting, setting), ErrorCode.INVALID_REQUEST),
        (change(BROKER, "1", ("log.retention.ms", 0, "1")), ErrorCode.INVALID_REQUEST),
        (change(BROKER, "9", ("log.retention.ms", 1, None)), ErrorCode.INVALID_REQUEST),
        (change(BROKER, "x", ("log.retention.ms", 1, None)), ErrorCode.INVALID_REQUEST),
        (change(8, "1", ("root", 0, "DEBUG")), ErrorCode.INVALID_REQUEST),
    ]
    request = changing.IncrementalAlterConfigsRequest(resources=[each for each, _ in wanted])

    response = await ask(broker, request)

    assert [each.error_code for each in response.responses] == [code for _, code in wanted]
    assert all(each.error_message for each in response.responses)


async def test_an_operation_nobody_knows_is_refused(broker: Broker) -> None:
    await create(broker, "t")
    request = changing.IncrementalAlterConfigsRequest(
        resources=[change(TOPIC, "t", ("segment.bytes", 9, "1000"))]
    )

    response = await ask(broker, request)

    assert response.responses[0].error_code == ErrorCode.INVALID_REQUEST


async def test_a_resource_named_twice_is_left_alone(broker: Broker) -> None:
    await create(broker, "t")
    request = replacing.AlterConfigsRequest(
        resources=[
            replacement(TOPIC, "t", segment_bytes="1000"),
            replacement(TOPIC, "t", segment_ms="1000"),
        ]
    )

    response = await ask(broker, request)

    assert [each.error_code for each in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert broker.image.topics["t"].config == {}


async def test_a_deleted_throttle_was_not_there(broker: Broker) -> None:
    """`kafka-reassign-partitions --verify` deletes those of every broker and topic."""
    await create(broker, "t")
    throttle = ("leader.replication.throttled.rate", 1, None)
    replicas = ("leader.replication.throttled.replicas", 1, None)
    request = changing.IncrementalAlterConfigsRequest(
        resources=[change(BROKER, "1", throttle), change(TOPIC, "t", replicas)]
    )

    response = await ask(broker, request)

    assert [each.error_code for each in response.responses] == [NONE, NONE]


@pytest.mark.parametrize("version", versions(listing.ListConfigResourcesRequest))
async def test_topics_and_brokers_are_listed_with_their_types(broker: Broker, version: int) -> None:
    await create(broker, "t")
    every, topics, unknown = (
        listing.ListConfigResourcesRequest(resource_types=types) for types in ((), (TOPIC,), (9,))
    )

    everything = await ask(broker, every, version)

    found = [(each.resource_type, each.resource_name) for each in everything.config_resources]
    if version == 0:
        assert found == [], "subscriptions to client metrics, of which there are none"
        return
    chosen, refused = await ask(broker, topics, version), await ask(broker, unknown, version)
    assert found == [(TOPIC, "t"), (BROKER, "1"), (8, "1")]
    assert [each.resource_name for each in chosen.config_resources] == ["t"]
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", versions(features.UpdateFeaturesRequest))
async def test_features_stay_at_their_levels(broker: Broker, version: int) -> None:
    def update(name: str, level: int, kind: int = 1) -> Any:
        direction = {"upgrade_type": kind} if version else {"allow_downgrade": kind > 1}
        wanted = features.FeatureUpdateKey(feature=name, max_version_level=level, **direction)
        return ask(broker, features.UpdateFeaturesRequest(feature_updates=[wanted]), version)

    same = await update("transaction.version", 2)
    refused = [
        await update("transaction.version", 3),
        await update("transaction.version", 1),
        await update("transaction.version", 1, 3),
        await update("transaction.version", -1),
        await update("no.such", 1),
        await update(METADATA_FEATURE, METADATA_VERSION),
    ]

    assert (same.error_code, len(same.results)) == (NONE, 1 if version < 2 else 0)
    assert {each.error_code for each in refused} == {ErrorCode.INVALID_UPDATE_VERSION}
    assert all(each.error_message.startswith("Invalid update version") for each in refused)
    assert broker.image.features == SUPPORTED


def produce(
    broker: Broker, *, timestamp_ms: int, now_ms: int, sequence: int | None = None
) -> AppendedBatch:
    partition = broker.find_led("t", 0)
    assert partition is not None
    producer = None if sequence is None else Sequenced(7, 0, sequence)
    data = memoryview(batch("value", timestamp_ms=timestamp_ms, producer=producer))
    return append_batch(partition, data, read_header(data), now_ms=now_ms, is_urgent=False)


async def test_a_retry_is_told_the_time_at_which_its_batch_was_appended(broker: Broker) -> None:
    await create(broker, "t", message_timestamp_type="LogAppendTime")

    first = produce(broker, timestamp_ms=1, now_ms=5_000, sequence=0)
    again = produce(broker, timestamp_ms=1, now_ms=9_000, sequence=0)

    assert first == again == AppendedBatch(0, 1, append_time_ms=5_000)


async def test_only_times_are_too_early_or_too_late(broker: Broker) -> None:
    await create(
        broker, "t", message_timestamp_before_max_ms="10", message_timestamp_after_max_ms="20"
    )

    for timestamp_ms in (4_989, 5_021):
        with pytest.raises(InvalidTimestamp):
            produce(broker, timestamp_ms=timestamp_ms, now_ms=5_000)

    offsets = [
        produce(broker, timestamp_ms=timestamp_ms, now_ms=5_000).base_offset
        for timestamp_ms in (4_990, 5_020, -1)
    ]
    assert offsets == [0, 1, 2]
