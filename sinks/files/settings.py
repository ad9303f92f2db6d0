"""YAML keys of a sink of `type: files`."""

from typing import Literal, Self

from pydantic import Field, model_validator

from headwater.core_log.foundation.settings import (
    DurationMs,
    PatternText,
    SizeBytes,
    Texts,
    YamlSettings,
)
from headwater.core_log.objects.settings import S3Settings

OutputCompression = Literal["none", "gzip", "zstd", "snappy"]


class RollSettings(YamlSettings):
    """When a file is full. Every slice of the log begins new files in any case."""

    rows: int = Field(1_000_000, ge=1)
    """Rows per file at most."""
    size_bytes: SizeBytes = Field(128 << 20, ge=1 << 10)
    """About how large a file gets."""


class FileTableSettings(YamlSettings):
    """Settings for some of the tables."""

    partition_by: Texts = Field((), examples=["order_day", ["country", "order_day"]])
    """Columns whose values divide a table into directories (`order_day=2026-01-31/`). They stay
    in the files as well."""


class FilesSinkSettings(YamlSettings):
    """Every change becomes a row: this sink only appends. A delete has the columns that are known
    of the row that went, the key at least, and `_headwater_op` says `d`; a truncate is a row of
    nulls with `t`. Files lie under `<path>/<table>/`, each holding one schema; when a table's
    shape changes, new files have the new one, and a reader takes the union.

    A slice is applied in this order: its files are written aside; an intent says which names they
    will have; they are put in place; one commit, created only if there is none of its number yet,
    says that they count, and up to which offset of which topic the target now stands. Where a
    second sink has created it first, this one ends. Intents and commits are small JSON objects
    under `_headwater/sinks/<pipeline>.<sink>/`; there is one commit per slice, so `commit_every`
    decides how many there are and how large files get.

    `headwater.sinks.files.formats.table(path, "orders")` gives a table as it is committed, and
    `files(path, "orders")` the names of its files for other tools.

    `schema_changes` has no say here, since no file is ever altered. A path may hold several sinks,
    but a table belongs to one: another that would write it is refused. In S3 the store has to know
    conditional writes (`If-None-Match`), as Amazon, MinIO, Ceph and R2 do.
    """

    path: str = Field(min_length=1, examples=["./out", "s3://lake/shop"])
    """Directory, or `s3://BUCKET/PREFIX`, under which everything is put."""
    s3: S3Settings = S3Settings()
    """How the bucket of an `s3://` path is reached."""
    format: Literal["parquet", "jsonl"] = "parquet"
    """Format of the files. In JSON lines decimals are strings and times are ISO 8601."""
    compression: OutputCompression | None = None
    """How files are compressed: Parquet with zstd, and JSON lines not at all, unless said
    otherwise. JSON lines know `gzip` and `zstd`, and get the ending `.gz` or `.zst`."""
    tables: dict[PatternText, FileTableSettings] = Field(
        {}, examples=[{"*": {"partition_by": ["order_day"]}}]
    )
    """Settings per table, by patterns over its name (`schema.table`); the first that matches."""
    roll: RollSettings = RollSettings()
    """When a file is full and the next one begins."""
    commit_every_ms: DurationMs = 10_000
    """How long changes are gathered before they are committed together; 0s commits each at once,
    and makes a file of each."""
    metadata_columns: bool = True
    """Whether rows have `_headwater_op` (c, u, d, r or t, as in Debezium's events),
    `_headwater_offset` (where the change stands in its partition of the log) and
    `_headwater_committed_at` (when it was committed at its source)."""
    open_files_max: int = Field(64, ge=1)
    """How many files are written at the same time; with more partitions than that, some get
    several smaller ones."""
    buffer_bytes: SizeBytes = Field(32 << 20, ge=1 << 20)
    """How much is kept in memory before it becomes row groups of files."""

    @property
    def local_path(self) -> str:
        """Where it is on a disk of this machine; empty where it is not."""
        return "" if self.path.startswith("s3://") else self.path

    @model_validator(mode="after")
    def _compression_fits(self) -> Self:
        if self.format == "jsonl" and self.compression == "snappy":
            raise ValueError("JSON lines are compressed with gzip or zstd, or not at all")
        return self
