"""Lists of throttled replicas mean what they mean in Kafka, and others are refused."""

import pytest

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.replica_placement import (
    EVERY,
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    partitions_on,
)
from headwater.core_log.replication.config_keys import ConfigSource
from headwater.core_log.replication.topic_config import TopicConfigs

KEYS = pytest.mark.parametrize("key", [LEADER_REPLICAS, FOLLOWER_REPLICAS])


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("", frozenset()),
        ("*", EVERY),
        (" * ", EVERY),
        ("0:1,1:2,7:1", {0, 7}),
        (" 0:1 , 3:11, 12:1,", {0, 12}),
        ("1:2", frozenset()),
    ],
)
def test_a_list_names_the_partitions_of_a_broker(text: str, partitions: frozenset[int]) -> None:
    TopicConfigs({}).check({LEADER_REPLICAS: text})

    assert partitions_on(1, text) == partitions


@KEYS
@pytest.mark.parametrize(
    "text", ["none", "0", "0:", ":1", "0:1:2", "0:-1", "*,0:1", "0:1;1:2", "٣:1"]
)
def test_another_list_is_refused(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match="partition:broker"):
        TopicConfigs({}).check({key: text})


@KEYS
def test_only_a_topic_itself_has_a_list(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} has no default"):
        TopicConfigs({key: "*"})

    (unset,), (of_topic,) = (TopicConfigs({}).describe(each, [key]) for each in ({}, {key: "*"}))

    assert (unset.value, unset.source, unset.synonyms) == ("", ConfigSource.DEFAULT_CONFIG, ())
    assert [each.source for each in of_topic.synonyms] == [ConfigSource.DYNAMIC_TOPIC_CONFIG]
