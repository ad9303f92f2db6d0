"""The named moments at which a pipeline into a lake is killed: files, commits, progress entries."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.crash.pipeline_points import Fuse, Point

LAKE_POINTS = (
    Point("lake file", 1, False),
    Point("lake file", 3, True),
    Point("lake file", 9, True),
    Point("state log entry", 1, False),
    Point("state log entry", 1, True),
    Point("state log entry", 4, False),
    Point("table commit", 1, False),
    Point("table commit", 1, True),
    Point("table commit", 2, True),
    Point("table commit", 6, False),
)


STAGED_POINTS = (
    Point("lake file", 2, True),
    Point("lake file", 5, False),
    Point("lake file", 8, True),
    Point("table commit", 2, False),
    Point("table commit", 2, True),
)


def hold_little() -> None:
    """From now on this process stages every piece of a slice by itself."""
    from headwater.sinks.spark import file_rewrite, work_split

    work_split.HELD_BYTES_MAX = file_rewrite.FILE_BYTES_MIN = 1


def watch_lake(fuse: Fuse) -> None:
    """Every file that a table gets, and every object that may be created only once."""
    from headwater.core_log.objects.directory import DirectoryStore
    from headwater.sinks.spark.storage_location import StorageLocation

    create, writing = DirectoryStore.create, StorageLocation.writing

    def watched(store: DirectoryStore, name: str, content: bytes) -> bool:
        seam = "table commit" if "_delta_log/" in name else "state log entry"
        with fuse.around(seam):
            return create(store, name, content)

    @contextmanager
    def watched_writing(place: StorageLocation, name: str) -> Iterator[Any]:
        with fuse.around("lake file"), writing(place, name) as file:
            yield file

    DirectoryStore.create = watched  # type: ignore[assignment,method-assign]
    StorageLocation.writing = watched_writing  # type: ignore[assignment,method-assign]
