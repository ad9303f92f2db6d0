"""The log as a run reaches it: by the owner of the data directory, and by clients of the log."""

import base64
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from headwater.core_log.client import FIRST_ANSWER_MS, KafkaLog, KafkaSettings
from headwater.core_log.foundation.endpoint import FILE_NAME, MODE, Endpoint, encode_endpoint
from headwater.core_log.foundation.errors import ConfigError, DirectoryInUse
from headwater.core_log.foundation.speed import freeze_imports
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.storage.files import OsFiles
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.terminal.log_place import keep_private, security_of_log

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker
    from headwater.pipelines.running.tasks import OpenLog

MEMBER_CLIENT = {
    "client_id": "headwater-workers",
    "request_wait_ms_max": 3_000,
    "retry_for_ms": 6_000,
}
"""Settings of the client that keeps a run in the group of all runs: a broker that is silent is left
long before the session is over."""
LOCK = "lock"
INSTANCE = "member-id"
COMING = ""
"""Written as the address of the console until it listens."""


def kafka_settings(loaded: LoadedPipeline, bootstrap: Sequence[str]) -> KafkaSettings:
    log = loaded.spec.log
    is_ours = log.type == "embedded"  # its owner is on this machine, and busy at most
    settings = KafkaSettings(
        bootstrap=list(bootstrap),
        security=security_of_log(log, data=loaded.log_path, directory=loaded.directory),
        rack=log.rack,
        client_id=f"headwater-{loaded.name}",
        transaction_timeout_ms=loaded.spec.limits.transaction_timeout_ms,
    )
    if is_ours:
        return settings
    return settings.model_copy(update={"first_answer_ms_max": FIRST_ANSWER_MS})


def log_opener(client_for: Callable[[LoadedPipeline], KafkaLog]) -> "OpenLog":
    """Each task has a client of its own, so that none waits for another's answers."""

    @asynccontextmanager
    async def open_log(loaded: LoadedPipeline) -> AsyncIterator[KafkaLog]:
        log = client_for(loaded)
        try:
            yield log
        finally:
            await log.close()

    return open_log


@dataclass(frozen=True, slots=True)
class GroupIdentity:
    """A run that shares its tasks with the others on its log."""

    instance: str
    """Stays over restarts, with the data directory."""
    log: KafkaLog
    """A client of its own: a heartbeat waits for nothing else."""


@dataclass(frozen=True, slots=True)
class DirectoryLock:
    """The log as this process reaches it, and what it owes to others."""

    log: KafkaLog
    bootstrap: tuple[str, ...]
    """Where worker processes reach it."""
    client_for: Callable[[LoadedPipeline], KafkaLog]
    """Clients for tasks that run in this process."""
    token: str
    publish_http: Callable[[str], None] | None
    """Tells everybody else where the console is; None where another process says where it is."""
    close: Callable[[], Awaitable[None]]
    problem: Callable[[], str] = str
    """The problem of the log's disk, where this process has it, or the reason why its cluster
    cannot be reached; empty where nothing is wrong."""
    offline: Callable[[], Mapping[TopicPartition, str]] = dict
    """Partitions that the disk fails, with its reason, where this process has the log."""
    disk: Callable[[], tuple[int, int] | None] = lambda: None
    """Free bytes and size of the file system of the log, where this process has it."""
    broker: "Broker | None" = None
    """The broker of the log, where this process has it."""
    member: GroupIdentity | None = None
    """The identity of this run among those that share the log; None where nobody does."""


