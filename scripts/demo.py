"""The log's promise, watched: a million records, a broker killed in the middle, nothing missing."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

RECORDS = 1_000_000
RECORD_BYTES = 100
PARTITIONS = 4
TOPIC = "demo"
DIGITS = 12
PADDING = b"." * (RECORD_BYTES - DIGITS)
PATIENCE_S = 60
PROJECT = Path(__file__).resolve().parent.parent

Seen = Sequence["array[int]"]
"""The numbers of the records in each partition, in the order of their offsets."""

console = Console(highlight=False, soft_wrap=True)


@dataclass
class Broker:
    """A broker in a process of its own, so that it can be killed."""

    data: Path
    address: str = "127.0.0.1:0"
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once the broker answers; it comes back under the address it had before."""
        command = [sys.executable, "-m", "pipelines.cli", "broker", "--quiet"]
        command += ["--data", str(self.data), "--listen", self.address]
        self.process = subprocess.Popen(command, cwd=PROJECT)
        wait_until(self._is_listening, "the broker listens")
        self.address = self._endpoint()["kafka"]
        AdminClient({"bootstrap.servers": self.address, "log_level": 0}).list_topics(
            timeout=PATIENCE_S
        )

    def kill(self) -> None:
        """As hard as it gets: no signal handler runs, nothing is flushed."""
        assert self.process is not None, "what is killed has been started"
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def _is_listening(self) -> bool:
        assert self.process is not None, "who waits for a broker has started it"
        if self.process.poll() is not None:
            raise SystemExit(f"the broker ended with exit code {self.process.returncode}")
        return int(self._endpoint().get("pid", 0)) == self.process.pid

    def _endpoint(self) -> dict[str, str]:
        path = self.data / "endpoint.json"
        found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return found


@dataclass
class Writer:
    """Writes numbered records, idempotently, and remembers which were acknowledged."""

    address: str
    records: int
    count: int = 0

    def __post_init__(self) -> None:
        self.acknowledged = bytearray(self.records)

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 10,
                "queue.buffering.max.messages": 200_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,  # that the broker goes away is part of the show
            }
        )
        for number in range(self.records):
            value = b"%0*d" % (DIGITS, number) + PADDING
            while True:
                try:
                    producer.produce(TOPIC, value, on_delivery=self._note)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % 1000 == 0:
                producer.poll(0)
        producer.flush(PATIENCE_S)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[number_of(message)] = 1
            self.count += 1


