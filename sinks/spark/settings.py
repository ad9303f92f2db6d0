"""YAML keys of a sink of `type: spark`."""

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from headwater.core_log.foundation.name_patterns import Pattern
from headwater.core_log.foundation.settings import (
    DurationMs,
    PatternText,
    SizeBytes,
    Texts,
    YamlSettings,
)
from headwater.core_log.objects.settings import S3Settings

Mode = Literal["mirror", "soft_delete", "append", "scd2"]
Deletes = Literal["hard", "soft", "ignore"]
TableFormat = Literal["delta", "iceberg", "parquet"]
TABLE = r"\{table\}"


class LakeTableSettings(YamlSettings):
    """How matching tables are kept; a key that is left out comes from an earlier matching
    pattern."""

    mode: Mode = "mirror"
    """`mirror`: the rows of the source now; `soft_delete`: the same, with deleted rows kept and
    marked; `append`: one row per change; `scd2`: one row per version, with its times."""
    deletes: Deletes | None = None
    """Effect of a delete in `mirror`: `hard` removes the row, `soft` is mode `soft_delete`,
    `ignore` leaves the row as it was. Default: the sink's own `deletes`."""
    partition_by: Texts = Field((), examples=["country", ["country", "order_day"]])
    """Columns that partition the table's files, so that readers can skip most of them."""
    file_rows: int = Field(500_000, ge=1)
    """Rows per file, about. Files hold ranges of the key, and a change rewrites the files of its
    range: small files make small changes cheap, large files make reads cheap."""


class CatalogSettings(YamlSettings):
    """The catalog of `format: iceberg`, which names the newest version of each table."""

    uri: str = Field("", examples=["sqlite:///lake/catalog.db", "https://catalog.example/api"])
    """A database in SQLAlchemy's form, or the address of a REST catalog. Empty: `catalog.db` beside
    the tables."""
    namespace: str = "headwater"
    """The catalog's namespace for the tables."""
    properties: dict[str, str] = Field({}, examples=[{"token": "${env:CATALOG_TOKEN}"}])
    """Further properties of pyiceberg's catalog, by pyiceberg's names."""


class MaintenanceSettings(YamlSettings):
    """Maintenance of tables, done by the sink between slices, and by `headwater maintain`."""

    every_ms: DurationMs = 3_600_000
    """How often tables are checked; `0s` leaves it to `headwater maintain`."""
    small_files: int = Field(16, ge=2)
    """Number of files with less than a quarter of `file_rows` from which on they are compacted."""
    retain_ms: DurationMs = Field(604_800_000, ge=3_600_000)
    """How long files stay that no longer belong to a table, for readers of earlier versions. Files
    of interrupted runs stay as long, because they look like files of a slice in progress;
    therefore at least one hour."""


