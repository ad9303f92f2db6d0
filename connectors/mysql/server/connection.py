"""Connections to MySQL and MariaDB with this source's settings, and their errors as ours."""

import asyncio
import ssl
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql
from pymysql.constants import COMMAND

from headwater.connectors.mysql.binlog.byte_reader import ByteReader
from headwater.connectors.mysql.kernels.kernels import MysqlKernels
from headwater.connectors.mysql.server.text_rows import TextRows, blocks_of
from headwater.connectors.mysql.settings import MysqlSettings
from headwater.core_log.client.gather import wait_for_end
from headwater.core_log.foundation.database_errors import (
    NOT_US,
    SERVER_HINT,
    UNREACHABLE,
    is_disk_full,
)
from headwater.core_log.foundation.errors import (
    DiskFull,
    HeadwaterError,
    SourceRejected,
    SourceUnavailable,
)
from headwater.core_log.foundation.tcp_keepalive import begin_session

T = TypeVar("T")
PORT = 3306
RIGHTS = {1044, 1045, 1142, 1143, 1227, 1370}
PASSING = {1040, 1053, 1159, 1160, 1161, 1203, 1205, 1213, 1226, 2003, 2006, 2013, 2055, 3024}
"""Too many connections, a shutdown, a lock wait, a deadlock, a cut connection."""
DEFINITION_CHANGED, LOCK_TIMEOUT = 1412, 1205
NO_TLS = 2026
SESSION = (
    "SET time_zone = '+00:00', sql_mode = 'NO_BACKSLASH_ESCAPES', character_set_results = NULL,"
    " net_write_timeout = 3600, wait_timeout = 31536000, autocommit = 1"
)
"""Results are not converted, so that texts have the same bytes as in the binary log."""
NULL = 0xFB


@dataclass(frozen=True, slots=True)
class MysqlAddress:
    """The parts of `url`."""

    hosts: tuple[tuple[str, int], ...]
    user: str
    password: str
    database: str
    options: dict[str, str]


def parse_address(url: str) -> MysqlAddress:
    parts = urlsplit(url)
    login, _, places = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    hosts = []
    for place in filter(None, places.split(",")):
        host, colon, port = place.rpartition(":")
        is_named = bool(colon) and port.isdecimal()
        hosts.append((host.strip("[]"), int(port)) if is_named else (place.strip("[]"), PORT))
    return MysqlAddress(
        tuple(hosts) or (("127.0.0.1", PORT),),
        unquote(user),
        unquote(password),
        unquote(parts.path.lstrip("/")),
        {name: values[-1] for name, values in parse_qs(parts.query).items()},
    )


class MysqlConnection:
    """A session; its methods block."""

    def __init__(self, connection: Any) -> None:
        self.raw = connection

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Returns the rows as texts, numbers and nulls: for the server's own views."""
        return [
            tuple(None if cell is None else cell.decode("utf-8", "replace") for cell in row)
            for row in self.select(statement)
        ]

    def value(self, statement: str) -> Any:
        found = self.rows(statement)
        return found[0][0] if found else None

    def execute(self, statement: str) -> None:
        for _ in self.select(statement):
            pass

    def select(self, statement: str) -> Iterator[Sequence[bytes | None]]:
        """Yields the rows as the bytes that the server sends. It has to be read to its end."""
        raw, count = self.raw, self._ask(statement)
        while count:
            packet = raw._read_packet()
            data = packet.get_all_data()
            if data[0] == 0xFE and len(data) < 9:
                return
            yield split_row(data, count)

    def blocks(self, statement: str, kernels: MysqlKernels) -> Iterator[TextRows]:
        """Yields the rows, many at a time. It has to be read to its end."""
        if self._ask(statement):
            yield from blocks_of(self.raw, kernels)

    def _ask(self, statement: str) -> int:
        """Returns the number of columns of the answer, which follows; 0 without one."""
        raw = self.raw
        raw._execute_command(COMMAND.COM_QUERY, statement.encode())
        first = raw._read_packet()
        if first.is_ok_packet():
            return 0
        count = ByteReader(first.get_all_data()).lenenc()
        for _ in range(count):
            raw._read_packet()
        raw._read_packet()
        return count

    def close(self) -> None:
        self.raw._force_close()


def split_row(data: bytes, count: int) -> list[bytes | None]:
    """Returns the cells of a row of the text protocol."""
    reader, cells = ByteReader(data), list[bytes | None]()
    for _ in range(count):
        if data[reader.pos] == NULL:
            reader.pos += 1
            cells.append(None)
        else:
            cells.append(reader.take(reader.lenenc()))
    return cells


