"""The commands over a running log do what they say, and say in words what cannot be done."""

import json
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer

from headwater.pipelines.journal.internal_topics import AUDIT, POSITIONS
from headwater.pipelines.terminal import exit_codes
from tests.budget import PATIENCE_S
from tests.pipelines.conftest import Headwater, Ran
from tests.pipelines.run_process import address_of, end, running, start_broker


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a broker that runs for all tests here."""
    directory = tmp_path_factory.mktemp("running") / "data"
    broker = start_broker(directory)
    yield directory
    assert end(broker, signal.SIGTERM)[0] == exit_codes.TERMINATED


@pytest.fixture
def topic(headwater: Headwater, data: Path) -> str:
    """A topic of one's own, with two partitions."""
    name = f"orders-{uuid4().hex[:8]}"
    created = headwater("topics", "create", name, "--partitions", 2, "--data", data)
    assert created.code == exit_codes.OK
    return name


def produce(headwater: Headwater, data: Path, topic: str, lines: str, *options: object) -> Ran:
    """From a real file, since the command reads the descriptor itself."""
    with tempfile.TemporaryFile() as stdin:
        stdin.write(lines.encode())
        stdin.seek(0)
        return headwater("produce", topic, "--data", data, *options, stdin=stdin)


def write(headwater: Headwater, data: Path, topic: str, lines: str, *options: object) -> None:
    ran = produce(headwater, data, topic, lines, *options)
    assert ran.code == exit_codes.OK, ran.remarks


def records(headwater: Headwater, data: Path, topic: str, *options: object) -> list[str]:
    """Key and value of everything that a topic holds."""
    ran = headwater(
        "tail", topic, "--from", "earliest", "--no-follow", "--json", "--data", data, *options
    )
    found = [json.loads(line)["data"] for line in ran.data.splitlines()]
    return [f"{each['key']}={each['value']}" for each in found]


def test_topics_that_pipelines_keep_for_themselves_are_listed_when_asked_for(
    headwater: Headwater, data: Path, topic: str
) -> None:
    assert headwater("topics", "create", POSITIONS, "--data", data).code == exit_codes.OK

    plain = headwater("topics", "ls", "--json", "--data", data).envelope["data"]
    listed = headwater("topics", "ls", "--internal", "--json", "--data", data).envelope["data"]
    described = headwater("topics", "describe", POSITIONS, "--json", "--data", data)
    deleted = headwater("topics", "delete", POSITIONS, "--yes", "--data", data)

    assert topic in {each["topic"] for each in plain}
    assert POSITIONS not in {each["topic"] for each in plain}
    assert {each["topic"]: each["internal"] for each in listed}[POSITIONS] is True
    assert described.envelope["data"]["internal"] is True
    assert deleted.code == exit_codes.OK


def test_changes_of_a_topic_are_recorded(headwater: Headwater, data: Path, topic: str) -> None:
    headwater("topics", "config", topic, "retention.ms=1000", "--data", data)
    headwater("topics", "delete", topic, "--yes", "--data", data)

    recorded = [json.loads(each.partition("=")[2]) for each in records(headwater, data, AUDIT)]
    done = [
        (each["command"], each["options"])
        for each in recorded
        if each["target"] == topic and each["outcome"] == "done"
    ]
    assert done == [
        ("topics create", {}),
        ("topics config", {"retention.ms": "1000"}),
        ("topics delete", {}),
    ]


@pytest.mark.slow
def test_a_topic_has_no_more_replicas_than_there_are_brokers(
    headwater: Headwater, data: Path
) -> None:
    ask = ("topics", "create", "replicated", "--data", data, "--replication-factor")

    refused = headwater(*ask, 2)
    created = headwater(*ask, 1)
    shown = headwater("topics", "describe", "replicated", "--json", "--data", data)

    assert refused.code != exit_codes.OK
    assert "larger than the number of brokers" in refused.remarks
    assert created.code == exit_codes.OK
    assert shown.envelope["data"]["partitions"][0]["replicas"] == "1"


