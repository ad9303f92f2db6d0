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
from headwater.core_log.s3.settings import S3Settings

Mode = Literal["mirror", "soft_delete", "append", "scd2"]
Deletes = Literal["hard", "soft", "ignore"]
TableFormat = Literal["delta", "iceberg", "parquet"]
TABLE = r"\{table\}"


class LakeTableSettings(YamlSettings):
    """How some tables are kept; what is left out is taken from a pattern further up."""

    mode: Mode = "mirror"
    """`mirror`: the table as the source has it; `soft_delete`: the same, but deleted rows stay and
    say since when; `append`: a row per change; `scd2`: a row per version, with its time."""
    deletes: Deletes | None = None
    """What a delete does in `mirror`: `hard` removes the row, `soft` is mode `soft_delete`,
    `ignore` leaves the row as it was. The sink's own `deletes` where it is left out."""
    partition_by: Texts = Field((), examples=["country", ["country", "order_day"]])
    """Columns whose values divide the table's files, so that readers can pass over most of them."""
    file_rows: int = Field(500_000, ge=1)
    """About how many rows a file has. Files hold ranges of the key, and a change rewrites those
    files whose ranges it falls into: small ones make small changes cheap, large ones make reading
    cheap."""


class CatalogSettings(YamlSettings):
    """The catalog of `format: iceberg`, which says what the newest version of a table is."""

    uri: str = Field("", examples=["sqlite:///lake/catalog.db", "https://catalog.example/api"])
    """A database by SQLAlchemy's address, or a REST catalog. Empty: `catalog.db` beside the
    tables."""
    namespace: str = "headwater"
    """Where the catalog keeps the tables."""
    properties: dict[str, str] = Field({}, examples=[{"token": "${env:CATALOG_TOKEN}"}])
    """What else pyiceberg wants to know of the catalog, by its own names."""


class MaintenanceSettings(YamlSettings):
    """What keeps tables healthy; done by the sink between slices, and by `headwater maintain`."""

    every_ms: DurationMs = 3_600_000
    """How often tables are looked at; `0s` leaves it to `headwater maintain`."""
    small_files: int = Field(16, ge=2)
    """From how many files of less than a quarter of `file_rows` on they are put together."""
    retain_ms: DurationMs = Field(604_800_000, ge=3_600_000)
    """How long files stay that no longer belong to a table, so that versions of before can be
    read and readers can end. Files of runs that broke off stay as long; they look like those of a
    slice that is being written, and so it cannot be less than an hour."""


class SparkSettings(YamlSettings):
    """Keeps tables of a lake equal to the source's: rows and the offsets that they came from are
    one commit of the table. Small slices are applied in this process; large ones by Spark, whose
    executors read the log themselves."""

    follows_columns: ClassVar[bool] = True
    """Its tables know the ids of their columns, which `assembly.follows_columns` asks."""

    path: str = Field(min_length=1, examples=["./lake", "s3://lake/shop"])
    """Directory, or `s3://BUCKET/PREFIX`, under which the tables are."""
    s3: S3Settings = S3Settings()
    """How the bucket of an `s3://` path is reached. The store has to know conditional writes
    (`If-None-Match`), as Amazon, MinIO, Ceph and R2 do."""
    format: TableFormat = "delta"
    """`delta`, `iceberg` (wants the extra `headwater[iceberg]`), or `parquet`: plain files of
    changes (mode `append`), whose manifest is Delta's log. Who reads the files without it may see
    some of a run that broke off, and after a rebuild, or once a column has become wider, those of
    before as well until `maintenance` removes them."""
    catalog: CatalogSettings = CatalogSettings()
    """The catalog of `format: iceberg`."""
    table: str = Field("{schema}.{table}", examples=["{schema}/{table}"], pattern=TABLE)
    """What a table's directory is called, made of `{schema}` and `{table}`."""
    deletes: Deletes = "hard"
    """What a delete does to tables in mode `mirror`, see `tables`."""
    tables: dict[PatternText, LakeTableSettings] = Field(
        {}, examples=[{"*": {"mode": "mirror"}, "public.orders": {"mode": "scd2"}}]
    )
    """Tables by pattern to how they are kept; of several that match, the last counts."""
    commit_every_ms: DurationMs = 10_000
    """How long changes are gathered before they are committed together."""
    slice_rows: int = Field(5_000_000, ge=1)
    """Rows after which a slice ends at the next commit boundary, instead of `limits.slice_rows`:
    Spark reads large slices as easily as small ones, and a table is rewritten less often."""
    slice_size_bytes: SizeBytes = Field(2 << 30, ge=1)
    """Bytes in the log after which it does."""
    consistent_cut: bool = False
    """Whether every slice leaves a record of which versions of all tables belong together, so that
    `headwater.tables_at` can open them as of one moment of the source."""
    small_rows: int = Field(200_000, ge=0)
    """Up to how many records of one table in a slice are applied in this process, without Spark."""
    rewritten_rows: int = Field(2_000_000, ge=0)
    """Up to how many rows a small slice may rewrite in this process; Spark does what is more."""
    tables_at_once: int = Field(2, ge=1)
    """How many tables are worked on at the same time."""
    master: str = Field("local[*]", examples=["spark://spark.example:7077"])
    """Where Spark does its work: `local[N]`, or a cluster's address."""
    memory_bytes: SizeBytes = Field(1 << 30, ge=256 << 20)
    """Heap of Spark's driver, which in local mode does all the work."""
    scratch: Path | None = None
    """Where Spark spills; left out, the system's own place for such files."""
    python: str = ""
    """Interpreter of the executors; empty for the one that runs this."""
    spark: dict[str, str] = Field({}, examples=[{"spark.executor.memory": "4g"}])
    """Spark's own settings by their own names; they win over ours."""
    split_rows: int = Field(2_500_000, ge=1)
    """How many records of the log one task of Spark reads at most. The larger, the more changes of
    one key meet in a task, which then hands on only the newest."""
    maintenance: MaintenanceSettings = MaintenanceSettings()
    """Compaction, and removal of files that are no longer needed."""

    @property
    def local_path(self) -> str:
        """Where it is on a disk of this machine; empty where it is not."""
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
        """How `table`, as `schema.table`, is kept."""
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
