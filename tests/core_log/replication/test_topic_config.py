"""A topic's configuration is known by Kafka's names, checked before it is kept, and explained."""

import pytest
from hypothesis import given
from hypothesis.strategies import integers, text

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.config_keys import LONG_MAX, ConfigSource
from headwater.core_log.replication.decisions import ConfigChange, ConfigOperation, RequestRefusal
from headwater.core_log.replication.topic_config import KEYS, TOPIC_KEYS, TopicConfigs
from headwater.core_log.storage.log_config import LogConfig
from tests.core_log.replication.controller_in_memory import Scene


def test_defaults_are_those_of_storage() -> None:
    assert TopicConfigs({}).log_config({}) == LogConfig()


def test_every_default_is_itself_valid_and_every_key_is_explained() -> None:
    for key in TOPIC_KEYS:
        assert key.normal(key.default) == key.default
        assert key.documentation.endswith(".")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "1.5"),
        ("retention.ms", ""),
        ("retention.ms", "٣"),
        ("retention.ms", str(LONG_MAX + 1)),
        ("retention.ms", "9" * 5000),
        ("segment.bytes", "13"),
        ("segment.bytes", str(1 << 31)),
        ("segment.ms", "0"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", "compact,shred"),
        ("compression.type", "GZIP"),
        ("compression.type", "none"),
        ("message.timestamp.type", "createtime"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.insync.replicas", "0"),
        ("preallocate", "true"),
        ("unclean.leader.election.enable", "yes"),
        ("no.such.key", "1"),
    ],
)
def test_a_value_that_cannot_hold_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TopicConfigs({}).check({name: value})

    assert name in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_broker_does_not_start_with_defaults_that_cannot_hold() -> None:
    with pytest.raises(ConfigError):
        TopicConfigs({"segment.bytes": "many"})


def test_the_lags_of_compaction_must_leave_room() -> None:
    configs = TopicConfigs({"max.compaction.lag.ms": "1000"})

    configs.check({"min.compaction.lag.ms": "1000"})

    with pytest.raises(ConfigError, match="larger"):
        configs.check({"min.compaction.lag.ms": "1001"})


def test_values_reach_storage_as_their_types() -> None:
    config = TopicConfigs({"segment.bytes": "4194304"}).log_config(
        {"cleanup.policy": "compact, delete", "retention.ms": " 60000 "}
    )

    assert config.cleanup_policy == {"compact", "delete"}
    assert (config.retention_ms, config.segment_bytes) == (60_000, 4 << 20)


@given(partition=integers(0, 10_000), jitter_ms=integers(0, 100_000))
def test_jitter_closes_segments_earlier_but_never_at_once(partition: int, jitter_ms: int) -> None:
    config = {"segment.ms": "50000", "segment.jitter.ms": str(jitter_ms)}

    log_config = TopicConfigs({}).log_config(config, partition=partition)

    assert max(1, 50_000 - jitter_ms) <= log_config.segment_ms <= 50_000


def test_each_value_says_where_it_comes_from() -> None:
    configs = TopicConfigs({"retention.ms": "1000", "segment.ms": "5000"})

    entries = {each.key.name: each for each in configs.describe({"retention.ms": "2000"})}

    assert list(entries) == sorted(KEYS)
    kept = entries["retention.ms"]
    assert (kept.value, kept.source) == ("2000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert kept.synonyms == (
        ("retention.ms", "2000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.retention.ms", "1000", ConfigSource.STATIC_BROKER_CONFIG),
    ), "Kafka's default is log.retention.hours"
    assert entries["segment.jitter.ms"].synonyms == ()
    assert entries["segment.jitter.ms"].source is ConfigSource.DEFAULT_CONFIG
    assert entries["segment.ms"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert entries["segment.ms"].synonyms[0].name == "log.roll.ms"
    assert entries["segment.bytes"].source is ConfigSource.DEFAULT_CONFIG


def test_only_the_keys_asked_for_are_described() -> None:
    entries = TopicConfigs({}).describe({}, ["segment.ms", "no.such.key"])

    assert [each.key.name for each in entries] == ["segment.ms"]


def changes(*each: tuple[str, ConfigOperation, str | None]) -> list[ConfigChange]:
    return [ConfigChange(*one) for one in each]


def test_single_settings_change_and_the_others_stay() -> None:
    scene = Scene()
    topic = scene.create("t", retention_ms="1000", segment_ms="2000")

    answer = scene.commit(
        scene.controller.alter_config(
            "t",
            changes(
                ("retention.ms", ConfigOperation.SET, "5000"),
                ("segment.ms", ConfigOperation.DELETE, None),
                ("cleanup.policy", ConfigOperation.APPEND, "compact"),
            ),
        )
    )

    assert answer is None
    assert topic.config == {"retention.ms": "5000", "cleanup.policy": "delete,compact"}
    assert scene.changes.configs_changed == {topic.topic_id: topic}


def test_a_list_loses_what_is_subtracted() -> None:
    scene = Scene()
    topic = scene.create("t", cleanup_policy="compact,delete")
    subtract = changes(("cleanup.policy", ConfigOperation.SUBTRACT, "delete"))

    scene.commit(scene.controller.alter_config("t", subtract))

    assert topic.config == {"cleanup.policy": "compact"}


def test_an_empty_cleanup_policy_keeps_everything() -> None:
    config = TopicConfigs({}).log_config({"cleanup.policy": " "})

    assert not config.is_deleted and not config.is_compacted


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("retention.ms", ConfigOperation.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("no.such", ConfigOperation.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("no.such", ConfigOperation.SET, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", ConfigOperation.SET, None), ErrorCode.INVALID_REQUEST),
        (("compression.type", ConfigOperation.SET, "brotli"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_one_wrong_change_leaves_everything_as_it_was(
    change: tuple[str, ConfigOperation, str | None], code: ErrorCode
) -> None:
    scene = Scene()
    scene.create("t")
    wanted = changes(("segment.ms", ConfigOperation.SET, "1000"), change)

    decision = scene.controller.alter_config("t", wanted)

    assert isinstance(decision.answer, RequestRefusal) and decision.answer.code is code
    assert not decision.records


def test_replacing_a_configuration_takes_back_what_is_not_named() -> None:
    scene = Scene()
    topic = scene.create("t", retention_ms="1000", segment_ms="2000")

    scene.commit(scene.controller.replace_config("t", {"segment.ms": "3000"}))

    assert topic.config == {"segment.ms": "3000"}


def test_a_value_that_is_set_already_is_not_written_again() -> None:
    scene = Scene()
    scene.create("t", retention_ms="1000")

    decision = scene.controller.replace_config("t", {"retention.ms": "1000"})

    assert decision.answer is None and not decision.records


def test_a_null_has_a_code_of_its_own_when_a_configuration_is_replaced() -> None:
    scene = Scene()
    scene.create("t")

    decision = scene.controller.replace_config("t", {"retention.ms": None})

    assert decision.answer is not None and decision.answer.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "code"),
    [("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION)],
)
def test_the_configuration_of_no_topic_cannot_change(name: str, code: ErrorCode) -> None:
    scene = Scene()

    one, all_of_it = (
        scene.controller.alter_config(name, []),
        scene.controller.replace_config(name, {}),
    )

    for decision in (one, all_of_it):
        assert decision.answer is not None and decision.answer.code is code


@pytest.mark.property
@given(value=text(max_size=30))
def test_any_text_is_either_a_value_or_refused(value: str) -> None:
    for key in TOPIC_KEYS:
        try:
            normal = key.normal(value)
        except ConfigError:
            continue
        assert key.normal(normal) == normal
