"""Refuses what needs a whole table of the log while its source reads that table again."""

from collections.abc import Iterable

from headwater.core_log.foundation.errors import BeingReadAgain
from headwater.core_log.model.changes import Phase
from headwater.core_log.model.log import Log
from headwater.core_log.model.table_schema import TableId
from headwater.pipelines.journal.positions import load_positions
from headwater.pipelines.journal.replacements import StoredReplacement, replacements_of


async def check_not_reread(log: Log, pipeline: str, tables: Iterable[TableId]) -> None:
    """Raises BeingReadAgain for the first of the source's tables that is."""
    found = replacements_of(await load_positions(log, pipeline))
    for table in tables:
        if table in found:
            raise being_read_again(
                found[table], "targets follow by themselves: headwater status says how far it is"
            )


def being_read_again(stored: StoredReplacement, hint: str) -> BeingReadAgain:
    """`hint`: what to do while it is read again without a person."""
    if stored.phase is Phase.HELD:
        return BeingReadAgain(
            "the table is held: it differs from its source until it has been read again",
            table=str(stored.table),
            why=stored.why,
            hint="run the command that `why` names",
        )
    return BeingReadAgain(
        "the table is being read again at its source, and its log is mixed until then",
        table=str(stored.table),
        why=stored.why,
        hint=hint,
    )
