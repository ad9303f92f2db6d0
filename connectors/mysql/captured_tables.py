"""Which tables are captured, and in which form: at the start, and after changes of them."""

import asyncio
from collections.abc import Mapping, Set
from dataclasses import replace

from headwater.connectors.mysql.events.group_reader import LEFT
from headwater.connectors.mysql.schema_history.stream_forms import (
    OTHER_FORM,
    StreamForms,
    kinds_of_change,
)
from headwater.connectors.mysql.server.catalog import MysqlCatalog, MysqlTable, restored_table
from headwater.connectors.mysql.server.connection import MysqlConnection
from headwater.connectors.mysql.server.server_identity import FilePosition, MysqlServer
from headwater.connectors.mysql.snapshot.rows_beside_stream import RowsBesideStream
from headwater.connectors.mysql.snapshot.table_jobs import (
    FORM,
    PROGRESS,
    MysqlTableProgress,
    form_part,
    parse_form,
    progress_part,
    table_of,
)
from headwater.connectors.source import Remark, SourceContext
from headwater.core_log.foundation.errors import Diagnostic, SourceRejected
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.table_schema import TableId

LEFT_OUT = "tables that cannot be captured"
UNMATCHED = "unmatched names"


class CapturedTables:
    """The tables of one run. The reader of groups and the rows beside the stream share them."""

    def __init__(
        self,
        context: SourceContext,
        questions: MysqlConnection,
        server: MysqlServer,
        catalog: MysqlCatalog,
    ) -> None:
        self._context, self._questions = context, questions
        self._server, self._catalog = server, catalog
        self.by_name: dict[TableId, MysqlTable] = {}

    async def find(self, rows: RowsBesideStream, resume_from: Positions, lost: str) -> None:
        """Tables have the form that the stream has at its position, if it was stored."""
        catalog, questions = self._catalog, self._questions
        found = {each.table: each for each in await asyncio.to_thread(catalog.tables, questions)}
        end = await asyncio.to_thread(self._server.log_end, questions)
        stored = {
            table_of(part.removeprefix(FORM)): parse_form(text)
            for part, text in resume_from.items()
            if part.startswith(FORM) and text
        }
        for part, text in resume_from.items():
            if part.startswith(PROGRESS):
                rows.remember(table_of(part.removeprefix(PROGRESS)), text)
        for name in sorted({*found, *stored}):
            if not catalog.captures(name):
                rows.notes[form_part(name)] = ""  # its changes are missed from here on
                rows.end_reread(name)
                continue
            table = found.get(name)
            said = resume_from.get(progress_part(name))
            progress = None if said is None else MysqlTableProgress.parse(said)
            former = None
            if name in stored and progress is not None:
                form = restored_table(name, stored[name], is_mariadb=self._server.is_mariadb)
                if (earlier := stored[name].get("former")) is not None:
                    former = restored_table(name, earlier, is_mariadb=self._server.is_mariadb)
                table = form if table is None else form.with_size_of(table)
            assert table is not None, "a name comes from the catalogue or has a form"
            is_new = bool(resume_from) and progress is None and name not in stored
            there = found.keys() if is_new else None
            table = self._with_key(await self._by_rules(table, there=there), rows)
            self.by_name[name] = table
            rows.forms.known_at[name] = end
            if table.problem:
                if name in stored:
                    rows.leave(name)
                    rows.notes[form_part(name)] = ""
            elif lost or (progress is not None and name not in stored):
                why = lost or "the table was created again"
                rows.read_again(table, why, (), has_other_key=True)
            else:
                rows.restore(table, progress, former)
        self._report_left_out()

    async def _by_rules(self, table: MysqlTable, *, there: Set[TableId] | None) -> MysqlTable:
        """Returns the table with a problem if the rules that hide columns do not let its rows into
        the log. A new one, beside those that are `there`, may be any other under a new name."""
        if table.problem:
            return table
        error = None
        if there is not None:
            error = await self._context.refusal_of_new(
                table.schema, may_be=lambda _: True, is_gone=lambda other: other not in there
            )
        if error is None:
            error = await self._context.refusal(table.schema, is_next=True)
        if error is None:
            return table
        return replace(table, problem=error.statement, hint=error.hint)

    def _with_key(self, table: MysqlTable, rows: RowsBesideStream) -> MysqlTable:
        """Returns the table with a problem if it has lost the key that its topic has."""
        return without_key(table) if rows.has_lost_key(table) else table

    def _report_left_out(self) -> None:
        refused = [each for each in self.by_name.values() if each.problem]
        finding = None
        if refused:
            said = "; ".join(f"{each.table}: {each.problem}" for each in refused)
            finding = Diagnostic(
                f"tables match `tables` and are left out, as they cannot be captured: {said}",
                "; ".join(dict.fromkeys(each.hint for each in refused if each.hint)),
                is_fatal=False,
                left_out=tuple(sorted(str(each.table) for each in refused)),
            )
        self._context.report(Remark(LEFT_OUT, finding))
        self._context.report(Remark(UNMATCHED, self._catalog.find_unmatched(self.by_name)))

    async def look_again(
        self, suspects: Mapping[TableId, str], rows: RowsBesideStream, place: FilePosition
    ) -> None:
        """Looks tables up whose form or rows may have changed before that place of the stream, and
        has them read again."""
        for name, why in suspects.items():
            rows.suspect(name)
            now = await asyncio.to_thread(self._catalog.table, self._questions, name)
            if now is not None:
                there = None
                if not rows.knows(name):
                    tables = await asyncio.to_thread(self._catalog.tables, self._questions)
                    there = {each.table for each in tables}
                now = self._with_key(await self._by_rules(now, there=there), rows)
            end = await asyncio.to_thread(self._server.log_end, self._questions)
            if now is None or now.problem:
                if not self._is_put_off(name, why, rows, end, place):
                    self._leave(name, now, rows)
                continue
            self._check_declared(name, now, why, end, place, rows.forms)
            rows.forms.known_at[name] = rows.forms.looked_at[name] = end
            rows.forms.leaving.pop(name, None)
            self._take_on(name, now, why, rows)
        self._report_left_out()

    def _is_put_off(
        self,
        name: TableId,
        why: str,
        rows: RowsBesideStream,
        end: FilePosition,
        place: FilePosition,
    ) -> bool:
        """Whether a table that is gone, or cannot be captured any more, still has changes to come:
        up to where the log ends now it may have had forms that can be read."""
        forms, before = rows.forms, self.by_name.get(name)
        left_at = forms.leaving.pop(name, None)
        is_captured = before is not None and not before.problem and name in forms.written
        has_come = left_at is not None and place.order >= left_at.order
        if not is_captured or has_come or place.order >= end.order:
            return False
        forms.known_at[name] = forms.looked_at[name] = forms.leaving[name] = end
        rows.leave(name, until_read=why or LEFT)
        return True

    def _leave(self, name: TableId, now: MysqlTable | None, rows: RowsBesideStream) -> None:
        if now is None and name not in self.by_name:
            return
        rows.leave(name)
        rows.notes[form_part(name)] = ""
        if now is None:
            del self.by_name[name]
        else:
            self.by_name[name] = now

    def _check_declared(
        self,
        name: TableId,
        now: MysqlTable,
        why: str,
        end: FilePosition,
        place: FilePosition,
        forms: StreamForms,
    ) -> None:
        """Raises if rows have a form that the table had neither before nor now."""
        before = self.by_name.get(name)
        is_same = before is not None and now.has_form_of(before)
        is_later = place.order > forms.known_at.get(name, end).order
        if why == OTHER_FORM and is_same and is_later:
            raise SourceRejected(
                "rows of a table are logged in a form that the catalogue does not declare",
                table=str(name),
                hint="ALTER TABLE ... FORCE makes the table anew with the server's own types",
            )

    def _take_on(self, name: TableId, now: MysqlTable, why: str, rows: RowsBesideStream) -> None:
        before, forms = self.by_name.get(name), rows.forms
        self.by_name[name] = now
        if before is None and not rows.knows(name):
            rows.restore(now, None)
            return
        rows.read_again(
            now,
            why or "the table was created again",
            () if before is None else kinds_of_change(before, now),
            has_other_key=name not in forms.written or not forms.has_key(now),
        )


def without_key(table: MysqlTable) -> MysqlTable:
    """Returns a table that has lost the key of its topic, with that as its problem."""
    hint = f"add a primary key, or name unique columns: keys: {{{table.table}: [...]}}"
    return replace(table, problem="the table has no key any more", hint=hint)