async def claim(loaded: LoadedPipeline, data: Path, *, begins: bool = False) -> DirectoryLock:
    """Takes the directory, or raises `DirectoryInUse`. `begins` is whether an empty one may begin a
    cluster beyond loopback."""
    if loaded.spec.log.type == "kafka":
        return _claim_beside_cluster(data, tuple(loaded.spec.log.bootstrap), loaded)
    with freeze_imports():
        from headwater.core_log.embedded import EmbeddedLog

    settings = loaded.spec.log.as_broker(data, directory=loaded.directory, begins=begins)
    keep_private(settings)
    log = await EmbeddedLog.open(settings, http=COMING)
    member = None
    if loaded.spec.log.cluster is not None:
        client = log.beside(**MEMBER_CLIENT)
        member = GroupIdentity(member_instance(OsFiles(), data), client)

    def client_for(other: LoadedPipeline) -> KafkaLog:
        return log.beside(transaction_timeout_ms=other.spec.limits.transaction_timeout_ms)

    return DirectoryLock(
        log,
        (log.endpoint,),
        client_for,
        log.running.token,
        log.running.write_endpoint,
        log.close,
        lambda: log.running.broker.store.refused,
        lambda: log.running.broker.offline,
        lambda: disk_space(data),
        log.running.broker,
        member,
    )


def disk_space(data: Path) -> tuple[int, int]:
    """Returns the free bytes and the size of the file system of a directory."""
    found = shutil.disk_usage(data)
    return found.free, found.total


def _claim_beside_cluster(
    data: Path, bootstrap: tuple[str, ...], loaded: LoadedPipeline
) -> DirectoryLock:
    """The log is a cluster's, but who runs pipelines over it is found the same way."""
    files, token = OsFiles(), secrets.token_urlsafe(24)
    files.make_directory(data)
    lock = files.lock(data / LOCK)
    if lock is None:
        raise DirectoryInUse("the data directory is in use by another process", path=str(data))
    log = KafkaLog(kafka_settings(loaded, bootstrap), first_logged_after_s=0.0)

    def publish_http(address: str) -> None:
        endpoint = Endpoint(os.getpid(), bootstrap[0], http=address, token=token)
        files.replace(data / FILE_NAME, encode_endpoint(endpoint), mode=MODE)

    async def close() -> None:
        nonlocal lock
        await log.close()
        files.remove(data / FILE_NAME)
        lock = None

    publish_http(COMING)
    return DirectoryLock(
        log,
        bootstrap,
        lambda other: KafkaLog(kafka_settings(other, bootstrap)),
        token,
        publish_http,
        close,
        lambda: log.problem,
        member=GroupIdentity(
            member_instance(files, data),
            KafkaLog(kafka_settings(loaded, bootstrap).model_copy(update=MEMBER_CLIENT)),
        ),
    )


def member_instance(files: OsFiles, data: Path) -> str:
    """Returns the name of this directory in the group of all runs; makes one for a new one."""
    path = data / INSTANCE
    try:
        return files.read(path).decode().strip()
    except FileNotFoundError:
        instance = secrets.token_hex(8)
        files.replace(path, instance.encode() + b"\n")
        return instance


def join_broker(loaded: LoadedPipeline, endpoint: Endpoint) -> DirectoryLock:
    """As a client of a `headwater broker`, which runs no pipelines itself."""
    bootstrap = (endpoint.kafka,)
    settings = kafka_settings(loaded, bootstrap)
    member = None
    if loaded.spec.log.cluster is not None:  # several runs may use the broker of one directory
        client = KafkaLog(settings.model_copy(update=MEMBER_CLIENT))
        member = GroupIdentity(secrets.token_hex(8), client)
    log = KafkaLog(settings, first_logged_after_s=0.0)
    return DirectoryLock(
        log,
        bootstrap,
        lambda other: KafkaLog(kafka_settings(other, bootstrap)),
        "",
        None,
        log.close,
        lambda: log.problem,
        member=member,
    )


def body_of(loaded: Sequence[LoadedPipeline], *, until_end: bool) -> bytes:
    wires = [base64.b64encode(each.to_wire()).decode() for each in loaded]
    return orjson.dumps({"pipelines": wires, "until_end": until_end})


def handed_over(body: bytes) -> tuple[list[LoadedPipeline], bool]:
    """The pipelines, and whether they are to be run to their end."""
    try:
        given = orjson.loads(body)
        wires = [base64.b64decode(each) for each in given["pipelines"]]
        return [LoadedPipeline.from_wire(each) for each in wires], bool(given["until_end"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            "the body is not a list of pipelines from `headwater run`",
            hint="use headwater run FILE; both must have the same version",
        ) from None
