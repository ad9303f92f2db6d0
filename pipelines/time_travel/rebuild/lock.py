"""One rebuild of a table at a time: two with different rules would remove each other's copy."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256

from headwater.core_log.foundation.errors import BeingReadAgain, SinkUnavailable
from headwater.core_log.model.changes import Phase
from headwater.core_log.model.log import Log
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.storage.files import OsFiles
from headwater.pipelines.file.loader import LoadedPart, LoadedPipeline
from headwater.pipelines.journal.positions import load_positions
from headwater.pipelines.journal.replacements import StoredReplacement, replacements_of


@contextmanager
def alone_with(loaded: LoadedPipeline, part: LoadedPart, table: TableId) -> Iterator[None]:
    """Holds a lock in the data directory, which ends with the process; the next rebuild continues a
    killed one's copy."""
    files, name = OsFiles(), repr((loaded.name, part.name, table))
    files.make_directory(loaded.log_path)
    path = loaded.log_path / f"rebuild-{sha256(name.encode()).hexdigest()[:16]}.lock"
    lock = files.lock(path)
    if lock is None:
        raise SinkUnavailable(
            "another rebuild of this table is running",
            table=str(table),
            sink=part.name,
            hint=f"try again when it has ended; its process id is in {path}",
        )
    try:
        yield
    finally:
        del lock


async def check_not_reread(log: Log, pipeline: str, tables: Iterable[TableId]) -> None:
    """Raises BeingReadAgain for the first source table that is being read again."""
    found = replacements_of(await load_positions(log, pipeline))
    for table in tables:
        if table in found:
            raise being_read_again(
                found[table], "targets follow automatically: headwater status shows the progress"
            )


def being_read_again(stored: StoredReplacement, hint: str) -> BeingReadAgain:
    """`hint`: what to do while it is read again automatically."""
    if stored.phase is Phase.QUARANTINED:
        return BeingReadAgain(
            "the table is quarantined: it differs from its source until it is read again",
            table=str(stored.table),
            why=stored.why,
            hint="run the command that `why` names",
        )
    return BeingReadAgain(
        "the table is being read again at its source: its log has old and new rows",
        table=str(stored.table),
        why=stored.why,
        hint=hint,
    )