def connect(settings: MysqlSettings, *, name: str = "headwater") -> MysqlConnection:
    """Returns a session with the first of the hosts that answers."""
    address = parse_address(settings.url.get_secret_value())
    refused: HeadwaterError | None = None
    for host, port in address.hosts:
        try:
            return _connect(settings, address, host, port, name=name)
        except SourceUnavailable as error:
            refused = error
    assert refused is not None, "an address has a host"
    raise refused


def _connect(
    settings: MysqlSettings, address: MysqlAddress, host: str, port: int, *, name: str
) -> MysqlConnection:
    facts = {"host": host, "port": port}
    mode = settings.tls.mode
    try:
        raw = _open(settings, address, host, port, is_encrypted=mode != "disabled", name=name)
    except pymysql.MySQLError as error:
        if mode != "preferred" or code_of(error)[0] != NO_TLS:
            raise refused_error(error, facts) from None
        try:
            raw = _open(settings, address, host, port, is_encrypted=False, name=name)
        except pymysql.MySQLError as plain:
            raise refused_error(plain, facts) from None
    connection = MysqlConnection(raw)
    try:
        with in_our_words("the connection does not take on how values are to be written"):
            connection.execute(SESSION)
    except BaseException:
        connection.close()
        raise
    return connection


def _open(
    settings: MysqlSettings,
    address: MysqlAddress,
    host: str,
    port: int,
    *,
    is_encrypted: bool,
    name: str,
) -> Any:
    """Returns the driver's connection; it refuses a server without TLS if it is to be encrypted."""
    seconds = max(1, round(settings.connect_timeout_ms / 1_000))
    raw = pymysql.connect(
        host=host,
        port=port,
        user=address.user,
        password=address.password,
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=seconds,
        read_timeout=seconds,
        write_timeout=seconds,
        ssl=_tls(settings) if is_encrypted else None,
        ssl_disabled=not is_encrypted,
        program_name=name[:63],
    )
    begin_session(raw)
    return raw


def _tls(settings: MysqlSettings) -> ssl.SSLContext:
    tls = settings.tls
    if tls.mode in ("verify_ca", "verify_identity"):
        context = ssl.create_default_context(cafile=tls.ca_file)
        context.check_hostname = tls.mode == "verify_identity"
    else:  # the certificates of the machine are not asked, and take 20 ms to read
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate_file is not None:
        context.load_cert_chain(tls.certificate_file, tls.key_file)
    return context


@contextmanager
def in_our_words(doing: str, **facts: Any) -> Iterator[None]:
    """Context manager: raises the driver's errors as ours; `doing` is the failed work."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise to_headwater_error(error, doing, **facts) from None
    except (OSError, EOFError) as error:
        raise SourceUnavailable(doing, why=type(error).__name__, **facts) from None


def to_headwater_error(error: pymysql.MySQLError, doing: str, **facts: Any) -> HeadwaterError:
    code, said = code_of(error)
    facts["code"] = code
    if is_disk_full(error):
        return DiskFull(
            "the disk of the server is full", hint=SERVER_HINT, doing=doing, why=said, **facts
        )
    if code in RIGHTS:
        return SourceRejected(
            doing, why=said, hint="headwater doctor prints what the user lacks", **facts
        )
    if code in PASSING or not code:
        return SourceUnavailable(doing, **facts)
    return SourceRejected(doing, why=said, **facts)


def code_of(error: pymysql.MySQLError) -> tuple[int, str]:
    """Returns the server's number and message."""
    match error.args:
        case (int(code), str(said)):
            return code, said
        case _:
            return 0, ""


def refused_error(error: pymysql.MySQLError, facts: dict[str, Any]) -> HeadwaterError:
    code, _ = code_of(error)
    if code in RIGHTS:
        hint = "correct user or password in `url` of the source"
        return SourceRejected(NOT_US, hint=hint, reason="access denied", **facts)
    if "cryptography" in str(error):
        return SourceRejected(
            NOT_US,
            reason="the server asks for a password that is encrypted",
            hint="pip install cryptography, or turn TLS on",
            **facts,
        )
    why = getattr(error, "original_exception", None)
    if code == NO_TLS or isinstance(why, ssl.SSLCertVerificationError):
        hint = "correct `tls` of the source, or the certificates of the server"
        if why is not None:
            facts["certificate"] = why.verify_message
        return SourceRejected(NOT_US, hint=hint, reason="TLS negotiation failed", **facts)
    return SourceUnavailable(UNREACHABLE, code=code, **facts)


async def finish(working: Coroutine[Any, Any, T]) -> T:
    """Waits for a thread even if the task is cancelled: it holds a connection or the reader."""
    task = asyncio.ensure_future(working)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        try:
            await wait_for_end(task)
        finally:
            if not task.cancelled() and task.exception() is None:
                found = task.result()
                if isinstance(found, MysqlConnection):
                    found.close()
        raise
