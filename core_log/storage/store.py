"""The storage of one broker: a data directory owned by one process, and its partitions."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Self
from uuid import UUID

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import (
    ConfigError,
    CorruptLog,
    DirectoryInUse,
    HeadwaterError,
    StorageFailed,
)
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.storage.checkpoints import Checkpoints
from headwater.core_log.storage.durability import RemovalJob, RenewalJob
from headwater.core_log.storage.files import File, Files
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.properties import (
    LOG_DIRECTORY,
    META,
    Loss,
    encode_uuid,
    forget_loss,
    new_uuid,
    partition_named,
    partitions_set_aside,
    read_properties,
    read_topic_id,
    take_clean_stop,
    write_clean_stop,
    write_properties,
    write_topic_id,
)
from headwater.core_log.storage.recovery import LogRecovery

logger = logging.getLogger(__name__)

FORMAT_VERSION = "1"
LOCK, ENDPOINT, RESERVE = "lock", "endpoint.json", "reserve"
JOINED, FORMER_ID = "joined", "former.directory.id"
RESERVE_BYTES = 256 << 10
"""Disk space kept in reserve: enough to start on a full disk and to delete topics there."""
DELETING, STRAY, DAMAGED = "-delete", "-stray", "-damaged"
FILE_NAME_MAX = 255
SECRET_MODE = 0o600


class Store:
    """The storage of a broker. `Store.open` makes this process the directory's owner until
    `close`."""

    def __init__(
        self,
        data: Path,
        files: Files,
        clock: Clock,
        random: Random,
        *,
        lock: File,
        identity: Mapping[str, str],
    ) -> None:
        self.data, self.files, self._clock, self._random = data, files, clock, random
        self._lock: File | None = lock
        self.cluster_id, self.directory_id = identity["cluster.id"], identity["directory.id"]
        self.former_directory_id = identity.get(FORMER_ID)
        """The id under which others may know this directory, which still has its partitions."""
        self.has_joined = identity.get(JOINED) == "true"
        """Whether the cluster has other brokers that may vote: this one votes only if a record says
        so."""
        self.log_directory = data / LOG_DIRECTORY
        self.checkpoints = Checkpoints(files, self.log_directory)
        self._partitions: dict[TopicPartition, PartitionLog] = {}
        self._refused: set[TopicPartition] = set()
        self._strays: set[TopicPartition] = set()
        self._renewed: set[TopicPartition] = set()
        self.spend_reserve()  # a start needs space, too
        self._found = self._scan()
        self._missing = self._find_missing()
        self.losses = dict.fromkeys(sorted(self._missing), Loss.CERTAIN)
        """Losses of partitions, until `forget_loss` or `set_damaged_aside`."""
        self.checkpoints.retain(self._found | self._missing)
        self._remove_deleted()
        stop_epoch = take_clean_stop(files, self.log_directory)
        self.was_clean = stop_epoch is not None
        """Whether the last owner stopped cleanly."""
        self.stop_epoch = -1 if stop_epoch is None else stop_epoch
        """The broker epoch of a clean stop: a newer one is known if this directory is an older copy
        of the broker's."""

    @classmethod
    def open(
        cls,
        data: Path,
        *,
        files: Files,
        clock: Clock,
        random: Random,
        node_id: int,
        cluster_id: str | None = None,
    ) -> Self:
        """Takes ownership of the directory; creates it if needed, with a cluster of its own unless
        it joins that of `cluster_id`."""
        if not files.exists(data / LOG_DIRECTORY):
            files.make_directory(data / LOG_DIRECTORY)
            files.sync_directory(data)
            files.sync_directory(data.parent)
        lock = files.lock(data / LOCK)
        if lock is None:
            raise _in_use(files, data, "or give another --data directory")
        identity = _identify(files, data / META, node_id, random, cluster_id)
        return cls(data, files, clock, random, lock=lock, identity=identity)

    def renew_directory_id(self) -> None:
        """Gives the directory a new id, on disk on return: it has lost what it promised to the
        quorum under the former one."""
        self.former_directory_id = self.directory_id
        self.directory_id = encode_uuid(new_uuid(self._random))
        former = {FORMER_ID: self.former_directory_id}
        self._change_identity({"directory.id": self.directory_id, **former})

    def renew_cluster_id(self) -> None:
        """Makes the directory a member of no cluster that there was; on disk on return."""
        self.cluster_id, self.has_joined = encode_uuid(new_uuid(self._random)), False
        self._change_identity({"cluster.id": self.cluster_id, JOINED: "false"})

    def note_others(self, has_others: bool) -> None:
        """Called with whether others vote, too: then this broker does not vote without a record
        that says so."""
        if self.has_joined is not has_others:
            self._change_identity({JOINED: "true" if has_others else "false"})
            self.has_joined = has_others

    def _change_identity(self, changes: Mapping[str, str]) -> None:
        path = self.data / META
        write_properties(self.files, path, {**read_properties(self.files, path), **changes})

    @property
    def partitions(self) -> Mapping[TopicPartition, PartitionLog]:
        """The open partitions."""
        return self._partitions

    @property
    def free_bytes(self) -> int:
        """Returns the free bytes of the disk; -1 if the disk does not say."""
        try:
            return self.files.free_bytes(self.log_directory)
        except OSError:
            return -1

    @property
    def refused(self) -> str:
        """The disk's last refusal; empty after the next success."""
        return next((log.refused for log in self._partitions.values() if log.refused), "")

    @property
    def found(self) -> frozenset[TopicPartition]:
        """The partitions in the directory, open or not."""
        return frozenset(self._found)

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Writes the checkpoints of several new partitions at once. If that fails, opening them
        reports it."""
        fresh = [each for each in partitions if each not in self._found]
        with suppress(OSError):
            self.checkpoints.begin(fresh)

    def open_partition(
        self, topic: str, partition: int, *, topic_id: UUID, config: LogConfig
    ) -> PartitionLog:
        """Opens the partition as the last owner left it, or creates it."""
        key = TopicPartition(topic, partition)
        assert key not in self._partitions, "a partition is opened once"
        if key in self._renewed:
            raise StorageFailed("files of an older topic of that name are still in use", at=key)
        directory = self._directory_of(key)
        if key in self._missing:
            raise CorruptLog(
                "directory of a partition is missing, although records were on disk",
                directory=str(directory),
                recovery_point=self.checkpoints.recovery_points.get(*key),
                hint="restore the directory, or delete the topic",
            )
        fresh_files: list[File] = []
        try:
            if key in self._found:
                self._set_stranger_aside(key, directory, topic_id)
            is_new = key not in self._found
            if is_new:
                self.files.make_directory(directory)
                self.checkpoints.begin([key])
            if is_new or read_topic_id(self.files, directory) is None:
                fresh_files.append(write_topic_id(self.files, directory, topic_id))
            log = self._recover(key, directory, config, is_new=is_new)
        except (OSError, HeadwaterError) as error:
            self._refused.add(key)
            if isinstance(error, OSError):
                raise _refusal(error, directory) from error
            raise
        if fresh_files:
            log.sync_with_next(fresh_files, [directory, self.log_directory])
        self._found.add(key)
        self._refused.discard(key)
        self._partitions[key] = log
        return log

    def _recover(
        self, key: TopicPartition, directory: Path, config: LogConfig, *, is_new: bool
    ) -> PartitionLog:
        recovery = LogRecovery(
            self.files,
            directory,
            topic=key.topic,
            partition=key.partition,
            config=config,
            checkpoints=self.checkpoints,
            now_ms=self._clock.now_ms(),
        )
        if is_new:
            return recovery.open_trusting()
        point = self._recovery_point(key)
        try:
            if point is None:
                recovery.note_loss(Loss.DOUBTFUL)
            log = recovery.open_trusting() if self.was_clean else recovery.open_doubting(point)
        except CorruptLog:
            self.losses[key] = Loss.CERTAIN
            raise
        self._note_opened(key, recovery)
        if recovery.cut is not None:
            logger.warning("%s-%d ends earlier after a crash: %s", *key, recovery.cut)
        return log

    def _note_opened(self, key: TopicPartition, recovery: LogRecovery) -> None:
        if recovery.loss is not None:
            self.losses[key] = recovery.loss
        else:
            self.losses.pop(key, None)

    def _recovery_point(self, key: TopicPartition) -> int | None:
        points = self.checkpoints.recovery_points
        return None if points.is_missing or points.is_damaged else points.get(*key) or 0

    @contextmanager
    def renewing(self, broken: PartitionLog) -> Iterator[RenewalJob]:
        """Returns the work to run, in any thread, before an offline partition is reopened.
        Meanwhile no other partition of its name is opened."""
        key = TopicPartition(broken.topic, broken.partition)
        self._renewed.add(key)
        try:
            yield RenewalJob(self.files, broken.directory, recovery_point=broken.recovery_point)
        finally:
            self._renewed.discard(key)

    def reopen_partition(self, topic: str, partition: int) -> PartitionLog:
        """Opens an offline partition again after its files were renewed."""
        key = TopicPartition(topic, partition)
        broken = self._partitions[key]
        recovery = LogRecovery(
            self.files,
            broken.directory,
            topic=topic,
            partition=partition,
            config=broken.config,
            checkpoints=self.checkpoints,
            now_ms=self._clock.now_ms(),
        )
        try:
            log = recovery.open_doubting(broken.recovery_point)
        except OSError as error:
            raise _refusal(error, broken.directory) from error
        except CorruptLog:
            self.losses[key] = Loss.CERTAIN
            raise
        self._note_opened(key, recovery)
        if recovery.cut is not None:
            logger.warning("%s-%d ends earlier after a failure: %s", *key, recovery.cut)
        self._partitions[key] = log
        return log

    def holds(self, at: TopicPartition, topic_id: UUID) -> bool:
        """Whether a directory of that very topic is here, open or not."""
        return at in self._found and read_topic_id(self.files, self._directory_of(at)) == topic_id

    def forget_loss(self, at: TopicPartition) -> None:
        """Called once all that depends on it is decided; on disk on return."""
        if self.losses.pop(at, None) is not None and at in self._found:
            try:
                forget_loss(self.files, self._directory_of(at))
            except OSError as error:
                raise _refusal(error, self._directory_of(at)) from error

    def set_damaged_aside(self, at: TopicPartition) -> str:
        """Renames a partition that has lost records, on disk on return, so that it can be copied
        anew; returns the name of what there is left, empty without that."""
        directory, aside = self._directory_of(at), ""
        self._partitions.pop(at, None)
        try:
            if at in self._found:
                aside = self._rename_away(at, directory, DAMAGED).name
            self.checkpoints.forget(*at)
            self.checkpoints.recovery_points.sync()
        except OSError as error:
            raise _refusal(error, directory) from error
        self._missing.discard(at)
        self._refused.discard(at)
        self.losses.pop(at, None)
        return aside

    def forget_missing(self, known: Callable[[TopicPartition], bool]) -> None:
        """Forgets the partitions without a directory that do not belong here any more."""
        for at in sorted(each for each in self._missing if not known(each)):
            self._missing.discard(at)
            self.losses.pop(at, None)
            with suppress(OSError):
                self.checkpoints.forget(*at)

    def _directory_of(self, at: TopicPartition) -> Path:
        return self.log_directory / f"{at.topic}-{at.partition}"

    def delete_partition(self, topic: str, partition: int) -> RemovalJob | None:
        """Renames a partition away, on disk on return; its job, or the next start, deletes the
        files."""
        key = TopicPartition(topic, partition)
        self._partitions.pop(key, None)
        self._refused.discard(key)
        self.losses.pop(key, None)
        if key in self._missing:
            self.forget_missing(lambda each: each != key)
        if key not in self._found:
            return None
        directory = self._directory_of(key)
        try:
            aside = self._rename_away(key, directory, DELETING)
            with suppress(OSError):  # a new partition of that name has its own numbers
                self.checkpoints.forget(*key)
            names = self.files.names(aside)
        except OSError as error:
            raise _refusal(error, directory) from error
        return RemovalJob(
            self.files,
            [aside / name for name in names],
            directory=aside,
            before=self.checkpoints.recovery_points.sync,  # else it would be missed later
        )

    def write_recovery_points(self, logs: Iterable[PartitionLog]) -> None:
        """Writes what is on disk after a group commit. Unsynced; after a failure it is merely too
        low."""
        points = self.checkpoints.recovery_points
        with suppress(OSError):
            for log in logs:
                if not log.is_offline:
                    points.set(log.topic, log.partition, log.recovery_point)

    def high_watermark(self, log: PartitionLog) -> int:
        """Returns the high watermark that was written last, or 0; it may be too low."""
        return self.checkpoints.high_watermarks.get(log.topic, log.partition) or 0

    def write_high_watermarks(self, marks: Iterable[tuple[PartitionLog, int]]) -> None:
        """Writes high watermarks of replicated partitions, unsynced."""
        checkpoint = self.checkpoints.high_watermarks
        offsets = {(log.topic, log.partition): offset for log, offset in marks}
        with suppress(OSError):
            checkpoint.begin([key for key in offsets if not checkpoint.has_place_for(*key)])
            for key, offset in offsets.items():
                checkpoint.set(*key, offset)

    def lower_high_watermark(self, log: PartitionLog, offset: int) -> None:
        """Writes a high watermark below which records were given up, on disk on return."""
        self.write_high_watermarks([(log, offset)])
        with suppress(OSError):
            self.checkpoints.high_watermarks.sync()

    def report_strays(self) -> None:
        """Logs the partitions in this directory that belong to no known topic."""
        self._strays = self._found - self._partitions.keys() - self._refused
        if self._strays:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(self._strays))
            logger.warning(
                "partitions in %s belong to no known topic: %s", self.log_directory, names
            )

    def keep_reserve(self) -> None:
        """Reserves disk space, as far as there is some."""
        path = self.data / RESERVE
        with suppress(OSError):
            if not self.files.exists(path) or self.files.size(path) < RESERVE_BYTES:
                file = self.files.open(path, create=True)
                file.write(0, bytes(RESERVE_BYTES))
                file.sync()

    def spend_reserve(self) -> bool:
        """Frees the reserved space for the next writer; returns whether there was some."""
        path = self.data / RESERVE
        with suppress(OSError):
            if self.files.exists(path):
                self.files.remove(path)
                return True
        return False

    def write_endpoint(self, content: bytes) -> None:
        """Writes the owner's address for this user's other processes only."""
        self.files.replace(self.data / ENDPOINT, content, mode=SECRET_MODE)

    def remove_endpoint(self) -> None:
        self.files.remove(self.data / ENDPOINT)

    def close(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Gives the directory up. After a clean stop the next owner need not check the batches."""
        try:
            if clean and self._close_cleanly():
                write_clean_stop(self.files, self.log_directory, broker_epoch=broker_epoch)
        finally:
            self._partitions.clear()
            self._lock = None

    def _close_cleanly(self) -> bool:
        """Whether everything is on disk and valid."""
        is_whole = not self._refused
        for log in self._partitions.values():
            try:
                log.close()
                is_whole = is_whole and not log.is_offline
            except (OSError, StorageFailed) as error:
                logger.error("%s-%d was not closed cleanly: %s", log.topic, log.partition, error)
                is_whole = False
        self.write_recovery_points(self._partitions.values())
        with suppress(OSError):
            self.checkpoints.recovery_points.sync()
            return is_whole
        return False

    def _scan(self) -> set[TopicPartition]:
        """Finds the partitions in the directory."""
        names = self.files.names(self.log_directory)
        return {found for name in names if (found := partition_named(name))}

    def _find_missing(self) -> set[TopicPartition]:
        """Finds the partitions that had records on disk, and whose directories somebody has
        removed."""
        aside = partitions_set_aside(self.files.names(self.log_directory), (DELETING, STRAY))
        return {
            TopicPartition(*key)
            for key, offset in self.checkpoints.recovery_points
            if offset > 0 and key not in self._found and key not in aside
        }

    def _remove_deleted(self) -> None:
        for name in self.files.names(self.log_directory):
            if name.endswith(DELETING):
                aside = self.log_directory / name
                paths = [aside / each for each in self.files.names(aside)]
                RemovalJob(self.files, paths, directory=aside).run()

    def _set_stranger_aside(self, key: TopicPartition, directory: Path, topic_id: UUID) -> None:
        """Renames the directory of an older topic with the same name. This happens if the topic was
        deleted during a crash and nobody opened the partition at the start."""
        known = read_topic_id(self.files, directory)
        if known is None or known == topic_id:
            return
        if key not in self._strays:
            raise CorruptLog(
                "directory belongs to another topic of that name",
                directory=str(directory),
                topic_id=str(known),
                wanted=str(topic_id),
                hint="move it away if it is a leftover, else restore its partition.metadata",
            )
        aside = self._rename_away(key, directory, STRAY)
        logger.warning("%s belongs to another topic; it is now %s", directory, aside)

    def _rename_away(self, key: TopicPartition, directory: Path, ending: str) -> Path:
        tail = f"-{key.partition}.{new_uuid(self._random).hex}{ending}"
        aside = directory.with_name(key.topic[: FILE_NAME_MAX - len(tail)] + tail)
        self.files.rename(directory, aside)
        self._found.discard(key)
        self.files.sync_directory(self.log_directory)
        return aside