def test_a_topic_is_created_listed_described_and_deleted(
    headwater: Headwater, data: Path, topic: str
) -> None:
    listed = headwater("topics", "ls", "--json", "--data", data).envelope["data"]
    described = headwater("topics", "describe", topic, "--json", "--data", data).envelope["data"]
    deleted = headwater("topics", "delete", topic, "--yes", "--data", data)
    after = headwater("topics", "describe", topic, "--data", data)

    assert {"topic": topic, "partitions": 2, "offsets": 0, "internal": False} in listed
    assert [part["end"] for part in described["partitions"]] == [0, 0]
    assert deleted.data == f"deleted {topic}\n"
    assert after.code == exit_codes.INVALID and "does not exist" in after.remarks


def test_a_topic_is_created_once(headwater: Headwater, data: Path, topic: str) -> None:
    again = headwater("topics", "create", topic, "--data", data)

    assert again.code == exit_codes.INVALID
    assert f"topic exists already (topic='{topic}')" in again.remarks


@pytest.mark.parametrize("name", ["../x", "a" * 250, "", "a b"])
def test_a_name_that_no_topic_can_have_is_refused(
    headwater: Headwater, data: Path, name: str
) -> None:
    ran = headwater("topics", "create", name, "--data", data)

    assert ran.code == exit_codes.INVALID
    assert "the name is not valid for a topic" in ran.remarks


def test_configuration_is_shown_and_changed(headwater: Headwater, data: Path, topic: str) -> None:
    def shown(*changes: str) -> list[dict[str, object]]:
        ran = headwater("topics", "config", topic, *changes, "--json", "--data", data)
        return list(ran.envelope["data"])

    assert shown() == []
    changed = {"name": "retention.ms", "value": "1000", "default": False}
    assert shown("retention.ms=1000") == [changed]
    assert shown("--unset", "retention.ms") == []


@pytest.mark.parametrize("change", ["retention.ms=soon", "no.such.key=1", "retention.ms"])
def test_configuration_that_cannot_be_is_refused(
    headwater: Headwater, data: Path, topic: str, change: str
) -> None:
    ran = headwater("topics", "config", topic, change, "--data", data)

    assert ran.code == exit_codes.INVALID
    assert "Traceback" not in ran.remarks


@pytest.mark.parametrize("kind", ["topics", "groups"])
def test_a_script_that_did_not_say_yes_deletes_nothing(
    headwater: Headwater, data: Path, topic: str, kind: str
) -> None:
    ran = headwater(kind, "delete", topic, "--data", data)

    assert ran.code == exit_codes.INVALID
    assert "add --yes" in ran.remarks
    assert headwater("topics", "describe", topic, "--data", data).code == exit_codes.OK


@pytest.mark.slow
def test_lines_become_records_in_their_order(headwater: Headwater, data: Path, topic: str) -> None:
    lines = [f"line {number}" for number in range(1000)]

    ran = produce(headwater, data, topic, "\n".join(lines))

    assert (ran.code, ran.remarks) == (exit_codes.OK, "1,000 records appended\n")
    found = records(headwater, data, topic)
    assert sorted(found) == sorted(f"None={line}" for line in lines)
    by_partition = [records(headwater, data, topic, "--partition", number) for number in range(2)]
    for part in by_partition:
        assert part == sorted(part, key=lambda record: int(record.split()[-1]))


def test_a_line_is_split_into_key_and_value(headwater: Headwater, data: Path, topic: str) -> None:
    lines = "".join(f"key {number % 5}::value {number}::more\n" for number in range(50))

    ran = produce(headwater, data, topic, lines, "--key-separator", "::", "--json")

    assert ran.envelope["data"]["records"] == 50
    found = records(headwater, data, topic)
    for key in range(5):
        mine = [each for each in found if each.startswith(f"key {key}=")]
        assert mine == [f"key {key}=value {number}::more" for number in range(key, 50, 5)]


