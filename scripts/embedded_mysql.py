"""A MySQL or MariaDB of its own with a binary log, on a free loopback port, to start and to kill:
for demos and tests."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pymysql

from scripts.embedded_postgres import (
    POLL_S,
    run_as_nobody,
    start_as_nobody,
    temporary_directory,
)
from scripts.free_port import free_port

Kind = Literal["mysql-9", "mysql-8.0", "mariadb", "mariadb-11.8"]
FETCHED: Mapping[str, str] = {"mysql-9": "9", "mysql-8.0": "8.0", "mariadb-11.8": "mariadb-11.8"}
"""The servers that scripts/fetch_mysql.sh unpacks; `mariadb` is the system's own."""
SETTINGS = {
    "server-id": "1",
    "binlog-format": "ROW",
    "binlog-row-metadata": "FULL",
    "sync-binlog": "0",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-buffer-pool-size": "64M",
    "default-time-zone": "+09:00",
    "skip-name-resolve": "ON",
    "max-connections": "200",
}
MYSQL = {
    "gtid-mode": "ON",
    "enforce-gtid-consistency": "ON",
    "innodb-redo-log-capacity": "16M",
    "secure-file-priv": "",
    "mysqlx": "OFF",
}
MARIADB = {"innodb-log-file-size": "8M", "innodb-flush-method": "nosync"}
NOBODY_LISTENS = 2003

LOCK_TIMEOUT = "SET lock_wait_timeout = 120"
"""A statement fails where it waits for a source that waits for the test: nobody else would."""


class MysqlMissing(Exception):
    """There are no programs of MySQL here."""


@dataclass(frozen=True, slots=True)
class Programs:
    """How the server's programs are called, and what they need to be told at every call."""

    server: Sequence[str]
    options: Sequence[str] = ()
    environment: Mapping[str, str] | None = None


