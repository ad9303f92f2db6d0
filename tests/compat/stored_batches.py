"""The batches of a partition as they lie in its files, for what no client can see."""

from collections.abc import Iterator
from pathlib import Path

from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader


def stored_batches(data: Path, topic: str, partition: int = 0) -> Iterator[BatchHeader]:
    for path in sorted((data / "log" / f"{topic}-{partition}").glob("*.log")):
        content = path.read_bytes()
        position = 0
        while position + HEADER_BYTES <= len(content):
            header = BatchHeader.read(content, position)
            if not header.is_plausible:
                break
            yield header
            position += header.total_bytes
