"""About how many rows a file has, from its beginning or from what it says of itself."""

from headwater.connectors.files.contents import BrokenFile, content_of
from headwater.connectors.files.settings import FileFormat, InputCompression
from headwater.connectors.files.storage import RawFile

HEAD_BYTES = 64 << 10
PACKED = 5
"""How much larger texts become when they are decompressed."""


def rows_per_byte_of(raw: RawFile, format: FileFormat, compression: InputCompression) -> float:
    """Of the file as it lies there. Nothing of one that is empty or broken."""
    try:
        if format == "parquet":
            return _rows_said(raw) / max(raw.entry.size, 1)
        head = content_of(raw, compression).read(0, HEAD_BYTES)
    except BrokenFile:
        return 0
    density = head.count(b"\n") / max(len(head), 1)
    return density if compression == "none" else density * PACKED


def _rows_said(raw: RawFile) -> int:
    import pyarrow as pa
    from pyarrow import parquet

    from headwater.connectors.files.parquet_rows import UnorderedRows

    try:
        return int(
            parquet.ParquetFile(pa.PythonFile(UnorderedRows(raw), mode="r")).metadata.num_rows
        )
    except (pa.ArrowInvalid, OSError) as error:
        raise BrokenFile("the file is not, or not yet, whole Parquet") from error