@contextmanager
def lock_if_owned(files: Files, log_directory: Path) -> Iterator[None]:
    """Locks the log for a tool that writes to it without opening it; it may lie outside of a data
    directory."""
    data = log_directory.parent
    is_owned = files.exists(data / META)
    lock = files.lock(data / LOCK) if is_owned else None
    if is_owned and lock is None:
        raise _in_use(files, data, "then try again")
    yield
    del lock


def _in_use(files: Files, data: Path, otherwise: str) -> DirectoryInUse:
    owner = files.read(data / LOCK).decode(errors="replace").strip() or "unknown"
    return DirectoryInUse(
        "the data directory is in use by another process",
        path=str(data),
        hint=f"stop process {owner}, {otherwise}",
    )


def _identify(
    files: Files, path: Path, node_id: int, random: Random, cluster_id: str | None
) -> dict[str, str]:
    """Reads or creates meta.properties, in Kafka's format plus our own format version."""
    try:
        identity = read_properties(files, path)
    except FileNotFoundError:
        if any("-" in name for name in files.names(path.parent / LOG_DIRECTORY)):
            raise ConfigError(
                "data directory holds partitions, but has lost its meta.properties",
                path=str(path),
                hint="restore the file: its cluster.id is also in every client's metadata",
            ) from None
        identity = {
            "version": FORMAT_VERSION,
            "cluster.id": cluster_id or encode_uuid(new_uuid(random)),
            "node.id": str(node_id),
            "directory.id": encode_uuid(new_uuid(random)),
        }
        if cluster_id is not None:
            identity[JOINED] = "true"
        write_properties(files, path, identity)
        return identity
    missing = {"version", "cluster.id", "node.id", "directory.id"} - identity.keys()
    if missing or identity["version"] != FORMAT_VERSION:
        raise ConfigError(
            "data directory was not written by this format version",
            path=str(path),
            version=identity.get("version", ""),
            known=FORMAT_VERSION,
            hint="use the version of headwater that wrote it, or another --data directory",
        )
    if identity["node.id"] != str(node_id):
        raise ConfigError(
            "data directory belongs to another node",
            path=str(path),
            node_id=node_id,
            found=identity["node.id"],
            hint=f"set node_id to {identity['node.id']}, or use another data directory",
        )
    if cluster_id not in (None, identity["cluster.id"]):
        raise ConfigError(
            "data directory belongs to another cluster",
            path=str(path),
            cluster_id=cluster_id,
            found=identity["cluster.id"],
            hint="join the cluster with another --data directory, or leave --join out",
        )
    return identity


def _refusal(error: OSError, directory: Path) -> StorageFailed:
    return StorageFailed(
        "the disk refused a partition's files",
        directory=str(directory),
        reason=error.strerror or str(error),
    )
