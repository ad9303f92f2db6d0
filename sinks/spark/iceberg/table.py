"""An Iceberg table: one transaction of its catalog carries files, offsets and schema."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.core_log.foundation.errors import SchemaRefused, SinkRejected
from headwater.core_log.objects.store import SINK_ERRORS, names_below
from headwater.sinks.spark.iceberg.versions import (
    NUMBER,
    find_removable,
    is_rolled_back,
    newest_first,
    said_of,
    version_of,
)
from headwater.sinks.spark.key_ranges import Bound, DataFile, bound_of, has_ranges
from headwater.sinks.spark.parquet_files import ENDING
from headwater.sinks.spark.storage_location import StorageLocation
from headwater.sinks.spark.table import (
    PREFIX,
    LakeTableState,
    Overtaken,
    TableCommit,
    TableCreation,
    Version,
    continue_table,
    identity_in,
    properties_of,
    rows_deleted_elsewhere,
    stored_numbers,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import DataScan, Table, Transaction
    from pyiceberg.table.name_mapping import NameMapping
    from pyiceberg.table.snapshots import Snapshot

LISTS = ".avro"
"""Endings of the names of files that list a version's files."""
LATER = datetime(9999, 1, 1)
"""A time later than all others."""
PROMOTED = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}
"""Types that Iceberg makes wider in place, beside decimals with more digits."""
SETTINGS = {
    # A commit that came too late is examined by our code, never repeated blindly.
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    # Each metadata file lists all versions, and every commit copies the list.
    "write.metadata.previous-versions-max": "20",
}


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """How the catalog is reached, and where in it the table is."""

    uri: str
    namespace: str
    name: str
    properties: Mapping[str, str]