@dataclass
class Reader:
    """Reads all partitions from the start, and keeps what it saw in the order of the offsets."""

    address: str
    until: Callable[["Reader"], bool]
    count: int = 0

    def __post_init__(self) -> None:
        self.seen: Seen = [array("q") for _ in range(PARTITIONS)]

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "demo",
                "enable.auto.commit": False,
                "enable.partition.eof": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        consumer.assign(
            [TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        )
        quiet_since = time.monotonic()
        while not self.until(self) and time.monotonic() - quiet_since < PATIENCE_S / 2:
            messages = [each for each in consumer.consume(20_000, 0.1) if each.error() is None]
            for message in messages:
                self.seen[message.partition() or 0].append(number_of(message))
            self.count += len(messages)
            if messages:
                quiet_since = time.monotonic()
        consumer.close()


def number_of(message: Message) -> int:
    return int((message.value() or b"")[:DIGITS])


@dataclass
class Timing:
    """What the clock said."""

    killed_at_count: int = 0
    back_after_s: float = 0
    produced_in_s: float = 0
    reread_in_s: float = 0


def main() -> int:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as directory:
        broker = Broker(Path(directory) / "data")
        try:
            return show(broker, records)
        finally:
            broker.stop()


def show(broker: Broker, records: int) -> int:
    broker.start()
    console.print(f"a broker listens on {broker.address}, its log is in {broker.data}")
    create_topic(broker.address)
    writer = Writer(broker.address, records)
    everything = Reader(broker.address, until=lambda reader: reader.count >= records)
    timing = Timing()
    with progress_of(writer, everything):
        run_through_a_crash(broker, writer, everything, timing)
    console.print("reading everything once more, from the start")
    end = sum_of_ends(broker)
    again = Reader(broker.address, until=lambda reader: reader.count >= end)
    started = time.perf_counter()
    again.run()
    timing.reread_in_s = time.perf_counter() - started
    return judge(writer.acknowledged, everything.seen, again.seen, timing)


def create_topic(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    wanted = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    admin.create_topics([wanted])[TOPIC].result()


def run_through_a_crash(broker: Broker, writer: Writer, reader: Reader, timing: Timing) -> None:
    """Writes and reads at once; in the middle the broker is killed and started again."""
    threads = [threading.Thread(target=each.run, daemon=True) for each in (writer, reader)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    wait_until(lambda: writer.count >= writer.records // 2, "half of the records are acknowledged")
    broker.kill()
    timing.killed_at_count, killed = writer.count, time.perf_counter()
    console.print(f"kill -9 after {timing.killed_at_count:,} acknowledged records")
    broker.start()
    timing.back_after_s = time.perf_counter() - killed
    console.print(f"the broker is back after {timing.back_after_s:.2f} s, on the same files")
    threads[0].join(PATIENCE_S)
    timing.produced_in_s = time.perf_counter() - started
    threads[1].join(PATIENCE_S)


def judge(acknowledged: bytearray, first: Seen, again: Seen, timing: Timing) -> int:
    """Prints the table; the exit code says whether the promise held."""
    faults = faults_of(acknowledged, first, again)
    read_count = sum(map(len, again))
    table = Table(title=f"{len(acknowledged):,} records and a kill -9", title_justify="left")
    table.add_column("records")
    table.add_column("", justify="right")
    table.add_row("acknowledged", f"{sum(acknowledged):,}")
    table.add_row("read back", f"{read_count:,}", end_section=True)
    for name, count in faults.items():
        table.add_row(name, f"{count:,}", style="red" if count else None)
    table.add_section()
    produced = rate(len(acknowledged), timing.produced_in_s)
    table.add_row("written and synced, crash included", produced)
    table.add_row("read again", rate(read_count, timing.reread_in_s))
    table.add_row("from kill -9 to the first answer", f"{timing.back_after_s:.2f} s")
    console.print(table)
    if any(faults.values()):
        console.print("the promise was broken", style="red")
        return 1
    console.print("nothing that was acknowledged is missing, and nothing is there twice")
    return 0


def faults_of(acknowledged: bytearray, first: Seen, again: Seen) -> dict[str, int]:
    """Every way in which the promise could be broken, counted."""
    copies = bytearray(len(acknowledged))
    for part in again:
        for number in part:
            copies[number] = min(copies[number] + 1, 255)
    return {
        "acknowledged, and missing": sum(
            is_acknowledged and not found
            for is_acknowledged, found in zip(acknowledged, copies, strict=True)
        ),
        "there more than once": sum(found > 1 for found in copies),
        "gone or changed since first read": sum(
            old != new
            for before, after in zip(first, again, strict=True)
            for old, new in zip_longest(before, after[: len(before)])
        ),
        "out of order within a partition": sum(
            earlier >= later for part in again for earlier, later in pairwise(part)
        ),
        "never acknowledged": len(acknowledged) - sum(acknowledged),
    }


def rate(count: int, seconds: float) -> str:
    megabytes = count * RECORD_BYTES / 1e6 / seconds
    return f"{count / seconds:,.0f} records/s, {megabytes:,.0f} MB/s"


def sum_of_ends(broker: Broker) -> int:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "demo", "log_level": 0})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=PATIENCE_S)[1]
        for number in range(PARTITIONS)
    ]
    consumer.close()
    return sum(ends)


@contextmanager
def progress_of(writer: Writer, reader: Reader) -> Iterator[None]:
    """Two bars on a terminal, one line a second elsewhere, until the block ends."""
    over = threading.Event()

    def lines() -> None:
        while not over.wait(1):
            console.print(f"acknowledged {writer.count:,}, read {reader.count:,}")

    def bars() -> None:
        columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=console) as progress:
            written = progress.add_task("acknowledged", total=writer.records)
            read = progress.add_task("read", total=writer.records)
            while True:
                is_over = over.wait(0.1)
                progress.update(written, completed=writer.count)
                progress.update(read, completed=reader.count)
                if is_over:
                    return

    thread = threading.Thread(target=bars if console.is_terminal else lines)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def wait_until(is_so: Callable[[], bool], sentence: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"not so within {PATIENCE_S} s: {sentence}")
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main())
