"""Tables of which no row may enter the log, by the rules that hide columns; the others go on."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from headwater.connectors.source import Remark, SourceContext
from headwater.core_log.foundation.errors import Diagnostic, HeadwaterError
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import TableId, TableSchema

REFUSED = "refused tables"


class LeftOutTables:
    """Those of one source: a table is left out until its rows come in a form that may enter."""

    def __init__(self, context: SourceContext, *, matched_by: str) -> None:
        """`matched_by`: the setting that names the tables."""
        self._context, self._matched_by = context, matched_by
        self._admitted: dict[TableId, TableSchema] = {}
        self.errors: dict[TableId, HeadwaterError] = {}

    async def find_refused(self, tables: Iterable[TableChanges]) -> AbstractSet[TableId]:
        """Those of which nothing may be handed on. Later changes of the others come behind
        these."""
        asked, refused = set[TableId](), dict[TableId, HeadwaterError]()
        for changes in tables:
            schema, table = changes.schema, changes.schema.table
            asked.add(table)
            if table in refused or self._admitted.get(table) == schema:
                continue
            if (error := await self._context.refusal(schema, is_next=True)) is not None:
                refused[table] = error
                self._admitted.pop(table, None)
            else:
                self._admitted[table] = schema
        left_out = {table: each for table, each in self.errors.items() if table not in asked}
        self._leave_out({**left_out, **refused})
        return refused.keys()

    def keep(self, tables: AbstractSet[TableId]) -> None:
        """All others are gone from the source."""
        self._leave_out({table: each for table, each in self.errors.items() if table in tables})

    def check_some_left(self, tables: AbstractSet[TableId]) -> None:
        """A source of which every table is left out has nothing to go on with."""
        if tables and tables == self.errors.keys():
            raise next(iter(self.errors.values()))

    def _leave_out(self, errors: dict[TableId, HeadwaterError]) -> None:
        before = left_out_diagnostic(self.errors, matched_by=self._matched_by)
        self.errors = errors
        if (now := left_out_diagnostic(errors, matched_by=self._matched_by)) != before:
            self._context.report(Remark(REFUSED, now))


def left_out_diagnostic(
    refused: Mapping[TableId, HeadwaterError], *, matched_by: str
) -> Diagnostic | None:
    if not refused:
        return None
    said = "; ".join(each.statement for each in refused.values())
    cures = dict.fromkeys(each.hint for each in refused.values())
    left_out = tuple(sorted(map(str, refused)))
    return Diagnostic(
        f"tables match `{matched_by}` and are left out, as they cannot be read: {said}",
        "; ".join(cures),
        is_fatal=False,
        left_out=left_out,
    )