def programs_of(kind: Kind) -> Programs:
    if kind == "mariadb":
        found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if found is None:
            raise MysqlMissing("MariaDB is not here: scripts/databases.sh installs it")
        return Programs([found])
    script = Path(__file__).with_name("fetch_mysql.sh")
    done = subprocess.run([script, FETCHED[kind]], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MysqlMissing(done.stderr)
    home = Path(done.stdout.strip())
    if kind == "mysql-8.0":
        libraries = f"{home}/bin:{home}/lib"
        return Programs(
            [f"{home}/bin/mysqld"],
            [f"--basedir={home}", f"--lc-messages-dir={home}/share"],
            {"LD_LIBRARY_PATH": libraries},
        )
    libraries = f"{home}/usr/lib/x86_64-linux-gnu"
    loader = [f"{libraries}/ld-linux-x86-64.so.2", "--library-path", libraries]
    if kind == "mysql-9":
        return Programs(
            [*loader, f"{home}/usr/sbin/mysqld"],
            [
                f"--basedir={home}/usr",
                f"--lc-messages-dir={home}/usr/share/mysql",
                f"--character-sets-dir={home}/usr/share/mysql/charsets",
                f"--plugin-dir={home}/usr/lib/mysql/plugin",
            ],
        )
    return Programs(
        [*loader, f"{home}/usr/sbin/mariadbd"],
        [
            f"--basedir={home}/usr",
            f"--lc-messages-dir={home}/usr/share/mariadb",
            f"--character-sets-dir={home}/usr/share/mariadb/charsets",
            f"--plugin-dir={home}/usr/lib/mariadb/plugin",
        ],
    )


class EmbeddedMysql:
    """In `directory`, which belongs to `nobody` where we are root, since it will not run as root.

    Its user `root` has no password.
    """

    def __init__(
        self, directory: Path, *, kind: Kind, settings: Mapping[str, str] | None = None
    ) -> None:
        self.directory, self.kind = directory, kind
        own = MARIADB if self.is_mariadb else MYSQL
        self.settings = {**SETTINGS, **own, **(settings or {})}
        if kind == "mysql-8.0":
            del self.settings["innodb-redo-log-capacity"]
        self.programs = programs_of(kind)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_mariadb(self) -> bool:
        return self.kind.startswith("mariadb")

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def scheme(self) -> str:
        return "mariadb" if self.is_mariadb else "mysql"

    def address_of(self, database: str, *, user: str = "root") -> str:
        return f"{self.scheme}://{user}@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server has been started"
        return self._process.pid

    @property
    def _tmpdir(self) -> str:
        """Its own: a server that starts removes the temporary tables there, whoever's they are."""
        return f"--tmpdir={self.directory}"

    def initialise(self) -> None:
        options = ["--no-defaults", *self.programs.options, f"--datadir={self.data}", self._tmpdir]
        if not self.is_mariadb:
            self._run([*self.programs.server, *options, "--initialize-insecure"])
            return
        self._run(["mkdir", self.data])
        self._run(
            [*self.programs.server, *options, "--bootstrap", "--skip-networking"],
            stdin=self._system_tables(),
        )

    def _system_tables(self) -> bytes:
        """What mariadb-install-db feeds the server with."""
        named = next(
            (each for each in self.programs.options if each.startswith("--lc-messages-dir=")), ""
        )
        place = Path(named.partition("=")[2] or "/usr/share/mysql")
        kind = "mariadb" if (place / "mariadb_system_tables.sql").exists() else "mysql"
        files = [f"{kind}_system_tables.sql", f"{kind}_system_tables_data.sql"]
        found = b"".join((place / each).read_bytes() for each in files)
        return b"create database mysql;\nuse mysql;\n" + found

    def start(self) -> None:
        """Returns once it takes connections."""
        first = self.directory / "first.sql"
        if not first.exists():
            first.write_text(
                "SET sql_log_bin = 0;\nCREATE USER IF NOT EXISTS root@'%' IDENTIFIED BY '';\n"
                "GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n"
            )
            first.chmod(0o644)
        given = [f"--{name}={value}" for name, value in self.settings.items()]
        command = [
            *self.programs.server, "--no-defaults", *self.programs.options,
            f"--datadir={self.data}", self._tmpdir,
            f"--port={self.port}", "--bind-address=127.0.0.1",
            f"--socket={self.directory}/socket", f"--pid-file={self.directory}/pid",
            f"--log-bin={self.data}/bin", *given,
            f"--init-file={first}",
        ]  # fmt: skip
        log = self.directory / "log"
        with _with_environment(self.programs.environment):
            self._process = start_as_nobody(command, log=log)
        self._wait_for(lambda: self.connect().close(), log)

    def _wait_for(self, connect: Callable[[], object], log: Path) -> None:
        assert self._process is not None
        while True:
            try:
                connect()
                return
            except pymysql.OperationalError as error:
                if error.args[0] != NOBODY_LISTENS:
                    raise
            try:
                self._process.wait(timeout=POLL_S)
            except subprocess.TimeoutExpired:
                continue
            said = log.read_text(errors="replace")[-2_000:]
            raise AssertionError(f"the server ended while it was starting: {said}")

    def connect(self, database: str = "", *, user: str = "root") -> "pymysql.Connection[Any]":
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=user,
            database=database or None,
            autocommit=True,
            init_command=LOCK_TIMEOUT,
            ssl_disabled=True,  # else each connection reads the certificates of the machine
        )

    def execute(self, *statements: str, database: str = "") -> list[tuple[Any, ...]]:
        """Each committed by itself, in one session; returns the rows of the last one."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _run(self, command: Sequence[object], *, stdin: bytes | None = None) -> None:
        with _with_environment(self.programs.environment):
            run_as_nobody(command, stdin=stdin)


@contextmanager
def embedded_mysql(
    kind: Kind, *, settings: Mapping[str, str] | None = None
) -> Iterator[EmbeddedMysql]:
    """A new server in a temporary directory, gone afterwards."""
    with temporary_directory(kind) as directory:
        server = EmbeddedMysql(directory, kind=kind, settings=settings)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def _with_environment(more: Mapping[str, str] | None) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(more or {})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