class IcebergLakeTable:
    """An Iceberg table of the lake.

    If several writers commit the same version, the catalog accepts one.
    """

    def __init__(self, place: StorageLocation, address: CatalogAddress) -> None:
        self._place, self._address = place, address
        self._held: Catalog | None = None

    def load(self) -> LakeTableState | None:
        from pyiceberg.exceptions import NoSuchTableError, ValidationError

        with self._failures():
            try:
                table = self._catalog.load_table(self._identifier)
            except NoSuchTableError:
                return None
            except (ValidationError, FileNotFoundError) as error:
                raise SinkRejected(
                    "the metadata of an Iceberg table is damaged",
                    place=self._place.root,
                    hint="restore its files from a backup; or drop the table with its data, and "
                    "it is filled again: headwater drop PIPELINE/TABLE --data",
                ) from error
            self._check_place(table)
            return self._state(table)

    def create(self, creation: TableCreation, change: TableCommit) -> LakeTableState:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        with self._failures():
            self._create_namespace()
            properties = SETTINGS | properties_of(creation, change.feeds)
            try:
                with self._catalog.create_table_transaction(
                    self._identifier,
                    schema=creation.schema,
                    location=self._location,
                    properties=properties | {f"{PREFIX}id": creation.id},
                ) as transaction:
                    for column in creation.partition_by:
                        with transaction.update_spec() as spec:
                            spec.add_identity(column)
                    self._stage(transaction, change, creation, {})
            except (TableAlreadyExistsError, CommitFailedException):
                raise Overtaken from None
        return self._after()

    def _create_namespace(self) -> None:
        """Catalogs have several errors for a namespace that another thread or process has just
        created; a REST catalog over a database has an internal one."""
        namespace = self._address.namespace
        try:
            self._catalog.create_namespace_if_not_exists(namespace)
        except Exception:
            if not self._catalog.namespace_exists(namespace):
                raise

    def commit(self, state: LakeTableState, change: TableCommit) -> LakeTableState:
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

        table, files = state.native
        like, feeds = continue_table(state, change)
        with self._failures():
            current = table.current_snapshot()
            newest = _only(table, [] if current is None else [current])
            transaction = newest.transaction()
            try:
                if not like.schema.equals(state.schema):
                    _change_columns(transaction, state, like.schema, change.removed)
                if like.partition_by != state.partition_by:
                    _divide_otherwise(transaction, like.partition_by)
                transaction.set_properties(properties_of(like, feeds))
                self._stage(transaction, change, like, files)
                return self._state(transaction.commit_transaction())
            except (CommitFailedException, NoSuchTableError):
                raise Overtaken from None

    def versions(self, count: int) -> Sequence[Version]:
        state = self.load()
        if state is None:
            return []
        table, _ = state.native
        return [version_of(each) for each in newest_first(table.metadata.snapshots)[:count]]

    def at(self, version: int) -> LakeTableState:
        state = self.load()
        if state is not None:
            table, _ = state.native
            for each in table.metadata.snapshots:
                if each.sequence_number == version:
                    return self._state(table, snapshot_id=each.snapshot_id)
        raise SinkRejected("the version of the table no longer exists", version=version)

    def find_unneeded(self, *, older_than_ms: int, now_ms: int) -> list[str]:
        from pyiceberg.exceptions import CommitFailedException

        state = self.load()
        if state is None:
            return []
        table, _ = state.native
        oldest_ms = now_ms - older_than_ms
        gone = find_removable(table.metadata.snapshots, older_than_ms=older_than_ms, now_ms=now_ms)
        with self._failures():
            if gone:
                # another commit came first; the next attempt will do
                with suppress(CommitFailedException):
                    _only(table, gone).maintenance.expire_snapshots().older_than(LATER).commit()
            table = self._catalog.load_table(self._identifier)
            needed = {self._relative(path) for path in _named_in(table)}
        return [
            each.name
            for each in self._place.store.objects("")
            if each.name.endswith((ENDING, LISTS))
            and each.name not in needed
            and each.modified_us < oldest_ms * 1_000
        ]

    def forget(self) -> None:
        from pyiceberg.exceptions import NoSuchTableError

        with self._failures(), suppress(NoSuchTableError):
            self._catalog.drop_table(self._identifier)

    def drop(self) -> None:
        self.forget()
        store = self._place.store
        store.remove(names_below(store))

    def _stage(
        self,
        transaction: "Transaction",
        change: TableCommit,
        like: TableCreation,
        files: Mapping[str, "IcebergFile"],
    ) -> None:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        numbers = stored_numbers(like.owner.pipeline, change.offsets, like.generation)
        offsets = {name: str(number) for name, number in numbers.items()}
        # Our files name their columns; the table maps each name to its field id.
        names = _name_mapping(transaction).model_dump_json()
        number = str(transaction.table_metadata.next_sequence_number())
        transaction.set_properties(
            {**offsets, NUMBER: number, "schema.name-mapping.default": names}
        )
        metadata = transaction.table_metadata
        with transaction.update_snapshot(snapshot_properties=said_of(change)).overwrite() as update:
            _forget_removed(update)
            for each in change.removed:
                update.delete_data_file(files[each.path])
            for each in change.added:
                path = f"{self._location}/{each.path}"
                update.append_data_file(
                    parquet_file_to_data_file(transaction._table.io, metadata, path)
                )

    def _after(self) -> LakeTableState:
        found = self.load()
        assert found is not None, "what was committed is there"
        return found

    def _state(self, table: "Table", *, snapshot_id: int | None = None) -> LakeTableState:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        settings: Mapping[str, str] = table.properties
        identity = identity_in(settings)
        snapshot = table.current_snapshot()
        names = {field.field_id: field.name for field in table.schema().fields}
        found = schema_to_pyarrow(table.schema(), include_field_ids=False)
        is_empty = snapshot is None
        files = {} if is_empty else self._files(table.scan(snapshot_id=snapshot_id))
        return LakeTableState(
            version=(snapshot.sequence_number or 0) if snapshot is not None else 0,
            id=settings.get(f"{PREFIX}id", str(table.metadata.table_uuid)),
            schema=pa.schema([pa.field(each.name, plain(each.type)) for each in found]),
            files=tuple(_file(table, path, each, identity.key) for path, each in files.items()),
            offsets=identity.offsets(lambda name: _number(settings.get(name))),
            generation=identity.generation,
            mode=identity.mode,
            key=identity.key,
            owner=identity.owner,
            feeds=identity.feeds,
            columns=identity.columns,
            partition_by=tuple(names[field.source_id] for field in table.spec().fields),
            native=(table, files),
            is_put_back=is_rolled_back(
                table.metadata.snapshots, snapshot, newest=_number(settings.get(NUMBER)) or 0
            ),
        )

    def _files(self, scan: "DataScan") -> dict[str, "IcebergFile"]:
        tasks = list(scan.plan_files())
        if any(task.delete_files for task in tasks):
            raise rows_deleted_elsewhere(self._place.root)
        return {self._relative(task.file.file_path): task.file for task in tasks}

    def _check_place(self, table: "Table") -> None:
        """Checks the table's location: a catalog knows tables by name, and can serve several
        lakes."""
        if table.location().rstrip("/") != self._location:
            raise SinkRejected(
                "the catalog has a table of this name at another path",
                hint="give the sink another `catalog: {namespace: ...}`",
                name=".".join(self._identifier),
                place=table.location(),
                wanted=self._location,
            )

    def _relative(self, path: str) -> str:
        return path.removeprefix(f"{self._location}/")

    @property
    def _identifier(self) -> tuple[str, str]:
        return self._address.namespace, self._address.name

    @property
    def _location(self) -> str:
        return f"file://{self._place.root}" if self._place.is_local else self._place.root

    @property
    def _catalog(self) -> "Catalog":
        if self._held is None:
            from pyiceberg.catalog import load_catalog
            from sqlalchemy.exc import DBAPIError

            from headwater.sinks.spark.iceberg.versions import remembering

            kind = "rest" if self._address.uri.startswith("http") else "sql"
            properties = {"type": kind, "uri": self._address.uri, **self._place.iceberg_options}
            load = partial(load_catalog, "headwater", **properties, **self._address.properties)
            try:
                held = load()
            except DBAPIError:  # another process has made the catalog's tables meanwhile
                held = load()
            self._held = held if kind == "rest" else remembering(held)
        return self._held

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Raises errors of the catalog and its files as errors of ours."""
        from pyiceberg.exceptions import RESTError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (SQLAlchemyError, RESTError, OSError) as error:
            raise SINK_ERRORS.refusal(
                "the catalog or its store refuses access",
                error,
                getattr(error, "errno", None),
                path=self._place.root,
                why=type(error).__name__,
            ) from error


def plain(kind: pa.DataType) -> pa.DataType:
    """Returns the plain Arrow type of pyiceberg's type."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain(each.type)) for each in kind])
    return kind