def test_a_line_without_a_key_is_named_by_its_number(
    headwater: Headwater, data: Path, topic: str
) -> None:
    ran = produce(headwater, data, topic, "a:1\nb:2\nno key here\n", "--key-separator", ":")

    assert ran.code == exit_codes.INVALID
    assert "the line has no key (line=3" in ran.remarks


@pytest.mark.parametrize("acks", ["0", "1"])
def test_weaker_acknowledgements_append_as_well(
    headwater: Headwater, data: Path, topic: str, acks: str
) -> None:
    ran = produce(headwater, data, topic, "one\ntwo\n", "--acks", acks)

    assert ran.code == exit_codes.OK
    assert records(headwater, data, topic) == ["None=one", "None=two"]


@pytest.mark.slow
def test_a_record_that_the_topic_does_not_take_is_refused(
    headwater: Headwater, data: Path, topic: str
) -> None:
    noise = "".join(uuid4().hex for _ in range(70_000))

    ran = produce(headwater, data, topic, f"{noise}\n")

    assert ran.code == exit_codes.INVALID
    assert "larger than the topic takes" in ran.remarks


@pytest.mark.slow
def test_producing_drains_on_the_first_signal(headwater: Headwater, data: Path, topic: str) -> None:
    with running("produce", topic, "--data", data) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write("first\nsecond\nhalf a li")
        process.stdin.flush()
        wait_for(lambda: len(records(headwater, data, topic)) == 2)

        process.send_signal(signal.SIGINT)

        assert process.wait(PATIENCE_S) == exit_codes.INTERRUPTED
        assert process.stderr.read() == "2 records appended\n"
    assert records(headwater, data, topic) == ["None=first", "None=second"]


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_tail_shows_what_comes_until_it_is_stopped(
    headwater: Headwater, data: Path, topic: str
) -> None:
    with running("tail", topic, "--from", "earliest", "--data", data) as process:
        assert process.stdout is not None and process.stderr is not None

        write(headwater, data, topic, "k:v\n", "--key-separator", ":")

        assert process.stdout.readline().split("\t")[2:] == ["k", "v\n"]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == exit_codes.INTERRUPTED
        assert process.stderr.read() == ""


@pytest.mark.slow
def test_a_reader_that_leaves_a_pipe_is_no_error(
    headwater: Headwater, data: Path, topic: str
) -> None:
    with running("tail", topic, "--from", "earliest", "--data", data) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()

        write(headwater, data, topic, "one\n")

        assert process.wait(PATIENCE_S) == exit_codes.OK
        assert process.stderr.read() == ""


@pytest.mark.slow
def test_reading_begins_where_it_is_told_to(headwater: Headwater, data: Path, topic: str) -> None:
    write(
        headwater,
        data,
        topic,
        "".join(f"k:{number}\n" for number in range(10)),
        "--key-separator",
        ":",
    )
    (home,) = (n for n in range(2) if records(headwater, data, topic, "--partition", n))

    def values(place: str, *options: object) -> list[str]:
        ran = headwater(
            "tail", topic, "--from", place, "--no-follow", "--data", data, "-q", *options
        )
        return [line.split("\t")[3] for line in ran.data.splitlines()]

    everything = [str(number) for number in range(10)]
    assert values("7", "--partition", home) == ["7", "8", "9"]
    assert values(f"{home}:8") == ["8", "9"]
    assert values("latest") == []
    assert values("10", "--partition", home) == []
    assert values("2020-01-01") == values("1h") == everything
    assert values("2100-01-01T00:00") == []
    assert values("earliest", "--count", 3) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--from", "7"], "an offset belongs to one partition, and the topic has several"),
        (["--from", "99", "--partition", "0"], "the log does not have this offset"),
        (["--from", "5:0"], "the topic does not have this partition"),
        (["--partition", "5"], "the topic does not have this partition"),
        (["--from", "the beginning"], "the text is not a place in a log"),
        (["--from", "2026-13-01"], "the text is not a place in a log"),
        (["--count", "0"], "0 is not in the range"),
    ],
)
def test_a_place_that_is_not_there_is_refused(
    headwater: Headwater, data: Path, topic: str, options: list[str], problem: str
) -> None:
    ran = headwater("tail", topic, "--no-follow", "--data", data, *options)

    assert ran.code == exit_codes.INVALID
    assert problem in ran.remarks
    assert ran.data == ""


