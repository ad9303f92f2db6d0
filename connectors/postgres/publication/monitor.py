"""Checks, beside the stream, whether the server still sends all captured tables."""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from headwater.connectors.postgres import discovery, lost_keys
from headwater.connectors.postgres.publication import coverage, excluded_tables, published_tables
from headwater.connectors.postgres.publication.replica_identity import RefusedTable, finding_of
from headwater.connectors.postgres.schema_history.schema_monitor import FormWatch
from headwater.connectors.postgres.server.connection import PgConnection, in_our_words, quoted_table
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.source import Remark, SourceContext
from headwater.core_log.foundation.errors import Diagnostic, SourceUnavailable, first_names
from headwater.core_log.foundation.name_patterns import Patterns
from headwater.core_log.model.table_schema import TableId

NEW_TABLES, FILTERED, REFUSED = "new tables", "filtered tables", "refused tables"
HELD = "tables without their key"
"""Name of its remarks."""
LOOK_MS = 60_000
"""Interval of checks for new tables, and for others of the same name: a database may have many."""
TABLES = """
SELECT n.nspname, c.relname, c.oid::int8, c.relpersistence = 'p'
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
"""


class CaptureMonitor:
    """Checks the captured tables of one run of the source."""

    def __init__(
        self,
        settings: PostgresSettings,
        context: SourceContext,
        publication: str,
        tables: Mapping[TableId, int],
        entries: str,
        forms: FormWatch,
        refused: Sequence[RefusedTable] = (),
        held: Iterable[TableId] = (),
        gone: Collection[str] = (),
    ) -> None:
        """`tables`: to their oids. `entries`: their entries in the publication, as in the position.
        `refused`: tables that are left out until they are cured. `held`: tables that are left
        out until they have a key again. `gone`: names of tables that were captured once."""
        self.forms = forms
        self._context, self._publication = context, publication
        self._chosen, self._tables = Patterns(settings.tables), list(tables)
        self._numbers, self._refused, self._held = tables, refused, set(held)
        self._gone = gone
        self._settings = settings
        self._positions = {coverage.PART: entries}
        self._said: dict[str, Diagnostic | None] = {}
        self._next_ms = context.clock.monotonic_ms()

    async def look(self, connection: PgConnection) -> SourceUnavailable | None:
        """Returns the error that ends this run, because changes would be missed from now on."""
        await self.forms.look_and_tell(connection)
        found = await published_tables.look(connection, self._publication)
        missed = coverage.find_missed(self._positions, found, self._tables)
        now_ms = self._context.clock.monotonic_ms()
        if missed or now_ms >= self._next_ms:
            self._next_ms = now_ms + LOOK_MS
            there, unlogged = await self._there(connection)
            if gone := [each for each in missed if each in unlogged]:
                return _made_unlogged(gone)
            if others := [each for each in self._tables if self._is_another(each, there)]:
                return SourceUnavailable(
                    "captured tables were made anew, or others have taken their names",
                    tables=first_names(others),
                )
            if renamed := self._renamed(there):
                return SourceUnavailable(
                    "captured tables have other names by now",
                    tables=first_names([f"{before}, now {now}" for before, now in renamed]),
                )
            if missed := [each for each in missed if each in there]:  # other tables were dropped
                return SourceUnavailable(
                    "the publication was changed: it no longer sends all that it did",
                    publication=self._publication,
                    tables=first_names(missed),
                )
            if self._refused and (cured := await self._find_cured(connection)):
                return SourceUnavailable(
                    "tables that were left out can be captured by now", tables=first_names(cured)
                )
            new = self._find_new(there.keys())
            if returned := [each for each in new if str(each) in self._gone]:
                return SourceUnavailable(
                    "tables that were captured before are there again", tables=first_names(returned)
                )
            await self._tell_of_new(connection, new)
            await self._look_for_unstreamed(connection)
        if found is not None:
            self._say(FILTERED, self._about_filters(found))
        return None

    async def look_at_first(
        self, connection: PgConnection, found: published_tables.Publication | None
    ) -> None:
        """Checks once before the snapshot, which may take long."""
        self._say(REFUSED, finding_of(self._refused))
        self._say(HELD, lost_keys.finding_of(self._held))
        await self._look_for_unstreamed(connection)
        if found is not None:
            self._say(FILTERED, self._about_filters(found))

    async def look_last(self, connection: PgConnection) -> None:
        """Checks at the end for tables that were created meanwhile, and are left to the next
        run."""
        there, _ = await self._there(connection)
        await self._tell_of_new(connection, self._find_new(there.keys()))
        await self._look_for_unstreamed(connection)

    def refuse(self, refused: RefusedTable) -> None:
        """Leaves out a table's changes from now on; once it can be captured, it is read again."""
        self._refused = [*self._refused, refused]
        self._say(REFUSED, finding_of(self._refused))

    def hold(self, table: TableId) -> None:
        self._held.add(table)
        self._say(HELD, lost_keys.finding_of(self._held))

    def let_go(self, table: TableId) -> None:
        """Releases a table that has a key again; it is read again."""
        self._held.discard(table)
        self._say(HELD, lost_keys.finding_of(self._held))

    async def _find_cured(self, connection: PgConnection) -> list[TableId]:
        """Returns tables that can be captured again; reports the present reasons for the others.
        A cured one is left out all the same until the next run reads it again."""
        looked = await self._look_at_tables(connection)
        cured = {each.oid for each in looked.tables}
        present = {each.oid: each for each in looked.refused}
        self._refused = [
            present.get(each.oid, each)
            for each in self._refused
            if each.oid in present or each.oid in cured
        ]
        self._say(REFUSED, finding_of(self._refused))
        return [each.table for each in self._refused if each.oid in cured]

    async def _look_at_tables(self, connection: PgConnection) -> discovery.DiscoveredTables:
        context = self._context
        return await discovery.look(
            connection, self._settings, context.pipeline, refusal=context.refusal
        )

    async def _look_for_unstreamed(self, connection: PgConnection) -> None:
        for name, finding in (await excluded_tables.look(connection, self._chosen.texts)).items():
            self._say(name, finding)

    def _is_another(self, table: TableId, there: Mapping[TableId, int]) -> bool:
        return there.get(table, self._numbers[table]) != self._numbers[table]

    def _renamed(self, there: Mapping[TableId, int]) -> list[tuple[TableId, TableId]]:
        """Returns the former and the present names."""
        names = {number: table for table, number in there.items()}
        found = [(each, names.get(self._numbers[each], each)) for each in self._tables]
        return [(before, now) for before, now in found if before != now]

    async def _there(self, connection: PgConnection) -> tuple[Mapping[TableId, int], set[TableId]]:
        """Returns tables whose changes are in the write-ahead log, with their oids, and the
        others."""
        with in_our_words("the server does not show its tables"):
            rows = await (await connection.execute(TABLES)).fetchall()
        logged = {TableId(*name): number for *name, number, is_logged in rows if is_logged}
        return logged, {TableId(*name) for *name, _, is_logged in rows if not is_logged}

    def _about_filters(self, found: published_tables.Publication) -> Diagnostic | None:
        if not (said := published_tables.describe_left_out(found, self._tables)):
            return None
        return Diagnostic(
            said, "headwater doctor prints the statement that cures it", is_fatal=False
        )

    def _find_new(self, there: Set[TableId]) -> list[TableId]:
        known = {*self._tables, *(each.table for each in self._refused)}
        return sorted(each for each in there - known if self._chosen.matches(str(each)))

    async def _tell_of_new(self, connection: PgConnection, new: Sequence[TableId]) -> None:
        """Those that cannot be captured are left out from now on, and read once they are cured."""
        if new:
            looked = await self._look_at_tables(connection)
            refused = [each for each in looked.refused if each.table in new]
            if refused:
                self._refused = [*self._refused, *refused]
                self._say(REFUSED, finding_of(self._refused))
            new = [each for each in new if all(each != one.table for one in refused)]
        self._say(NEW_TABLES, self._about_new(new))

    def _about_new(self, new: Sequence[TableId]) -> Diagnostic | None:
        if not new:
            return None
        return Diagnostic(
            f"{first_names(new)} match `tables` and are not captured yet",
            "end headwater run and start it again; headwater doctor says what stands in the way",
            is_fatal=False,
            left_out=tuple(map(str, new)),
        )

    def _say(self, name: str, finding: Diagnostic | None) -> None:
        if self._said.get(name) != finding:
            self._said[name] = finding
            self._context.report(Remark(name, finding))


def _made_unlogged(tables: Sequence[TableId]) -> SourceUnavailable:
    """Raises for tables that were made unlogged: the next run leaves them out, and a later one
    reads them again once they are logged."""
    return SourceUnavailable(
        "captured tables were made unlogged: the server streams no changes of them any more",
        tables=first_names(tables),
        hint=" ".join(f"ALTER TABLE {quoted_table(each)} SET LOGGED;" for each in tables),
    )
