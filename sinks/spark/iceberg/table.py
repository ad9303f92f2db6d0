"""An Iceberg table: one transaction of its catalog carries files, offsets and a new shape."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.core_log.foundation.errors import SchemaRefused, SinkRejected, SinkUnavailable
from headwater.sinks.spark.iceberg.versions import find_removable, newest_first, said_of, version_of
from headwater.sinks.spark.identity import PREFIX, continue_table, identity_in, properties_of
from headwater.sinks.spark.key_ranges import Bound, DataFile, bound_of, has_ranges
from headwater.sinks.spark.parquet_files import ENDING
from headwater.sinks.spark.storage_location import StorageLocation
from headwater.sinks.spark.table import (
    LakeTableState,
    Overtaken,
    TableCommit,
    TableCreation,
    Version,
    transaction_name,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import DataScan, Table, Transaction
    from pyiceberg.table.snapshots import Snapshot

LISTS = ".avro"
"""How the names of files end that say which files a version has."""
LATER = datetime(9999, 1, 1)
"""Than all that there is."""
SETTINGS = {
    # A commit that came too late is looked at by us, and never repeated blindly.
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    # Each of them lists all versions, and every commit copies what is said of them.
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
    """The catalog gives the newest version to one of several who want to make it."""

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
                    hint="put its files back from a copy; or drop the table with its data, and"
                    " it is filled anew: headwater drop PIPELINE/TABLE --data",
                ) from error
            self._check_place(table)
            return self._state(table)

    def create(self, creation: TableCreation, change: TableCommit) -> LakeTableState:
        from pyiceberg.exceptions import (
            CommitFailedException,
            NamespaceAlreadyExistsError,
            TableAlreadyExistsError,
        )
        from sqlalchemy.exc import IntegrityError

        with self._failures():
            with suppress(NamespaceAlreadyExistsError, IntegrityError):  # of another thread
                self._catalog.create_namespace_if_not_exists(self._address.namespace)
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
                    _change_columns(transaction, state.schema, like.schema)
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
        raise SinkRejected("the table has no such version any more", version=version)

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
                with suppress(CommitFailedException):  # somebody's came first; another time will do
                    _only(table, gone).maintenance.expire_snapshots().older_than(LATER).commit()
            table = self._catalog.load_table(self._identifier)
            needed = {self._relative(path) for path in _named_in(table)}
        return [
            name
            for name, modified_ms in self._place.files("")
            if name.endswith((ENDING, LISTS)) and name not in needed and modified_ms < oldest_ms
        ]

    def forget(self) -> None:
        from pyiceberg.exceptions import NoSuchTableError

        with self._failures(), suppress(NoSuchTableError):
            self._catalog.drop_table(self._identifier)

    def drop(self) -> None:
        self.forget()
        store = self._place.store
        store.remove(store.names(""))

    def _stage(
        self,
        transaction: "Transaction",
        change: TableCommit,
        like: TableCreation,
        files: Mapping[str, "IcebergFile"],
    ) -> None:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        offsets = {
            transaction_name(like.owner.pipeline, part, stand, like.generation): str(
                stand.next_offset
            )
            for part, stand in change.stands.items()
        }
        # Our files name their columns, and the table says which number each name has.
        names = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({**offsets, "schema.name-mapping.default": names})
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
        said = identity_in(settings)
        snapshot = table.current_snapshot()
        names = {field.field_id: field.name for field in table.schema().fields}
        found = schema_to_pyarrow(table.schema(), include_field_ids=False)
        is_empty = snapshot is None
        files = {} if is_empty else self._files(table.scan(snapshot_id=snapshot_id))
        return LakeTableState(
            version=(snapshot.sequence_number or 0) if snapshot is not None else 0,
            id=settings.get(f"{PREFIX}id", str(table.metadata.table_uuid)),
            schema=pa.schema([pa.field(each.name, plain(each.type)) for each in found]),
            files=tuple(_file(table, path, each, said.key) for path, each in files.items()),
            stands=said.stands(lambda name: _number(settings.get(name))),
            generation=said.generation,
            mode=said.mode,
            key=said.key,
            owner=said.owner,
            feeds=said.feeds,
            columns=said.columns,
            partition_by=tuple(names[field.source_id] for field in table.spec().fields),
            native=(table, files),
        )

    def _files(self, scan: "DataScan") -> dict[str, "IcebergFile"]:
        return {self._relative(task.file.file_path): task.file for task in scan.plan_files()}

    def _check_place(self, table: "Table") -> None:
        """One catalog may be given for lakes at several places, and knows tables by name alone."""
        if table.location().rstrip("/") != self._location:
            raise SinkRejected(
                "the catalog has a table of that name at another place",
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

            from headwater.sinks.spark.iceberg.versions import remembering

            kind = "rest" if self._address.uri.startswith("http") else "sql"
            properties = {"type": kind, "uri": self._address.uri, **self._place.iceberg_options}
            held = load_catalog("headwater", **properties, **self._address.properties)
            self._held = held if kind == "rest" else remembering(held)
        return self._held

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """What the catalog and its files refuse, in words."""
        from pyiceberg.exceptions import RESTError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (SQLAlchemyError, RESTError, OSError) as error:
            raise SinkUnavailable(
                "the catalog or its store refuses",
                place=self._place.root,
                why=type(error).__name__,
            ) from error


def plain(kind: pa.DataType) -> pa.DataType:
    """pyiceberg's types as ours are."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain(each.type)) for each in kind])
    return kind


def _change_columns(transaction: "Transaction", held: pa.Schema, wanted: pa.Schema) -> None:
    from pyiceberg.exceptions import ValidationError

    try:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for field in held:
                if field.name not in wanted.names:
                    update.delete_column(field.name)
        with transaction.update_schema() as update:
            update.union_by_name(wanted)
    except (ValidationError, ValueError) as error:
        raise SchemaRefused(
            "Iceberg cannot change a column so in place",
            why=str(error).splitlines()[0],
            hint="drop this table with its data, and it is read anew:"
            " headwater drop PIPELINE/TABLE --data",
        ) from error


def _named_in(table: "Table") -> Iterator[str]:
    """All files of all versions that there are. Versions share most of what names their files."""
    lists: dict[str, ManifestFile] = {}
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        lists |= {each.manifest_path: each for each in snapshot.manifests(table.io)}
    for path, each in lists.items():
        yield path
        for entry in each.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file.file_path


def _only(table: "Table", snapshots: Sequence["Snapshot"]) -> "Table":
    """The table as if it had no other versions. A transaction copies its table dozens of times,
    all versions included, and hands the catalog nothing but what is to change."""
    from pyiceberg.table import Table

    ids = {each.snapshot_id for each in snapshots}
    log = [each for each in table.metadata.snapshot_log if each.snapshot_id in ids]
    metadata = table.metadata.model_copy(update={"snapshots": list(snapshots), "snapshot_log": log})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def _forget_removed(update: Any) -> None:
    """A list that only names what its own commit removed says nothing to later ones. pyiceberg
    hands it on all the same, and reads it for every commit: each would be slower than the last.
    What tells it which lists there are is private; where another version has none of that name,
    nothing is done here, and commits are slower."""
    held = getattr(update, "_existing_manifests", None)
    if held is None:
        return
    update._existing_manifests = lambda: [
        each for each in held() if each.has_added_files() or each.has_existing_files()
    ]


def _divide_otherwise(transaction: "Transaction", columns: Sequence[str]) -> None:
    """Files of before say themselves how they are divided."""
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