def _change_columns(
    transaction: "Transaction", held: LakeTableState, wanted: pa.Schema, removed: Sequence[DataFile]
) -> None:
    """Gives the table its new columns. A type that Iceberg does not promote is the type of another
    column under the same name, so that all files are written anew."""
    others = {each.name for each in wanted if not _is_kept(held.schema, each)}
    is_whole = {each.path for each in removed} == {each.path for each in held.files}
    assert is_whole or not others, "a column's type only changes in commits of all files"
    if divided := others & set(held.partition_by):
        raise SchemaRefused(
            "Iceberg cannot change the type of a column that divides the table",
            column=min(divided),
            hint="drop this table with its data, and it is filled again: headwater drop "
            "PIPELINE/TABLE --data",
        )
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        for name in held.schema.names:
            if name not in wanted.names or name in others:
                update.delete_column(name)
    with transaction.update_schema() as update:
        update.union_by_name(wanted)


def _is_kept(held: pa.Schema, wanted: pa.Field) -> bool:
    """Returns whether the column stays the same one, if there is one of this name."""
    if wanted.name not in held.names:
        return True
    before, after = held.field(wanted.name).type, wanted.type
    if pa.types.is_decimal(before) and pa.types.is_decimal(after):
        return bool(before.scale == after.scale and before.precision <= after.precision)
    return after == before or (before, after) in PROMOTED


def _name_mapping(transaction: "Transaction") -> "NameMapping":
    """With the names of columns that are gone, under which older versions are read."""
    from pyiceberg.table.name_mapping import NameMapping

    metadata = transaction.table_metadata
    now, before = metadata.schema().name_mapping, metadata.name_mapping()
    taken = {name for each in now.root for name in each.names}
    ids = {each.field_id for each in now.root}
    gone = [
        each
        for each in (() if before is None else before.root)
        if each.field_id not in ids and taken.isdisjoint(each.names)
    ]
    return NameMapping([*now.root, *gone])


def _named_in(table: "Table") -> Iterator[str]:
    """Returns all files of all versions. Versions share most manifests."""
    lists: dict[str, ManifestFile] = {}
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        lists |= {each.manifest_path: each for each in snapshot.manifests(table.io)}
    for path, each in lists.items():
        yield path
        for entry in each.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file.file_path


def _only(table: "Table", snapshots: Sequence["Snapshot"]) -> "Table":
    """Returns the table without its other versions.

    A transaction copies its table dozens of times, all versions included, and sends the catalog
    only the change.
    """
    from pyiceberg.table import Table

    ids = {each.snapshot_id for each in snapshots}
    log = [each for each in table.metadata.snapshot_log if each.snapshot_id in ids]
    metadata = table.metadata.model_copy(update={"snapshots": list(snapshots), "snapshot_log": log})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def _forget_removed(update: Any) -> None:
    """Leaves out manifests that only name files which their own commit removed.

    pyiceberg keeps them and reads them for every commit, so each commit would be slower than the
    last. The list is private to pyiceberg: in a version without it nothing is done, and commits are
    slower.
    """
    held = getattr(update, "_existing_manifests", None)
    if held is None:
        return
    update._existing_manifests = lambda: [
        each for each in held() if each.has_added_files() or each.has_existing_files()
    ]


def _divide_otherwise(transaction: "Transaction", columns: Sequence[str]) -> None:
    """Returns partition values from files of before, which store them."""
    held = [field.name for field in transaction.table_metadata.spec().fields]
    with transaction.update_spec() as spec:
        for name in held:
            if name not in columns:
                spec.remove_field(name)
        for name in columns:
            if name not in held:
                spec.add_identity(name)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _file(table: "Table", path: str, file: "IcebergFile", key: str) -> DataFile:
    low: Bound | None = None
    high: Bound | None = None
    if key:
        from pyiceberg.conversions import from_bytes
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        field = table.schema().find_field(key)
        lower = (file.lower_bounds or {}).get(field.field_id)
        upper = (file.upper_bounds or {}).get(field.field_id)
        if lower is not None and upper is not None:
            kind = plain(schema_to_pyarrow(field.field_type))
            if has_ranges(kind):
                low, high = (
                    bound_of(from_bytes(field.field_type, each), kind)  # type: ignore[arg-type]
                    for each in (lower, upper)
                )
    values = tuple(None if each is None else str(each) for each in _partition(file))
    return DataFile(path, file.record_count, file.file_size_in_bytes, low, high, values)


def _partition(file: "IcebergFile") -> list[Any]:
    return [file.partition[at] for at in range(len(file.partition))]
