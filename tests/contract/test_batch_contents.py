"""Batches whose inside is not what their head says, and what topics want of the inside."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.protocol.error_codes import ErrorCode as E
from headwater.core_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader, seal
from headwater.core_log.records.compression import Buffer, compress
from headwater.core_log.records.record_codec import PlainRecord, decode_batch, encode_batch
from tests.contract.foreign_topics import Cluster
from tests.contract.records import NOW_MS
from tests.crash.plain_client import Wire

T = TypeVar("T")
COMPACT, DELETE = {"cleanup.policy": "compact"}, {"cleanup.policy": "delete"}
BOTH = {"cleanup.policy": "compact,delete"}
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = (("uncompressed", 0), ("gzip", GZIP), ("snappy", SNAPPY), ("lz4", LZ4), ("zstd", ZSTD))
LEVELS = {
    "compression.gzip.level": ("1", "9"),
    "compression.lz4.level": ("1", "17"),
    "compression.zstd.level": ("-100", "19"),
}
KNOWN = ("zstd", "lz4", "producer")
COMING, TRIES = (E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION), 1_000
"""What Apache Kafka says of a topic that was just made."""
LONG = 3_000
"""So many records are not looked into at once."""


def section(*keys: bytes | None) -> bytes:
    records = [PlainRecord(key, b"value", timestamp_ms=NOW_MS) for key in keys]
    return bytes(encode_batch(records)[HEADER_BYTES:])


def said(records: Buffer, count: int, code: int = 0) -> bytes:
    """A batch that says of its records what the test wants it to say."""
    head = BatchHeader(
        0, 49 + len(records), -1, 2, 0, code, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count
    )
    batch = bytearray().join((head.pack(), records))
    seal(batch)
    return bytes(batch)


ONE, TWO, MANY = section(b"k"), section(b"a", b"b"), section(*[b"k"] * LONG)
BEGINNINGS = {GZIP: b"\x1f\x8b", SNAPPY: b"", LZ4: b"\x04\x22\x4d\x18", ZSTD: b"\x28\xb5\x2f\xfd"}
GARBAGE = {
    f"{name}, {what}": said(begin + b"no such thing at all", 3, code)
    for name, code in (("gzip", GZIP), ("snappy", SNAPPY), ("lz4", LZ4), ("zstd", ZSTD))
    for what, begin in (("from the first byte", b""), ("behind its beginning", BEGINNINGS[code]))
}
CUT = {
    "gzip, cut off": said(bytes(compress(GZIP, MANY))[:-20], LONG, GZIP),
    "zstd, cut off": said(bytes(compress(ZSTD, MANY))[:-8], LONG, ZSTD),
}
MISCOUNTED = {
    "a thousand instead of one": said(ONE, 1000),
    "a thousand instead of one, gzip": said(compress(GZIP, ONE), 1000, GZIP),
    "one instead of two": said(TWO, 1),
    "one instead of two, gzip": said(compress(GZIP, TWO), 1, GZIP),
    "one more than many": said(MANY, LONG + 1),
    "one less than many, lz4": said(compress(LZ4, MANY), LONG - 1, LZ4),
    "bytes behind the last": said(ONE + b"abc", 1),
    "no records at all": said(b"", 1),
    "a record of negative length": said(b"\x01" + ONE[1:], 1),
    "a key longer than its record": said(ONE[:4] + b"\x40" + ONE[5:], 1),
}
WRONG = {**GARBAGE, **CUT, **MISCOUNTED}
KEYLESS = {
    "few": said(section(b"a", None, b"c", None), 4),
    "few, gzip": said(compress(GZIP, section(b"a", None, b"c", None)), 4, GZIP),
    "many": said(section(b"a", None, b"c", None, *[b"k"] * LONG), LONG + 4),
    "many, zstd": said(
        compress(ZSTD, section(b"a", None, b"c", None, *[b"k"] * LONG)), LONG + 4, ZSTD
    ),
}


async def asked(cluster: Cluster, work: Callable[[Wire], T]) -> T:
    host, port = cluster.endpoint.rsplit(":", 1)

    def connected() -> T:
        with Wire((host, int(port))) as wire:
            return work(wire)

    return await asyncio.to_thread(connected)


async def topic_of(cluster: Cluster, name: str, config: dict[str, str]) -> str:
    topic = f"{cluster.prefix}.{name}"
    await cluster.log.ensure_topic(TopicSettings(name=topic, config=config))
    return topic


def produced(wire: Wire, topic: str, batch: bytes, *, version: int = 9) -> Any:
    part = PartitionProduceData(index=0, records=memoryview(batch))
    data = [TopicProduceData(name=topic, partition_data=[part])]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)
    for _ in range(TRIES):
        answer = wire.ask(request, version).responses[0].partition_responses[0]
        if answer.error_code not in COMING:
            return answer
    raise AssertionError("the topic is led before long")


def fetched(wire: Wire, topic: str, version: int) -> int:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, partitions=[part])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
    code: int = wire.ask(request, version).responses[0].partitions[0].error_code
    return code


def code_of(kind: str, cluster: Cluster) -> E:
    """Apache Kafka has no words for what cannot be decompressed."""
    is_kafka = not hasattr(cluster.log, "running")
    return E.UNKNOWN_SERVER_ERROR if is_kafka and kind in GARBAGE | CUT else E.INVALID_RECORD


@pytest.mark.parametrize("config", [COMPACT, BOTH], ids=lambda each: each["cleanup.policy"])
async def test_a_compacted_topic_refuses_what_is_not_as_its_head_says(
    cluster: Cluster, config: dict[str, str]
) -> None:
    topic = await topic_of(cluster, "compacted", config)

    codes = await asked(
        cluster,
        lambda wire: {kind: produced(wire, topic, WRONG[kind]).error_code for kind in WRONG},
    )

    assert codes == {kind: code_of(kind, cluster) for kind in WRONG}
    assert await asked(cluster, lambda wire: wire.offset(topic, 0, -1)) == 0


@pytest.mark.parametrize("config", [COMPACT, BOTH], ids=lambda each: each["cleanup.policy"])
@pytest.mark.parametrize("kind", KEYLESS)
async def test_a_compacted_topic_refuses_records_without_a_key_and_names_them(
    cluster: Cluster, kind: str, config: dict[str, str]
) -> None:
    topic = await topic_of(cluster, "keyed", config)

    answer, older = await asked(
        cluster,
        lambda wire: (
            produced(wire, topic, KEYLESS[kind]),
            produced(wire, topic, KEYLESS[kind], version=7),
        ),
    )

    why = f"Compacted topic cannot accept message without key in topic partition {topic}-0"
    errors = [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors]
    assert (answer.error_code, answer.base_offset) == (E.INVALID_RECORD, -1)
    assert errors == [(1, why), (3, why)]
    assert answer.error_message
    assert older.error_code == E.INVALID_RECORD


async def test_a_topic_that_becomes_compacted_refuses_records_without_a_key_from_then_on(
    cluster: Cluster,
) -> None:
    topic = await topic_of(cluster, "later", DELETE)
    before = await asked(cluster, lambda wire: produced(wire, topic, KEYLESS["few"]))
    await cluster.log.topics.alter(topic, set_to=COMPACT)

    def until_refused(wire: Wire) -> int:
        for tried in range(TRIES):
            if produced(wire, topic, KEYLESS["few"]).error_code == E.INVALID_RECORD:
                return tried
        return TRIES

    tried = await asked(cluster, until_refused)

    is_kafka = not hasattr(cluster.log, "running")
    assert before.error_code == E.NONE
    assert tried == 0 or is_kafka, "a broker of one has its configuration at once"


async def test_others_are_served_while_a_long_batch_is_looked_into(cluster: Cluster) -> None:
    topic = await topic_of(cluster, "long", COMPACT)
    batches = [said(MANY, LONG), said(compress(LZ4, MANY), LONG, LZ4), said(ONE, 1)]

    def append(wire: Wire) -> list[int]:
        return [produced(wire, topic, batch).base_offset for batch in batches]

    both = await asyncio.gather(asked(cluster, append), asked(cluster, append))

    whole = 2 * (2 * LONG + 1)
    assert min(map(min, both)) == 0
    assert await asked(cluster, lambda wire: wire.offset(topic, 0, -1)) == whole


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "code"), CODECS)
@pytest.mark.parametrize("count", [3, LONG])
async def test_a_topic_compresses_what_it_gets_as_it_is_configured(
    cluster: Cluster, wanted: str, code: int, count: int
) -> None:
    topic = await topic_of(cluster, "codec", {"compression.type": wanted})
    records = [
        PlainRecord(b"%d" % n, b"value" * (n % 9), (("h", b"x"),), timestamp_ms=NOW_MS + n % 7)
        for n in range(count)
    ]
    sent = [encode_batch(records, compression=each) for _, each in CODECS]

    def append_and_read(wire: Wire) -> list[bytes]:
        for batch in sent:
            assert produced(wire, topic, bytes(batch)).error_code == E.NONE
        found: list[bytes] = []
        while len(found) < len(sent):
            read = wire.fetch(topic, {0: len(found) * count}, committed=False)[0]
            found += [each.data for each in read.batches]
        return found

    stored = [decode_batch(each) for each in await asked(cluster, append_and_read)]

    assert [header.compression for header, _ in stored] == [code] * len(sent)
    assert [header.base_offset for header, _ in stored] == [count * n for n in range(len(sent))]
    for number, (header, found) in enumerate(stored):
        at = number * count
        assert header.max_timestamp == max(each.timestamp_ms for each in records)
        assert found == [each._replace(offset=at + place) for place, each in enumerate(records)]


@pytest.mark.parametrize(("key", "levels"), LEVELS.items())
async def test_a_topic_compresses_as_hard_as_it_is_configured(
    cluster: Cluster, key: str, levels: tuple[str, str]
) -> None:
    codec = key.split(".")[1]
    records = [PlainRecord(b"%d" % n, b"%d" % (n * n * n), timestamp_ms=NOW_MS) for n in range(999)]
    topics = [
        await topic_of(cluster, f"level{number}", {"compression.type": codec, key: level})
        for number, level in enumerate(levels)
    ]

    def append_and_read(wire: Wire) -> list[bytes]:
        sizes = []
        for topic in topics:
            assert produced(wire, topic, bytes(encode_batch(records))).error_code == E.NONE
            [batch] = wire.fetch(topic, {0: 0}, committed=False)[0].batches
            sizes.append(batch.data)
        return sizes

    little, hard = await asked(cluster, append_and_read)

    assert len(hard) < len(little)
    assert [each.value for each in decode_batch(hard)[1]] == [each.value for each in records]


async def test_a_topic_of_zstd_is_served_by_every_version_of_fetch(cluster: Cluster) -> None:
    names = {codec: await topic_of(cluster, codec, {"compression.type": codec}) for codec in KNOWN}
    batch = bytes(encode_batch([PlainRecord(b"k", b"v", timestamp_ms=NOW_MS)]))

    def read(wire: Wire) -> list[int]:
        for topic in names.values():
            assert produced(wire, topic, batch).error_code == E.NONE
        return [fetched(wire, names[codec], version) for codec in KNOWN for version in (9, 10)]

    codes = await asked(cluster, read)

    assert codes == [E.NONE] * 2 * len(KNOWN)
