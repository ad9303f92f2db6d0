"""A Delta table: read by deltalake, committed by one new file of its log."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.core_log.foundation.errors import HeadwaterError, SinkRejected
from headwater.core_log.objects.store import SINK_ERRORS, names_below
from headwater.sinks.sink import AppliedOffsets
from headwater.sinks.spark.delta import actions
from headwater.sinks.spark.key_ranges import Bound, DataFile, bounds_in, has_ranges
from headwater.sinks.spark.parquet_files import ENDING
from headwater.sinks.spark.storage_location import StorageLocation
from headwater.sinks.spark.table import (
    PREFIX,
    LakeTableState,
    Overtaken,
    TableCommit,
    TableCreation,
    TopicFeed,
    Version,
    continue_table,
    identity_in,
    properties_of,
    rows_deleted_elsewhere,
    stored_numbers,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG = "_delta_log"
CHECKPOINT_EVERY = 20
HOUR_MS = 3_600_000
DELETION_VECTORS = "deletionVectors"


OF_THE_SYSTEM = re.compile(r"\(os error (\d+)\)")
UNSUPPORTED = re.compile(r"Unsupported: Feature '(\w+)'")
DAMAGE = ("Json error", "Parquet error", "Arrow error", "Invalid JSON")
"""Parts of deltalake's messages about a log that cannot be read."""