class SparkSettings(YamlSettings):
    """Keeps tables of a lake equal to the source's: rows and their offsets are one commit of the
    table. A slice is applied in this process, or by Spark if Spark is sooner done; its executors
    read the log themselves."""

    follows_columns: ClassVar[bool] = True
    """The tables store the ids of their columns, as `assembly.follows_columns` requires."""

    path: str = Field(min_length=1, examples=["./lake", "s3://lake/shop"])
    """Directory, or `s3://BUCKET/PREFIX`, of the tables."""
    s3: S3Settings = S3Settings()
    """Access to the bucket of an `s3://` path. The store must support conditional writes
    (`If-None-Match`), as Amazon, MinIO, Ceph and R2 do."""
    format: TableFormat = "delta"
    """`delta`, `iceberg` (needs the extra `headwater[iceberg]`), or `parquet`: plain files of
    changes (mode `append`), whose manifest is Delta's log. Readers of `parquet` that do not use
    the manifest may see files of an interrupted run. After a rebuild, or after a column became
    wider, they also see the former files until `maintenance` removes them."""
    catalog: CatalogSettings = CatalogSettings()
    """The catalog of `format: iceberg`."""
    table: str = Field("{schema}.{table}", examples=["{schema}/{table}"], pattern=TABLE)
    """Name of a table's directory, made of `{schema}` and `{table}`."""
    deletes: Deletes = "hard"
    """Effect of a delete on tables in mode `mirror`, see `tables`."""
    tables: dict[PatternText, LakeTableSettings] = Field(
        {}, examples=[{"*": {"mode": "mirror"}, "public.orders": {"mode": "scd2"}}]
    )
    """Table patterns to how those tables are kept; if several match, the last one wins."""
    commit_every_ms: DurationMs = 10_000
    """How long changes are collected before they are committed together; of more than 250,000
    changes, or 64 MB, at most half as long as the last slice took."""
    slice_rows: int = Field(5_000_000, ge=1)
    """Rows after which a slice ends at the next commit boundary, instead of `limits.slice_rows`. It
    is larger because Spark reads large slices as easily as small ones, and tables are rewritten
    less often."""
    slice_size_bytes: SizeBytes = Field(2 << 30, ge=1)
    """Bytes in the log after which a slice ends at the next commit boundary."""
    consistent_cut: bool = False
    """Whether every slice records which versions of all tables belong together, so that
    `headwater.tables_at` can open them at one consistent cut."""
    small_rows: int | None = Field(None, ge=0)
    """Records of one table in a slice up to which it is applied in this process, without Spark.
    Default: 200,000 if `master` is a cluster or Spark runs already, else as many as this process
    applies before Spark had started on this machine and applied them."""
    rewritten_rows: int | None = Field(None, ge=0)
    """Rows that such a slice may rewrite in this process; larger rewrites are left to Spark.
    Default: 2 million, or more by the same estimate."""
    tables_at_once: int = Field(2, ge=1)
    """Number of tables that are written at the same time."""
    master: str = Field("local[*]", examples=["spark://spark.example:7077"])
    """Spark's master: `local[N]`, or a cluster's address."""
    memory_bytes: SizeBytes = Field(1 << 30, ge=256 << 20)
    """Heap of Spark's driver, which does all the work in local mode."""
    scratch: Path | None = None
    """Directory to which Spark spills. Default: the system's directory for temporary files."""
    python: str = ""
    """Interpreter of the executors. Default: the one that runs this process."""
    spark: dict[str, str] = Field({}, examples=[{"spark.executor.memory": "4g"}])
    """Spark's own settings by their own names; they win over ours."""
    split_rows: int = Field(2_500_000, ge=1)
    """Records of the log that one Spark task reads at most. The larger it is, the more changes of
    one key meet in a task, which passes on only the newest."""
    maintenance: MaintenanceSettings = MaintenanceSettings()
    """Compaction, and removal of files that are no longer needed."""

    @property
    def local_path(self) -> str:
        """Returns the path if it is on a disk of this machine; else empty."""
        return "" if self.path.startswith("s3://") else self.path

    @model_validator(mode="after")
    def _tables_fit(self) -> Self:
        for pattern, table in self.tables.items():
            if table.deletes is not None and table.mode in ("append", "scd2"):
                raise ValueError(
                    f"tables[{pattern!r}]: mode {table.mode} records deletes; `deletes` is for "
                    "mirror"
                )
            is_other = "mode" in table.model_fields_set and table.mode != "append"
            if self.format == "parquet" and (is_other or table.partition_by):
                raise ValueError(
                    f"tables[{pattern!r}]: format parquet only knows mode append, undivided"
                )
        return self

    def of(self, table: str) -> LakeTableSettings:
        """Returns how `table` (`schema.table`) is kept."""
        chosen: dict[str, object] = {}
        for pattern, settings in self.tables.items():
            if Pattern(pattern).matches(table):
                chosen |= {name: getattr(settings, name) for name in settings.model_fields_set}
        found = LakeTableSettings.model_validate(chosen)
        deletes = found.deletes or self.deletes
        mode: Mode = "append" if self.format == "parquet" else found.mode
        if mode == "mirror" and deletes == "soft":
            mode = "soft_delete"
        return found.model_copy(update={"mode": mode, "deletes": deletes})
