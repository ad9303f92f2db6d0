"""YAML keys of a source of `type: files`."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.foundation.settings import DurationMs, SizeBytes, Texts, YamlSettings
from headwater.core_log.s3.settings import S3Settings

FileFormat = Literal["jsonl", "csv", "parquet", "text"]
InputCompression = Literal["none", "gzip", "zstd"]


def check_type(text: str) -> str:
    from headwater.core_log.rows.column_types import parse_type

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
        raise ValueError("this is one ASCII character, and no line end")
    return text


TypeText = Annotated[str, AfterValidator(check_type)]


def check_encoding(text: str) -> str:
    """Lines, quotes and delimiters are found in the bytes as they are."""
    try:
        is_like_ascii = all(bytes([code]).decode(text) == chr(code) for code in range(128))
    except (LookupError, ValueError):
        is_like_ascii = False
    if not is_like_ascii:
        raise ValueError(
            "this is an encoding that Python knows and that contains ASCII, such as utf-8,"
            " iso-8859-1, windows-1252 or shift_jis; convert files of others, such as UTF-16: iconv"
            " -f UTF-16 -t UTF-8"
        )
    return text


Encoding = Annotated[str, AfterValidator(check_encoding)]
Character = Annotated[str, AfterValidator(check_character)]


class CsvSettings(YamlSettings):
    """How lines of CSV are read."""

    delimiter: Character = ""
    """What stands between values; by default a comma, and a tab in files called `.tsv`."""
    encoding: Encoding = Field("utf-8", examples=["windows-1252", "iso-8859-1", "shift_jis"])
    """The encoding of the text, by a name that Python knows. Lines that are not in it are set
    aside, with the column."""
    header: bool = True
    """Whether the first line of every file names its columns. Without one, `columns` does."""
    quote: Character = '"'
    """What encloses values that hold a delimiter; written twice it stands for itself. Empty: no
    value is ever enclosed."""
    escape: Character = ""
    """What takes its meaning from the character after it; by default there is none."""
    nulls: Texts = ("",)
    """Texts that mean that there is no value. Enclosed in quotes they mean themselves."""
    multiline: bool = False
    """Whether enclosed values may hold line ends. If not, a stray quote spoils one line; if they
    may, it can hold up its file until the next quote comes."""

    @property
    def enclosing(self) -> str:
        """The quote, and behind it what takes its meaning from it."""
        return self.quote and self.quote + self.escape.replace(self.quote, "")


class FilesSettings(YamlSettings):
    """The promise holds for files that are appended to, that are renamed (as log rotation does
    it) and that never change, in the middle of a file as well: what has been taken of each file
    is committed in the same transaction of the log as its rows. Rows are events of kind `c`
    (created). A file is known by its place on the disk (inode; in S3 the ETag) and by checksums
    of what has been read:

    - It grew: reading goes on after the last whole line.
    - It was renamed within `path` or its own directory: reading goes on under the new name, also
      when another file has taken the old one.
    - It became shorter than what had been read (`copytruncate`): what was read by then stays in
      the log, and reading begins again at its start.
    - What had been read of it changed: it was rewritten. With a `key` it is read again whole, as
      events of kind `r`, which replace the rows of the same keys; rows that are no longer in the
      file are not deleted. Without a key `on_rewrite` says what happens. A file that keeps its
      inode and grows is taken as appended to when its first kilobyte and the end of what had been
      read are as they were.
    - It was deleted: its rows stay.

    A line that is no row of its table goes to the dead-letter topic with its place
    (`orders.csv:19`: line 19 of the file, as editors count; `orders.parquet#17`: row 17, counted
    from 0), and the good lines around it go on. A compressed file is resumed by reading it from its
    start without parsing it, a Parquet file at its row group. A compressed file that ends within
    its stream is waited for; when it has settled so, its whole lines are rows, and one dead letter
    says where it ends. Reading goes on there when the rest comes. A log that is compressed after it
    was rotated is another file: leave it outside `path`.

    Types of columns that are not given are inferred from the first block that is read of a table,
    and stay: lines that do not fit them go to the dead-letter topic, columns that show up later
    are added. A column of CSV in which the block has one value that is no number is text from
    then on, and so is one whose numbers begin with zeros, or are whole and longer than any integer.
    A column of JSON that is whole and needs more than 64 bits is a `decimal(38,0)`. Numbers with a
    point or an exponent are floats of 64 bits: give their columns as decimals where more than 15
    digits matter. A whole number of which such a column would lose digits sets its line aside.
    Columns of JSON that hold objects or lists keep them as they are; a field that such an object
    did not have in the first block is a reason to set its line aside. Where that matters, give
    `columns`. A Parquet file that cannot be cast to its table is set aside from that row on.
    """

    path: str = Field(
        min_length=1, examples=["./orders/*.csv", "/var/log/shop/app.log*", "s3://lake/events/"]
    )
    """A file, a directory with all below it, or a glob (`*`, `?`, `[a-z]` within one name, `**`
    across directories), local or `s3://BUCKET/PREFIX`. Names that begin with a dot or an
    underscore are left out."""
    allow_empty: bool = False
    """Whether it is right that no file is there. If not, `headwater run --once` fails where `path`
    is not there, or matches no file."""
    s3: S3Settings = S3Settings()
    """How the bucket of an `s3://` path is reached."""
    format: Literal["auto"] | FileFormat = "auto"
    """What the files hold: `jsonl` has an object per line, `text` becomes one column `line`.
    `auto` goes by the name (.jsonl .ndjson .json .csv .tsv .parquet .txt .log, before .gz and
    .zst, before numbers that rotation appends) and leaves out what it does not know."""
    compression: Literal["auto"] | InputCompression = "auto"
    """`auto` goes by the name: .gz is gzip, .zst and .zstd are zstd. Parquet compresses itself."""
    table: str = Field("", examples=["orders", "{stem}", "{directory}"])
    """The table that a file's rows belong to: a name, with `{stem}` for the file's name without
    its endings and `{directory}` for the directory it lies in. By default all files are one
    table, called like the file, the beginning of the glob, or the directory."""
    key: Texts = Field((), examples=["id", ["order_id", "line"]])
    """Columns that tell rows apart. Rows in which one of them is null are set aside."""
    columns: dict[str, TypeText] = Field({}, examples=[{"id": "int64", "total": "decimal(10,2)"}])
    """Columns and their types, for all tables of this source; others are not read. Without them,
    names and types come from the files."""
    new_columns: Literal["add", "ignore"] = "add"
    """What happens to columns that were not there when a table's types were inferred."""
    csv: CsvSettings = CsvSettings()
    """How CSV is read."""
    on_rewrite: Literal["stop", "append"] = "stop"
    """Without a key: whether a rewritten file stops the source, or is read again whole, so that
    what stayed the same in it is in the log twice."""
    order: Literal["name", "modified"] = "name"
    """Which files are read first: by name, or the longest unchanged. A file that was renamed
    always comes before the one that took its name."""
    poll_ms: DurationMs = Field(100, examples=["1s", "1m"])
    """How often the files are looked at. Never more often than looking at them takes, ten times;
    with S3 at least every 5s."""
    settle_ms: DurationMs = 5_000
    """How long a local file has to be unchanged until its last line counts though no line end
    follows, and until a Parquet file without a valid end, or a compressed one, counts as broken.
    Lines with their end are read at once."""
    batch_bytes: SizeBytes = Field(2 << 20, ge=1 << 10)
    """How much of the files is parsed at a time and becomes readable together."""
    line_bytes_max: SizeBytes = Field(16 << 20, ge=1 << 10)
    """Longer lines are set aside without their content."""

    @model_validator(mode="after")
    def _columns_are_known(self) -> Self:
        if not self.csv.header and not self.columns and self.format in ("auto", "csv"):
            raise ValueError("without a header the columns have to be given")
        if self.columns and (strange := set(self.key) - set(self.columns)):
            raise ValueError(f"columns of the key are missing in columns: {sorted(strange)}")
        if self.csv.quote and self.csv.quote == self.csv.delimiter:
            raise ValueError("quote and delimiter are the same character")
        return self
