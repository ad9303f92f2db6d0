"""A PostgreSQL and a MariaDB of the tests' own, on free ports, in temporary directories."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

POSTGRES_HOMES = "/usr/lib/postgresql/*/bin"
INSTALL = "scripts/databases.sh installs it"


@contextmanager
def running_postgres() -> Iterator[str]:
    """The address of a server in which everybody may do everything."""
    with _directory("postgres") as directory:
        data, port = directory / "data", free_port()
        _run([_program("initdb"), "-D", data, "-U", "headwater", "-A", "trust", "-E", "UTF8",
              "--locale=C.UTF-8", "--no-sync"])  # fmt: skip
        command = [_program("postgres"), "-D", data, "-p", port, "-h", "127.0.0.1", "-k", directory]
        for setting in (
            "fsync=off",
            "shared_buffers=64MB",
            "max_wal_size=2GB",
            "wal_level=logical",
            "timezone=Asia/Tokyo",
        ):
            command += ["-c", setting]
        with _serving(command, log=directory / "log") as server:
            address = f"postgresql://headwater@127.0.0.1:{port}/postgres"
            _wait_for(server, lambda: psycopg.connect(address).close(), psycopg.OperationalError)
            yield address


@contextmanager
def database_in(address: str, name: str) -> Iterator[str]:
    """The address of a new database of that server, dropped at the end."""
    import sqlalchemy as sa

    if address.startswith("postgresql"):
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
            yield sa.make_url(address).set(database=name).render_as_string(hide_password=False)
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
        return
    url = sa.make_url(address)
    login: dict[str, Any] = {"host": url.host, "port": url.port, "user": url.username}
    with pymysql.connect(**login) as server, server.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}`")
        yield url.set(database=name).render_as_string(hide_password=False)
        cursor.execute(f"DROP DATABASE `{name}`")


@contextmanager
def running_mariadb() -> Iterator[str]:
    with _directory("mariadb") as directory:
        data, port = directory / "data", free_port()
        _run([_program("mariadb-install-db"), "--no-defaults", f"--datadir={data}",
              "--auth-root-authentication-method=normal", "--skip-test-db",
              "--skip-name-resolve"])  # fmt: skip
        command = [_program("mariadbd"), "--no-defaults", f"--datadir={data}", f"--port={port}",
                   "--bind-address=127.0.0.1", f"--socket={directory}/socket",
                   f"--pid-file={directory}/pid", "--innodb-flush-log-at-trx-commit=0",
                   "--innodb-buffer-pool-size=64M", "--innodb-flush-method=nosync",
                   "--innodb-file-per-table=0", "--innodb-log-file-size=8M",
                   "--default-time-zone=+09:00", "--skip-name-resolve"]  # fmt: skip
        with _serving(command, log=directory / "log") as server:
            login: dict[str, Any] = {"host": "127.0.0.1", "port": port, "user": "root"}
            _wait_for(server, lambda: pymysql.connect(**login).close(), pymysql.OperationalError)
            yield f"mariadb://root@127.0.0.1:{port}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _program(name: str) -> str:
    homes = [str(home) for home in sorted(Path("/").glob(POSTGRES_HOMES[1:]))[::-1]]
    path = os.pathsep.join([*homes, os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        pytest.fail(f"{name} is missing: {INSTALL}")
    return found


@contextmanager
def _directory(name: str) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix=f"headwater-{name}-"))
    if os.getuid() == 0:
        os.chown(directory, _nobody().pw_uid, _nobody().pw_gid)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _nobody() -> pwd.struct_passwd:
    """Neither server agrees to be run by root."""
    return pwd.getpwnam("nobody")


def _as_nobody() -> dict[str, Any]:
    if os.getuid() != 0:
        return {}
    return {"user": _nobody().pw_uid, "group": _nobody().pw_gid, "extra_groups": [], "cwd": "/"}


def _run(command: Sequence[object]) -> None:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **_as_nobody()
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def _serving(command: Sequence[object], *, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        server = subprocess.Popen(
            [str(part) for part in command], stdout=output, stderr=output, **_as_nobody()
        )
    try:
        yield server
    finally:
        server.terminate()
        server.wait()


def _wait_for(server: subprocess.Popen[bytes], connect: Any, refused: type[Exception]) -> None:
    """Until the server answers, or has ended."""
    while True:
        try:
            connect()
            return
        except refused:
            assert server.poll() is None, "the server ended while it was starting"
            try:
                server.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
