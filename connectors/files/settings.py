"""YAML keys of a source of `type: files`."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.foundation.settings import DurationMs, SizeBytes, Texts, YamlSettings
from headwater.core_log.objects.settings import S3Settings

FileFormat = Literal["jsonl", "csv", "parquet", "text"]
InputCompression = Literal["none", "gzip", "zstd"]


def check_type(text: str) -> str:
    from headwater.core_log.rows.schema_text import parse_type

    try:
        parse_type(text)
    except DecodeError as error:
        raise ValueError(
            "a type is one of int8 to int64, float32, float64, bool, string, bytes, date,"
            " time(us), timestamp(us), timestamptz(us), decimal(10,2), list<...>, struct<...>"
        ) from error
    return text


def check_character(text: str) -> str:
    if text and (len(text) > 1 or ord(text) > 127 or text in "\r\n"):
        raise ValueError("the value is not one ASCII character (other than a line end)")
    return text


TypeText = Annotated[str, AfterValidator(check_type)]


def check_encoding(text: str) -> str:
    """Raises unless the encoding contains ASCII: lines, quotes and delimiters are found in the
    encoded bytes."""
    try:
        is_like_ascii = all(bytes([code]).decode(text) == chr(code) for code in range(128))
    except (LookupError, ValueError):
        is_like_ascii = False
    if not is_like_ascii:
        raise ValueError(
            "an encoding must be known to Python and contain ASCII, such as utf-8, iso-8859-1,"
            " windows-1252 or shift_jis; convert files of others, such as UTF-16: iconv -f UTF-16"
            " -t UTF-8"
        )
    return text


Encoding = Annotated[str, AfterValidator(check_encoding)]
Character = Annotated[str, AfterValidator(check_character)]


class CsvSettings(YamlSettings):
    """The format of CSV lines."""

    delimiter: Character = ""
    """Delimiter between values; by default a comma, and a tab in files with the ending `.tsv`."""
    encoding: Encoding = Field("utf-8", examples=["windows-1252", "iso-8859-1", "shift_jis"])
    """The encoding of the text, by Python's name. Lines with invalid text are rejected; the reason
    names the column."""
    header: bool = True
    """Whether the first line of every file names its columns. Otherwise `columns` does."""
    quote: Character = '"'
    """Encloses values that contain a delimiter; doubled it stands for itself. Empty: no value is
    ever enclosed."""
    escape: Character = ""
    """Escapes the next character; none by default."""
    nulls: Texts = ("",)
    """Texts that mean null. Enclosed in quotes they are plain text."""
    multiline: bool = False
    """Whether enclosed values may contain line ends. If not, a stray quote spoils one line;
    otherwise it can block its file until the next quote."""

    @property
    def enclosing(self) -> str:
        """Returns the quote character, followed by the escape character."""
        return self.quote and self.quote + self.escape.replace(self.quote, "")


class FilesSettings(YamlSettings):
    """Exactly once, even after a crash in the middle of a file, for files that are appended to,
    that are renamed (as log rotation does it), and that never change: the progress of each file is
    committed in the same transaction of the log as its rows. Rows are events of kind `c` (created),
    with a `key` of kind `u` (updated), because they replace the row of their key.
    A file is identified by its inode (in S3 by its ETag) and by checksums of the part that was
    read:

    - It grew: reading continues after the last whole line.
    - It was renamed within `path` or its own directory: reading continues under the new name, even
      if another file has the old one.
    - It became shorter than the part that was read (`copytruncate`): rows in the log stay, and
      the file is read from its start.
    - The part that was read has changed: the file was rewritten. With a `key` it is read again
      from its start, as events of kind `r`, which replace the rows of the same keys; rows that are
      no longer in the file are not deleted. Without a key `on_rewrite` decides. A file that keeps
      its inode and grows counts as appended to if its first kilobyte and the end of the part that
      was read are unchanged.
    - It was deleted: its rows stay.

    A line that is not a row of its table becomes a dead letter with its place (`orders.csv:19`:
    line 19 of the file, as editors count; `orders.parquet#17`: row 17, counted from 0), and the
    good lines around it are read. A compressed file is resumed by decompressing it from its start
    without parsing it, a Parquet file at its row group. If a compressed file ends within its
    stream, the source waits until it has settled; then its whole lines are rows, and one dead
    letter names the place where it ends. Reading continues there when the rest arrives. A log that
    is compressed after its rotation is another file: keep it outside of `path`.

    Types of columns that are not given are inferred from the first block of a table, and stay:
    lines that do not fit them become dead letters, and later columns are added. A CSV column is
    text if one value of the block is not a number, begins with a zero, or is a whole number longer
    than any integer. A JSON column of whole numbers that needs more than 64 bits is a
    `decimal(38,0)`. Numbers with a point or an exponent are floats of 64 bits: declare their
    columns as decimals if more than 15 digits matter. A line with a whole number that such a column
    would round becomes a dead letter. JSON columns of objects or lists keep them; a line with a
    field that such an object did not have in the first block becomes a dead letter. If that
    matters, set `columns`. A Parquet file that cannot be cast to its table is rejected from that
    row on.
    """

    path: str = Field(
        min_length=1, examples=["./orders/*.csv", "/var/log/shop/app.log*", "s3://lake/events/"]
    )
    """A file, a directory with everything below it, or a glob (`*`, `?`, `[a-z]` within one name,
    `**` across directories), local or `s3://BUCKET/PREFIX`. Names that begin with a dot or an
    underscore are left out."""
    allow_empty: bool = False
    """Whether it is valid that there is no file. Otherwise `headwater run --once` fails if `path`
    does not exist or matches no file."""
    s3: S3Settings = S3Settings()
    """Access to the bucket of an `s3://` path."""
    format: Literal["auto"] | FileFormat = "auto"
    """Format of the files: `jsonl` has an object per line, `text` becomes one column `line`. `auto`
    uses the name (.jsonl .ndjson .json .csv .tsv .parquet .txt .log, before .gz and .zst, before
    numbers that rotation appends) and leaves out unknown names."""
    compression: Literal["auto"] | InputCompression = "auto"
    """`auto` uses the name: .gz is gzip, .zst and .zstd are zstd. Parquet has its own
    compression."""
    table: str = Field("", examples=["orders", "{stem}", "{directory}"])
    """The table of a file's rows: a name, with `{stem}` for the file's name without its endings and
    `{directory}` for the file's directory. By default all files are one table, named after the
    file, the beginning of the glob, or the directory."""
    key: Texts = Field((), examples=["id", ["order_id", "line"]])
    """Columns of the key. Rows in which one of them is null are rejected."""
    columns: dict[str, TypeText] = Field({}, examples=[{"id": "int64", "total": "decimal(10,2)"}])
    """Columns and their types, for all tables of this source; others are not read. Without them,
    names and types come from the files."""
    new_columns: Literal["add", "ignore"] = "add"
    """Handling of columns that appear after a table's types were inferred."""
    csv: CsvSettings = CsvSettings()
    """The format of CSV files."""
    on_rewrite: Literal["stop", "append"] = "stop"
    """Without a key: whether a rewritten file stops the source, or is read again from its start, so
    that its unchanged rows are in the log twice."""
    order: Literal["name", "modified"] = "name"
    """Order of reading: by name, or the longest unchanged file first. A renamed file always comes
    before the one that took its name."""
    poll_ms: DurationMs = Field(100, examples=["1s", "1m"])
    """Interval between scans. At least ten times the duration of a scan; with S3 at least 5s."""
    settle_ms: DurationMs = 5_000
    """How long a local file must be unchanged before its last line counts without a line end, and
    before an incomplete Parquet or compressed file counts as broken. Lines with a line end are
    read at once."""
    batch_bytes: SizeBytes = Field(2 << 20, ge=1 << 10)
    """Bytes of the files that are parsed at a time and become readable together."""
    line_bytes_max: SizeBytes = Field(16 << 20, ge=1 << 10)
    """Longer lines are rejected without their content."""

    @model_validator(mode="after")
    def _columns_are_known(self) -> Self:
        if not self.csv.header and not self.columns and self.format in ("auto", "csv"):
            raise ValueError("`columns` is required without a header")
        if self.columns and (strange := set(self.key) - set(self.columns)):
            raise ValueError(f"columns of the key are missing in columns: {sorted(strange)}")
        if self.csv.quote and self.csv.quote == self.csv.delimiter:
            raise ValueError("quote and delimiter are the same character")
        return self
