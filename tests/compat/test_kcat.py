"""kcat, on whatever librdkafka the system has, writes and reads: every codec, group and time."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.compat.stored_batches import stored_batches
from tests.crash.broker_process import BrokerProcess

pytestmark = pytest.mark.compat

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LINES = [f"key {number % 7}:value {number}" for number in range(300)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not here: scripts/kcat.sh")
    directory = tmp_path_factory.mktemp("kcat")
    process = BrokerProcess(directory / "data", directory / "broker.log", {})
    process.start()
    yield process
    process.stop()


def kcat(broker: BrokerProcess, *arguments: str, given: str | None = None) -> list[str]:
    done = subprocess.run(
        ["kcat", "-b", broker.address, "-X", "log_level=3", *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("number", "codec"), tuple(enumerate(CODECS)))
def test_lines_come_back_and_lie_compressed_on_disk(
    broker: BrokerProcess, number: int, codec: str
) -> None:
    topic = f"codec-{codec}"
    kcat(broker, "-P", "-t", topic, "-K:", "-z", codec, given="\n".join(LINES))

    read = kcat(broker, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k:%s\\n")

    assert read == LINES
    codecs = {each.compression for each in stored_batches(broker.data, topic)}
    assert number in codecs <= {number, 0}, "a batch that would not shrink is sent as it is"


def test_headers_and_an_idempotent_producer(broker: BrokerProcess) -> None:
    options = ("-H", "a=1", "-H", "b", "-X", "enable.idempotence=true")
    kcat(broker, "-P", "-t", "headers", *options, given="value")

    read = kcat(broker, "-C", "-t", "headers", "-e", "-q", "-f", "%h %o %s\\n")

    assert read == ["a=1,b=NULL 0 value"]


def test_a_group_goes_on_where_it_was(broker: BrokerProcess) -> None:
    group = ("-G", "readers", "-X", "auto.offset.reset=earliest", "-q", "grouped")
    kcat(broker, "-P", "-t", "grouped", given="1\n2\n3")
    first = kcat(broker, "-c", "2", *group)

    rest = kcat(broker, "-c", "1", *group)

    assert (first, rest) == (["1", "2"], ["3"])


def test_offsets_by_time_and_from_the_end(broker: BrokerProcess) -> None:
    kcat(broker, "-P", "-t", "times", given="1\n2\n3")

    assert kcat(broker, "-Q", "-t", "times:0:0") == ["times [0] offset 0"]
    assert kcat(broker, "-C", "-t", "times", "-p", "0", "-o", "-1", "-e", "-q") == ["3"]
    assert kcat(broker, "-C", "-t", "times", "-o", "s@0", "-o", "e@1", "-e", "-q") == []


def test_the_cluster_is_listed(broker: BrokerProcess) -> None:
    assert any(broker.address in line for line in kcat(broker, "-L"))