def test_a_broker_alone_is_a_healthy_cluster(headwater: Headwater, data: Path, topic: str) -> None:
    ran = headwater("cluster", "status", "--json", "--data", data)

    assert ran.code == exit_codes.OK, ran.remarks
    state = ran.envelope["data"]
    assert state["quorum"].startswith("leader 1, epoch ")
    assert [(each["node"], each["vote"], each["metadata_lag"]) for each in state["nodes"]] == [
        (1, "leader", 0)
    ]
    assert state["nodes"][0]["leads"] == state["nodes"][0]["in_sync"] >= 2
    assert state["problems"] == []


@pytest.mark.slow
def test_a_topic_that_is_not_there_is_not_made_by_looking(headwater: Headwater, data: Path) -> None:
    tailed = headwater("tail", "no-such-topic", "--data", data)
    produced = produce(headwater, data, "no-such-topic", "x\n")

    assert tailed.code == produced.code == exit_codes.INVALID
    assert "does not exist (topic='no-such-topic')" in tailed.remarks
    assert "does not exist (topic='no-such-topic')" in produced.remarks
    assert "no-such-topic" not in headwater("topics", "ls", "--data", data).data


@pytest.mark.slow
def test_a_group_is_reset_described_and_deleted(
    headwater: Headwater, data: Path, topic: str
) -> None:
    group = f"readers-of-{topic}"
    write(
        headwater,
        data,
        topic,
        "".join(f"k:{number}\n" for number in range(10)),
        "--key-separator",
        ":",
    )

    tried = headwater(
        "groups", "reset", group, "--topic", topic, "--to", "earliest", "--dry-run", "--data", data
    )
    unknown = headwater("groups", "describe", group, "--data", data)
    headwater("groups", "reset", group, "--topic", topic, "--to", "earliest", "--data", data)
    described = headwater("groups", "describe", group, "--json", "--data", data).envelope["data"]
    listed = headwater("groups", "ls", "--data", data)
    deleted = headwater("groups", "delete", group, "--yes", "--data", data)
    gone = headwater("groups", "delete", group, "--yes", "--data", data)

    assert "nothing was changed" in tried.remarks
    assert unknown.code == exit_codes.INVALID and "group does not exist" in unknown.remarks
    assert sum(part["lag"] for part in described["partitions"]) == 10
    assert group in listed.data
    assert deleted.data == f"deleted {group}\n"
    assert gone.code == exit_codes.INVALID


@pytest.mark.slow
def test_a_group_at_work_is_not_moved(headwater: Headwater, data: Path, topic: str) -> None:
    group = f"workers-on-{topic}"
    consumer = Consumer({"bootstrap.servers": address_of(data), "group.id": group})
    consumer.subscribe([topic])
    wait_for(lambda: consumer.poll(0.05) is None and len(consumer.assignment()) == 2)

    moved = headwater(
        "groups", "reset", group, "--topic", topic, "--to", "earliest", "--data", data
    )
    described = headwater("groups", "describe", group, "--json", "--data", data).envelope["data"]
    consumer.close()

    assert moved.code == exit_codes.INVALID
    assert "the group has running consumers" in moved.remarks
    assert [member["client"] for member in described["members"]] == ["rdkafka"]
    assert {part["partition"] for part in described["partitions"]} == {0, 1}
