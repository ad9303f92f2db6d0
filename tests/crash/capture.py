"""A server with a load on it, a broker, and a pipeline between them and a target."""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from headwater.core_log.client import KafkaLog
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.record_headers import header_column
from headwater.core_log.rows.codec import AT_HEADER
from headwater.pipelines.file.loader import load
from headwater.pipelines.journal.internal_topics import read_decided
from headwater.pipelines.journal.schemas import topics_of
from headwater.pipelines.running.data_directory_lock import kafka_settings
from headwater.pipelines.running.supervisor import CRASHES_MAX
from scripts.free_port import free_port
from tests.crash.captured_server import CapturedServer
from tests.crash.command_process import PATIENCE_S, CommandProcess
from tests.crash.postgres_load import TABLES

PIPELINE = """
pipeline: {name}
workers: {workers}
source: {source}
log: {{type: kafka, bootstrap: "{log}"}}
sink: {{type: sql, url: "sqlite:///shop.db", commit_every: 100ms}}
errors: {{retry: {{for: 10m, backoff: 50ms..400ms}}}}
"""
CHILD_KILLS_MAX = CRASHES_MAX - 1
"""Within ten minutes; a task whose process is killed once more is quarantined."""
QUESTIONS = {
    "orders": "SELECT id, note, n, big FROM orders",
    "items": "SELECT order_id, line, n FROM items",
}


class LogProcesses(Protocol):
    """The brokers of the log."""

    @property
    def addresses(self) -> Sequence[str]: ...
    def start(self) -> None: ...
    def end(self) -> None: ...


class Capture:
    """Broker and pipeline are processes of their own; `address` is the source's in the file."""

    def __init__(
        self,
        server: CapturedServer,
        name: str,
        directory: Path,
        *,
        address: str = "",
        workers: str = "0",
        pipeline: str = PIPELINE,
        tables: Sequence[str] = TABLES,
        captured: str = "*",
        cluster: LogProcesses | None = None,
    ) -> None:
        """`captured` is a pattern of the names of tables; `cluster` is the log in place of a broker
        of its own."""
        self.server, self.name, self.directory = server, name, directory
        self.workers = workers
        server.create(name, tables)
        self.namespace = server.namespace_of(name)
        self.log = ",".join(cluster.addresses) if cluster else f"127.0.0.1:{free_port()}"
        self.file = directory / "pipeline.yaml"
        source = {
            **server.source_of(name),
            "url": address or server.address_of(name),
            "tables": [f"{self.namespace}.{captured}"],
        }
        about = {"name": name, "workers": workers, "log": self.log}
        self.file.write_text(pipeline.format(source=json.dumps(source), **about))
        alone = ("broker", "--data", directory / "log", "--listen", self.log)
        self.broker: LogProcesses | CommandProcess = cluster or self._command(*alone)
        self.runner = self._command("run", self.file)

    def _command(self, *arguments: object) -> CommandProcess:
        output = self.directory / f"{arguments[0]}.log"
        return CommandProcess(arguments, directory=self.directory, output=output)

    def disasters(self) -> list[Callable[[], None]]:
        """What happens to whom; each is there again at once."""

        def kill_runner() -> None:
            self.runner.kill()
            self.runner.start()

        def kill_broker() -> None:
            assert isinstance(self.broker, CommandProcess), "a cluster has disasters of its own"
            self.broker.kill()
            self.broker.start()

        def kill_server() -> None:
            self.server.kill()
            self.server.start()

        def stop_server() -> None:
            self.server.stop()
            self.server.start()

        everybody = [kill_runner, kill_broker, kill_server, stop_server]
        is_quarantine_next = self.runner.child_kills == CHILD_KILLS_MAX
        if self.workers == "0" or is_quarantine_next:
            return everybody
        return [self.runner.kill_children, *everybody]

    def command(
        self, *arguments: object, attempts: int = 1, patience_s: float = PATIENCE_S
    ) -> None:
        """Another one beside the runner, to its good end; who has just been killed may not be there
        again for the first attempts."""
        for _ in range(attempts):
            command = self._command(*arguments)
            command.start()
            if command.wait(patience_s) == 0:
                return
        raise AssertionError(command.last_words())

    def finish(self, patience_s: float = PATIENCE_S) -> None:
        """To the end of what has been written."""
        self.runner.stop()
        self.command("run", self.file, "--once", patience_s=patience_s)

    def differences(self) -> dict[str, tuple[int, int]]:
        """Table to how many rows only the source has, and only the target."""
        found = {}
        with closing(sqlite3.connect(self.directory / "shop.db")) as target:
            listed = target.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            made = {name for (name,) in listed}  # not before there is something to put in
            for table, question in QUESTIONS.items():
                there = Counter(self.server.execute(self.name, question))
                here = Counter(target.execute(question).fetchall()) if table in made else Counter()
                if there != here:
                    found[table] = ((there - here).total(), (here - there).total())
        return found

    def repeated(self) -> dict[str, int]:
        """Changes that are in the log more than once, by their places at the source, and keys whose
        rows were read more than once."""
        return asyncio.run(self._repeated())

    async def _repeated(self) -> dict[str, int]:
        [loaded] = load(self.file, environment={})
        log = KafkaLog(kafka_settings(loaded, self.log.split(",")))
        try:
            seen: Counter[str] = Counter()
            for topic in await topics_of(log, loaded.name):
                for number in range(await log.partition_count(topic)):
                    partition = TopicPartition(topic, number)
                    async for columns in read_decided(log, partition):
                        whole = columns.values.is_valid()
                        places = header_column(columns.headers, AT_HEADER).filter(whole)
                        keys = columns.keys.filter(whole).to_pylist()
                        values = columns.values.filter(whole).to_pylist()
                        seen.update(
                            f"{topic} read {key.decode()}"
                            for key, value in zip(keys, values, strict=True)
                            if b'"op":"r"' in value
                        )
                        seen.update(
                            f"{topic} {at.decode()} {key.decode()}"
                            for at, key in zip(places.to_pylist(), keys, strict=True)
                        )
            return {place: count for place, count in seen.items() if count > 1}
        finally:
            await log.close()

    def close(self) -> None:
        self.runner.end()
        self.broker.end()
        self.server.drop(self.name)
