"""One rebuild of a table at a time: two by different rules would take each other's copy away."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from headwater.core_log.foundation.errors import SinkUnavailable
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.storage.files import OsFiles
from headwater.pipelines.file.loader import LoadedPart, LoadedPipeline


@contextmanager
def alone_with(loaded: LoadedPipeline, part: LoadedPart, table: TableId) -> Iterator[None]:
    """Held by a lock in the data directory, which ends with the process: what a killed one has left
    of its copy is the next one's."""
    files, name = OsFiles(), repr((loaded.name, part.name, table))
    files.make_directory(loaded.log_path)
    path = loaded.log_path / f"rebuild-{sha256(name.encode()).hexdigest()[:16]}.lock"
    lock = files.lock(path)
    if lock is None:
        raise SinkUnavailable(
            "another rebuild of this table is under way",
            table=str(table),
            sink=part.name,
            hint=f"try again when it has ended; its process id is in {path}",
        )
    try:
        yield
    finally:
        del lock
