"""A source whose tables change their rows and forms at random, beside kills, and its targets."""

import logging
import os
import signal
import sqlite3
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import yaml

from headwater.connectors.postgres.publication import monitor
from headwater.connectors.snapshot import reread_limits
from tests.crash.background_writer import BackgroundWriter
from tests.crash.command_process import CommandProcess
from tests.crash.ddl_dialect import DdlDialect
from tests.crash.ddl_targets import HISTORIES, ROWS, Target, Truth
from tests.crash.ddl_writer import DdlWriter

logger = logging.getLogger(__name__)

SETTLE = "300ms"
LOOK_S = 0.2
PATIENCE_S = int(os.environ.get("HEADWATER_DDL_PATIENCE", 600))


def be_quick() -> None:
    """Lets a table be read again more than twice within an hour, and looks for tables that are made
    anew more than once a minute."""
    reread_limits.HOUR_MS = 0
    monitor.LOOK_MS = 1_000


class World:
    """A source whose tables change their forms, and `headwater run` with some targets."""

    def __init__(
        self,
        dialect: DdlDialect,
        database: str,
        directory: Path,
        targets: list[Target],
        seed: int,
    ) -> None:
        self.directory, self.targets = directory, targets
        self.seed, self.random, self.name = seed, Random(seed), f"ddl{seed}"
        self.disasters = Counter[str]()
        may_unlog = self.random.random() < 0.3
        for statement in dialect.made():
            dialect.server.execute(database, statement)
        if may_unlog:
            dialect.publish(database, self.name)
        self.file = directory / "pipeline.yaml"
        snapshot: dict[str, Any] = {"chunk_rows": 50, "parallel": 2}
        if self.random.random() < 0.5:
            snapshot["max_rows_per_second"] = 400
        self.file.write_text(
            yaml.safe_dump(
                {
                    "pipeline": {"name": self.name, "schema_changes": {"settle": SETTLE}},
                    "workers": 0,
                    "source": source_of(dialect, database) | {"snapshot": snapshot},
                    "sink": [
                        {**each.settings, "commit_every": self.random.choice(("0s", "200ms", "1s"))}
                        for each in targets
                    ],
                    "errors": {"retry": {"for": "10m", "backoff": "50ms..400ms"}},
                }
            )
        )
        self.runner = self._command("run", self.file)
        self.truth = Truth(dialect, database, is_whole=not may_unlog)
        self.ddl = DdlWriter(
            dialect,
            database,
            seed=seed,
            output=directory / "history",
            may_unlog=may_unlog,
            keeps_types=any(each.mode in HISTORIES for each in targets),
            share=self.random.choice((0.03, 0.1, 0.3)),
            is_in_place=self.random.random() < 0.4,
        )
        self.writer = BackgroundWriter(self.ddl.work)

    def _command(self, *arguments: object) -> CommandProcess:
        output = self.directory / f"{arguments[0]}.log"
        return CommandProcess(arguments, directory=self.directory, output=output, before=be_quick)

    @property
    def said(self) -> str:
        """What its runs have written."""
        return (self.directory / "run.log").read_text(errors="replace")

    def live(self, disasters: int) -> None:
        if self.random.random() < 0.5:  # else rows are read while forms change
            self.runner.start()
            self._until_equal()
            self.truth.begin()
            self.writer.start()
        else:
            self.writer.start()
            self.runner.start()
        for _ in range(disasters):
            self.writer.wait_for(self.random.randrange(120))
            disaster = self.random.choice((self._kill, self._stop, self._freeze))
            disaster()
            self.disasters[disaster.__name__.strip("_")] += 1
        self.writer.wait_for(self.random.randrange(120))
        self.writer.stop()

    def _kill(self) -> None:
        self.runner.kill()
        if self.random.random() < 0.5:
            self.writer.wait_for(self.random.randrange(30))
        self.runner.start()

    def _stop(self) -> None:
        self.runner.stop()
        self.writer.wait_for(self.random.randrange(30))
        self.runner.start()

    def _freeze(self) -> None:
        """It falls behind."""
        pid = self.runner.pid
        os.kill(pid, signal.SIGSTOP)
        self.writer.wait_for(self.random.randrange(60))
        os.kill(pid, signal.SIGCONT)

    def finish(self) -> None:
        if self.random.random() < 0.5:
            self._until_equal()
            return
        self.runner.stop()
        once = self._command("run", self.file, "--once")
        once.start()
        assert once.wait() == 0, once.last_words()

    def differences(self) -> dict[str, list[str]]:
        found = {each.name: self.truth.differences(each) for each in self.targets}
        return {name: said for name, said in found.items() if said}

    def verify(self) -> None:
        """While the pipeline runs, a table without rows may still get a new form in its target."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            verify = self._command("verify", self.name, "-f", self.file)
            verify.start()
            if (code := verify.wait()) == 0:
                return
            is_running = self.runner.is_started and self.runner.poll() is None
            assert is_running and time.monotonic() < deadline, (code, verify.last_words())
            time.sleep(LOOK_S)

    def counted(self) -> Counter[str]:
        """Returns what happened in it."""
        found = {"worlds": 1, "statements": self.ddl.statements, "targets": len(self.targets)}
        return Counter(found) + self.disasters

    def close(self) -> None:
        self.writer.stop()
        self.runner.end()

    def _until_equal(self) -> None:
        """What never becomes equal is shown."""
        deadline = time.monotonic() + PATIENCE_S
        while self._still_differs():
            assert self.runner.poll() is None, self.runner.last_words()
            if time.monotonic() > deadline:
                differences = self.differences()
                assert differences == {}, differences
            time.sleep(LOOK_S)

    def _still_differs(self) -> bool:
        with suppress(sqlite3.OperationalError, FileNotFoundError):  # it is being swapped
            return any(self.truth.differences(each) for each in self.targets)
        return True


def source_of(dialect: DdlDialect, database: str) -> dict[str, Any]:
    server = dialect.server
    namespace = server.namespace_of(database)
    return server.source_of(database) | {
        "url": server.address_of(database),
        "tables": [f"{namespace}.{name}" for name in dialect.tables],
    }


def targets_of(
    random: Random, directory: Path, postgres: str, mariadb: str, *, namespace: str = "public"
) -> list[Target]:
    """Of rows, or of histories, and then plain files of changes too."""
    modes, found = random.choice((ROWS, HISTORIES)), list[Target]()
    for mode in modes:
        kind = random.choice(("sqlite", "postgres", "mariadb", "delta", "iceberg"))
        address = {
            "sqlite": f"sqlite:///{directory}/{mode}.db",
            "postgres": postgres,
            "mariadb": mariadb,
            "delta": f"{directory}/{mode}",
            "iceberg": f"{directory}/{mode}",
        }[kind]
        found.append(Target(kind, mode, address, namespace))
    if modes is HISTORIES:
        found.append(Target("parquet", "append", f"{directory}/parquet", namespace))
    return found


def lived(world: World, *, disasters: int) -> None:
    names = [each.name for each in world.targets]
    logger.info("HEADWATER_DDL_SEED=%d: %s in %s", world.seed, names, world.directory)
    try:
        world.live(disasters)
        world.finish()

        differences = world.differences()
        assert differences == {}, differences
        assert "another key than those of their topic" not in world.said, "the log refused records"
        world.verify()
    finally:
        world.close()