class DeltaLakeTable:
    """A Delta table of the lake.

    Versions are numbered, and each number can be written only once. That makes a commit
    conditional, in a directory as in a bucket.
    """

    def __init__(self, place: StorageLocation) -> None:
        self._place = place
        self._held: DeltaTable | None = None
        self._newest_commit: tuple[int, bytes | None] = (-1, None)
        """The newest commit that was read, kept so that it is not read twice."""

    def load(self) -> LakeTableState | None:
        table = self._newest()
        return None if table is None else self._state(table)

    def create(self, creation: TableCreation, change: TableCommit) -> LakeTableState:
        now_ms = change.committed_ms
        begun = [
            actions.protocol(creation.schema),
            self._meta_data(creation.id, creation.schema, creation, change.feeds, now_ms, {}),
        ]
        fresh = creation.state(change.feeds)
        self._write(fresh, change, begun, creation)
        return self._after(fresh)

    def commit(self, state: LakeTableState, change: TableCommit) -> LakeTableState:
        like, feeds = continue_table(state, change)
        begun: list[dict[str, Any]] = []
        is_other = change.becomes is not None or not like.schema.equals(state.schema)
        if is_other or feeds != state.feeds or like.columns != state.columns:
            held = state.native.protocol()
            protocol = actions.protocol(like.schema, held)
            if protocol != actions.protocol(pa.schema([]), held):
                begun.append(protocol)
            foreign = {
                name: text
                for name, text in state.native.metadata().configuration.items()
                if not name.startswith(PREFIX)
            }
            begun.append(
                self._meta_data(state.id, like.schema, like, feeds, change.committed_ms, foreign)
            )
        self._write(state, change, begun, like)
        return self._after(state)

    def versions(self, count: int) -> Sequence[Version]:
        table = self._newest()
        found = [] if table is None else table.history(count)
        return [_version(each) for each in found]

    def at(self, version: int) -> LakeTableState:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            return self._state(
                DeltaTable(self._place.root, version=version, storage_options=self._place.options)
            )
        except (DeltaError, OSError) as error:
            raise SinkRejected(
                "the version of the table no longer exists", version=version
            ) from error

    def find_unneeded(self, *, older_than_ms: int, now_ms: int) -> list[str]:
        table = self._newest()
        if table is None:
            return []
        self._forget_versions(table)
        found = table.vacuum(
            retention_hours=-(-older_than_ms // HOUR_MS),
            dry_run=True,
            enforce_retention_duration=False,
            full=True,
        )
        return [name for name in found if name.endswith(ENDING)]

    def forget(self) -> None:
        store = self._place.store
        store.remove(names_below(store, LOG))
        self._held = None

    def drop(self) -> None:
        store = self._place.store
        names = names_below(store)
        # The log is removed first: without it there is no table, even if other files remain.
        store.remove([name for name in names if name.startswith(LOG)])
        store.remove([name for name in names if not name.startswith(LOG)])
        self._held = None

    def _newest(self) -> "DeltaTable | None":
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        root, options = self._place.root, self._place.options
        try:
            if self._held is not None:
                try:
                    self._held.update_incremental()
                    if self._is_there(self._held.version()):
                        return self._held
                except DeltaError:
                    pass
                self._held = None
            if not DeltaTable.is_deltatable(root, options):
                return None
            self._held = DeltaTable(root, storage_options=options)
            self._newest_commit = (-1, None)
            return self._held
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            if unsupported := UNSUPPORTED.search(str(error)):
                raise _unwritable(unsupported[1], root) from error
            if any(name in str(error) for name in DAMAGE):
                raise SinkRejected(
                    "the Delta log of a table is damaged",
                    place=root,
                    hint="restore its files from a backup; or drop the table with its data, and "
                    "it is filled again: headwater drop PIPELINE/TABLE --data",
                ) from error
            raise _refusal(error, root) from error

    def _is_there(self, version: int) -> bool:
        """Returns whether the table still exists; it can have been dropped."""
        return self._commit_of(version) is not None

    def _commit_of(self, version: int) -> bytes | None:
        self._newest_commit = version, self._place.store.read(_log_name(version))
        return self._newest_commit[1]

    def _after(self, state: LakeTableState) -> LakeTableState:
        found = self.load()
        assert found is not None, "what was committed is there"
        if found.version and found.version % CHECKPOINT_EVERY == 0:
            self._checkpoint()
        return found

    def _checkpoint(self) -> None:
        """A checkpoint only makes reads faster; the next attempt will do."""
        from deltalake.exceptions import DeltaError

        try:
            if self._held is not None:
                self._held.create_checkpoint()
        except (DeltaError, OSError):
            pass

    def _forget_versions(self, table: "DeltaTable") -> None:
        """Removes old files of the log.

        Files before the last checkpoint go after 30 days, or after the table's
        `delta.logRetentionDuration`.
        """
        from deltalake.exceptions import DeltaError

        try:
            table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            raise _refusal(error, self._place.root) from error

    def _state(self, table: "DeltaTable") -> LakeTableState:
        if _deletes_rows(table):
            raise rows_deleted_elsewhere(self._place.root)
        metadata, schema = table.metadata(), table.schema().to_json()
        identity = identity_in(metadata.configuration)
        adds_only = identity.mode == "append"
        feature = actions.unwritable_feature(
            table.protocol(), schema, metadata.configuration, adds_only=adds_only
        )
        if feature is not None and identity.owner is not None:
            raise _unwritable(feature, self._place.root)
        offsets = identity.offsets(table.transaction_version)
        partition_by = tuple(metadata.partition_columns)
        return LakeTableState(
            version=table.version(),
            id=str(metadata.id),
            schema=actions.arrow_schema(schema),
            files=tuple(_files(table, partition_by, key=identity.key)),
            offsets=offsets,
            generation=identity.generation,
            mode=identity.mode,
            key=identity.key,
            owner=identity.owner,
            feeds=identity.feeds,
            columns=identity.columns,
            partition_by=partition_by,
            native=table,
            is_put_back=self._is_put_back(table.version(), offsets),
        )

    def _is_put_back(self, version: int, offsets: AppliedOffsets) -> bool:
        """Returns whether a person has restored a version of other offsets since our last commit.

        Delta keeps the last transaction ids through a restore, so that the offsets tell where the
        table was. We never commit to such a table, but other programs may.
        """
        for number in range(version, 0, -1):
            read, content = self._newest_commit
            if read != number:
                content = self._place.store.read(_log_name(number))
            info = None if content is None else actions.commit_info_in(content)
            if info is None or actions.ENGINE in info:
                return False
            if info.get("operation") == "RESTORE":
                restored = actions.restored_version(info)
                return (
                    restored is None
                    or self._offsets_at(restored) != offsets
                    or self._is_put_back(restored, offsets)
                )
        return False

    def _offsets_at(self, version: int) -> AppliedOffsets | None:
        """Returns the offsets of a version; None if it cannot be read any more."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        root, options = self._place.root, self._place.options
        try:
            table = DeltaTable(root, version=version, storage_options=options)
        except (DeltaError, OSError):
            return None
        return identity_in(table.metadata().configuration).offsets(table.transaction_version)

    def _meta_data(
        self,
        id: str,
        schema: pa.Schema,
        like: TableCreation,
        feeds: Mapping[str, TopicFeed],
        now_ms: int,
        foreign: Mapping[str, str],
    ) -> dict[str, Any]:
        """`foreign`: properties that other programs have set."""
        return actions.meta_data(
            id,
            schema,
            partition_by=like.partition_by,
            configuration={**foreign, **properties_of(like, feeds)},
            created_ms=now_ms,
        )

    def _write(
        self,
        state: LakeTableState,
        change: TableCommit,
        begun: Sequence[dict[str, Any]],
        like: TableCreation,
    ) -> None:
        now_ms = change.committed_ms
        written = [
            actions.commit_info(
                operation=change.operation,
                cut=change.cut,
                offsets=change.offsets,
                now_ms=now_ms,
                read_version=state.version if state.version >= 0 else None,
            ),
            *begun,
            *(
                actions.txn(name, number, now_ms=now_ms)
                for name, number in stored_numbers(
                    like.owner.pipeline, change.offsets, like.generation
                ).items()
            ),
            *(
                actions.remove(
                    each,
                    partition_by=state.partition_by,
                    now_ms=now_ms,
                    is_gone=not change.keeps_rows,
                )
                for each in change.removed
            ),
            *(
                actions.add(
                    each,
                    key=like.schema.field(like.key) if like.key else None,
                    partition_by=like.partition_by,
                    now_ms=now_ms,
                    is_new=not change.keeps_rows,
                )
                for each in change.added
            ),
        ]
        name, content = _log_name(state.version + 1), actions.encode(written)
        is_new = self._place.store.create(name, content)
        # Our own commit, whose answer was lost, has exactly the same text, its number included.
        if not is_new and self._place.store.read(name) != content:
            raise Overtaken


def _deletes_rows(table: "DeltaTable") -> bool:
    """Returns whether files of the table have rows that it does not have."""
    if DELETION_VECTORS not in (table.protocol().reader_features or ()):
        return False
    found: pa.Table = pa.table(table.deletion_vectors())
    return bool(found.num_rows)


def _unwritable(feature: str, root: str) -> SinkRejected:
    cure = f"ALTER TABLE ... DROP FEATURE {feature}"
    if name := actions.PROPERTIES.get(feature):
        cure = f"ALTER TABLE ... UNSET TBLPROPERTIES ('{name}')"
    elif feature == "checkConstraints":
        cure = "ALTER TABLE ... DROP CONSTRAINT NAME"
    return SinkRejected(
        "another program has given the table a feature that this sink does not write",
        feature=feature,
        place=root,
        hint=f"take it away there (Delta in Spark: {cure}); or drop the table with its data, and "
        "it is filled again: headwater drop PIPELINE/TABLE --data",
    )


def _refusal(error: Exception, root: str) -> HeadwaterError:
    """Returns our error for one of deltalake, whose text names the number of the system's."""
    message = str(error)
    found = OF_THE_SYSTEM.search(message)
    code, why = found and int(found[1]), message.partition("\n")[0]
    return SINK_ERRORS.refusal("the lake's store refuses access", error, code, path=root, why=why)


def _log_name(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def _files(table: "DeltaTable", partition_by: Sequence[str], *, key: str) -> list[DataFile]:
    found = pa.table(table.get_add_actions(flatten=True))
    lows = _bounds(found, f"min.{key}")
    highs = _bounds(found, f"max.{key}")
    values = [_texts(found, f"partition.{name}") for name in partition_by]
    rows = _column(found, "num_records")
    return [
        DataFile(
            path,
            rows[at] or 0,
            size,
            lows[at],
            highs[at],
            tuple(each[at] for each in values),
        )
        for at, (path, size) in enumerate(
            zip(found["path"].to_pylist(), found["size_bytes"].to_pylist(), strict=True)
        )
    ]


def _column(table: pa.Table, name: str) -> list[Any]:
    if name not in table.schema.names:
        return [None] * table.num_rows
    return list(table[name].to_pylist())


def _bounds(table: pa.Table, name: str) -> list[Bound | None]:
    if name not in table.schema.names or not has_ranges(table[name].type):
        return [None] * table.num_rows
    return bounds_in(table[name])


def _texts(table: pa.Table, name: str) -> list[str | None]:
    if name not in table.schema.names:
        return [None] * table.num_rows
    return list(table[name].cast(pa.string()).to_pylist())


def _version(info: Mapping[str, Any]) -> Version:
    engine = info.get(actions.ENGINE) or {}
    return Version(
        version=int(info["version"]),
        committed_ms=int(info.get("timestamp", 0)),
        operation=str(info.get("operation", "")),
        cut=engine.get("cut"),
        source_ms=engine.get("committed_ms"),
        positions=engine.get("positions") or {},
        offsets=actions.recorded_offsets(info),
    )
