"""The publication: which tables the server sends us, made and kept by us where our role may."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psycopg import sql

from connectors.postgres.connecting import READ_ONLY, RIGHTS, Connection, in_our_words
from connectors.postgres.settings import PostgresSettings
from core_log.errors import SourceRejected
from core_log.table_schema import TableId

OPERATIONS = ("insert", "update", "delete", "truncate")
PUBLISH = f"publish = '{', '.join(OPERATIONS)}'"
VIA_ROOT = "publish_via_partition_root = true"
GENERATED = "publish_generated_columns = stored"
NAME_BYTES_MAX = 63
SHOWN_MAX = 5

LOOK = """
SELECT p.puballtables, p.pubviaroot, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate,
    pg_catalog.pg_has_role(p.pubowner, 'USAGE'), p.oid::int8, to_jsonb(p) ->> 'pubgencols'
FROM pg_catalog.pg_publication p WHERE p.pubname = {name}
"""
GENERATED_SINCE = 18_0000
"""Before, publications are without generated columns, and the server does not mind. From then on it
refuses to change rows whose replica identity has some that are not published."""
STORED = "s"

MEMBERS = """
SELECT n.nspname, c.relname, r.oid::int8
FROM pg_catalog.pg_publication_rel r
JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = {name}
"""

SCHEMAS = """
SELECT n.nspname, s.oid::int8
FROM pg_catalog.pg_publication_namespace s
JOIN pg_catalog.pg_publication p ON p.oid = s.pnpubid
JOIN pg_catalog.pg_namespace n ON n.oid = s.pnnspid
WHERE p.pubname = {name}
"""

COVERED = """
SELECT schemaname, tablename FROM pg_catalog.pg_publication_tables WHERE pubname = {name}
"""

SHARES = """
SELECT c.oid::int8, n.nspname, c.relname,
    coalesce(pg_catalog.pg_get_expr(r.prqual, r.prrelid), ''), (
        SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs)
    )
FROM pg_catalog.pg_publication_rel r
JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = {name} AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_namespace s
        WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace)
    AND ({oids}::oid[] IS NULL OR c.oid = ANY({oids}::oid[]))
"""
"""Row filters mean nothing for tables of a schema that is published as a whole. To write one the
server locks its table for that moment."""
PARTS_SINCE = 15_0000
"""Schemas as a whole, row filters and lists of columns came with it."""

IDENTITIES = """
WITH wanted AS (
    SELECT c.oid FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN unnest(%s::text[], %s::text[]) AS w (namespace, name)
        ON w.namespace = n.nspname AND w.name = c.relname
), leaves AS (
    SELECT oid FROM wanted
    UNION SELECT t.relid::oid FROM wanted, pg_catalog.pg_partition_tree(wanted.oid) t
)
SELECT n.nspname, c.relname, CASE
    WHEN c.relreplident <> 'f' AND i.indexrelid IS NULL THEN 'nothing'
    ELSE (SELECT max(a.attgenerated::text) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> ''
        AND (c.relreplident = 'f' OR a.attnum = ANY (i.indkey)))
    END
FROM leaves
JOIN pg_catalog.pg_class c ON c.oid = leaves.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND CASE c.relreplident
    WHEN 'd' THEN i.indisprimary AND i.indimmediate
    WHEN 'i' THEN i.indisreplident AND i.indislive
    ELSE false END
WHERE c.relkind = 'r'
ORDER BY n.nspname, c.relname
"""
"""What of the replica identity of tables and their partitions, each of which has its own, is in the
way of publishing them. A primary key whose check can be put off is none."""
NO_IDENTITY, OF_STORED, OF_VIRTUAL = "nothing", "s", "v"
"""There is none; or it has generated columns, of the latter kind at least one."""


@dataclass(frozen=True, slots=True)
class Share:
    """What is published of a table of which it is not all."""

    oid: int
    table: TableId
    condition: str
    """SQL that is true of its rows; empty for all rows."""
    columns: tuple[str, ...] | None
    """None for all of them."""

    def __str__(self) -> str:
        rows = f"rows where {self.condition}" if self.condition else ""
        columns = "" if self.columns is None else f"columns {', '.join(self.columns)}"
        return f"only {' and '.join(filter(None, [rows, columns]))}"


@dataclass(frozen=True, slots=True)
class Publication:
    name: str
    covers_all: bool
    """It was made FOR ALL TABLES."""
    goes_via_root: bool
    """Changes of partitions come as changes of the table that they are parts of."""
    operations: frozenset[str]
    is_ours: bool
    """Whether our role is its owner, or acts for the owner."""
    members: Mapping[TableId, int]
    """Tables that were named one by one, to the numbers of their entries."""
    schemas: Mapping[str, int]
    """Schemas all tables of which it publishes, to the numbers of their entries."""
    covered: frozenset[TableId]
    """Tables that it publishes, by whatever way they came in."""
    shares: Mapping[TableId, Share]
    """Of tables of which it leaves out rows, or columns."""
    number: int
    """Another one once it was dropped and made anew."""
    could_send_generated: bool
    """Stored generated columns, which it does not send."""


class Unidentified(NamedTuple):
    """Tables, or their partitions, of which the server could not say which row was changed. Where
    one is published, it refuses every UPDATE and DELETE of it to everybody."""

    why: str
    tables: Sequence[TableId]
    cure: str


def publication_name(settings: PostgresSettings, pipeline: str) -> str:
    name = settings.publication.name or f"headwater_{pipeline}"
    return name.encode()[:NAME_BYTES_MAX].decode(errors="ignore")


async def look(connection: Connection, name: str) -> Publication | None:
    wanted = {"name": sql.Literal(name)}
    with in_our_words("the server does not show its publications"):
        found = await connection.execute(sql.SQL(LOOK).format(**wanted))
        row = await found.fetchone()
        if row is None:
            return None
        found = await connection.execute(sql.SQL(MEMBERS).format(**wanted))
        members = await found.fetchall()
        schemas = []
        if connection.info.server_version >= PARTS_SINCE:
            found = await connection.execute(sql.SQL(SCHEMAS).format(**wanted))
            schemas = await found.fetchall()
        found = await connection.execute(sql.SQL(COVERED).format(**wanted))
        covered = await found.fetchall()
        shares = await look_for_shares(connection, name)
    covers_all, goes_via_root, *sends, is_ours, number, generated = row
    return Publication(
        name=name,
        covers_all=covers_all,
        goes_via_root=goes_via_root,
        operations=frozenset(
            each for each, is_sent in zip(OPERATIONS, sends, strict=True) if is_sent
        ),
        is_ours=is_ours,
        members={TableId(schema, table): entry for schema, table, entry in members},
        schemas=dict(schemas),
        covered=frozenset(TableId(schema, table) for schema, table in covered),
        shares={each.table: each for each in shares},
        number=number,
        could_send_generated=generated not in (STORED, None),
    )


async def look_for_shares(
    connection: Connection, name: str, oids: Sequence[int] | None = None
) -> list[Share]:
    """As they are now: tables and columns may have got other names, and are the same. `oids`: of
    these tables only."""
    if connection.info.server_version < PARTS_SINCE:
        return []
    of = None if oids is None else list(oids)
    query = sql.SQL(SHARES).format(name=sql.Literal(name), oids=sql.Literal(of))
    found = await connection.execute(query)
    return [
        Share(oid, TableId(schema, table), condition, None if columns is None else tuple(columns))
        for oid, schema, table, condition, columns in await found.fetchall()
    ]


async def _identities(connection: Connection, tables: Collection[TableId]) -> dict[TableId, str]:
    names = [[each.namespace for each in tables], [each.name for each in tables]]
    with in_our_words("the server does not show its tables"):
        found = await connection.execute(IDENTITIES, names)
        return {TableId(schema, table): kind for schema, table, kind in await found.fetchall()}


async def unidentified(connection: Connection, tables: Collection[TableId]) -> Unidentified | None:
    identities = await _identities(connection, tables)
    if without := [table for table, kind in identities.items() if kind == NO_IDENTITY]:
        why = "have neither a primary key nor another replica identity"
        return Unidentified(why, without, identity_cure(without))
    if virtual := [table for table, kind in identities.items() if kind == OF_VIRTUAL]:
        why = "have virtual generated columns, and REPLICA IDENTITY FULL"
        return Unidentified(why, virtual, identity_cure(virtual, "DEFAULT"))
    return None


async def lacks_generated(
    connection: Connection, found: Publication | None, tables: Collection[TableId]
) -> bool:
    """Whether it leaves out generated columns by which rows of these say which they are. The server
    then refuses every UPDATE and DELETE of them to everybody."""
    if found is None or not found.could_send_generated:
        return False
    return OF_STORED in (await _identities(connection, tables)).values()


def identity_cure(tables: Iterable[TableId], identity: str = "FULL") -> str:
    return " ".join(
        f"ALTER TABLE {quoted_table(each)} REPLICA IDENTITY {identity};" for each in tables
    )


def whole_statement(found: Publication) -> str:
    """SQL that takes filters and lists of columns out of it. What it does not name, SET drops."""
    objects = [member_list(found.members)]
    if found.schemas:
        objects.append(f"TABLES IN SCHEMA {', '.join(map(quote, sorted(found.schemas)))}")
    return f"ALTER PUBLICATION {quote(found.name)} SET TABLE {', '.join(objects)}"


def narrowed(found: Publication, tables: Collection[TableId]) -> str:
    """What it leaves out of these, in words; nothing where it sends all."""
    names = sorted(found.shares.keys() & set(tables))
    if not names:
        return ""
    shown = few([f"{each} ({found.shares[each]})" for each in names])
    return f"publication {found.name} leaves out rows or columns of {shown}"


def missing_from(found: Publication, tables: Collection[TableId]) -> list[TableId]:
    return sorted(set(tables) - found.covered)


def creation(name: str, tables: Collection[TableId], *, version: int) -> str:
    """SQL that makes it, on a server of this version."""
    options = [PUBLISH, VIA_ROOT, *([GENERATED] if version >= GENERATED_SINCE else [])]
    return (
        f"CREATE PUBLICATION {quote(name)} FOR TABLE {member_list(tables)} WITH"
        f" ({', '.join(options)})"
    )


def changes(
    found: Publication,
    tables: Collection[TableId],
    *,
    with_generated: bool = False,
    spared: Collection[str] = (),
) -> list[str]:
    """SQL that makes it one of exactly `tables`, but for those that are `spared`, and has it send
    generated columns where that is wanted; nothing when all is so. One that covers more by itself,
    being for all tables or for schemas, is left as wide as it is."""
    quoted = quote(found.name)
    options = [
        *([] if found.goes_via_root else [VIA_ROOT]),
        *([] if found.operations == set(OPERATIONS) else [PUBLISH]),
        *([GENERATED] if with_generated else []),
    ]
    told = [f"ALTER PUBLICATION {quoted} SET ({', '.join(options)})"] if options else []
    # Without the root's way its partitions are covered in its stead, so membership counts as well.
    if new := set(tables) - found.covered - found.members.keys():
        told.append(f"ALTER PUBLICATION {quoted} ADD TABLE {member_list(new)}")
    if old := {each for each in found.members.keys() - set(tables) if str(each) not in spared}:
        told.append(f"ALTER PUBLICATION {quoted} DROP TABLE {member_list(old)}")
    return told


async def keep(
    connection: Connection,
    settings: PostgresSettings,
    name: str,
    tables: Collection[TableId],
    *,
    spared: Collection[str] = (),
) -> Sequence[str]:
    """Makes the publication, or changes it where the tables of the file have changed; returns what
    was done. It must be there before a slot is made: the server looks it up as it was then.

    What stays published though the file no longer names it does no harm where we may not change
    it, since the source leaves it out.
    """
    found = await look(connection, name)
    created = creation(name, tables, version=connection.info.server_version)
    if settings.publication.create == "never":
        if found is None:
            raise SourceRejected(
                "there is no such publication",
                publication=name,
                hint=_for_the_owner([created]),
            )
        check_covers(found, tables)
        return ()
    new = tables if found is None else set(tables) - found.covered - found.members.keys()
    if unsafe := await unidentified(connection, new):
        raise SourceRejected(
            f"once published, the server would refuse every UPDATE and DELETE of tables that"
            f" {unsafe.why}",
            tables=", ".join(map(str, unsafe.tables)),
            hint=f"give them a primary key, leave them out of `tables`, or: {unsafe.cure}",
        )
    wanted, done = [created], list[str]()
    if found is not None:
        with_generated = await lacks_generated(connection, found, tables)
        wanted = changes(found, tables, with_generated=with_generated, spared=spared)
    for statement in wanted:
        try:
            with in_our_words("the publication cannot be changed", publication=name):
                await _execute(connection, statement)
        except SourceRejected as error:
            if error.facts.get("sqlstate") not in (RIGHTS, READ_ONLY):  # a standby is the latter
                raise
            now = await look(connection, name)
            if now is None:
                raise SourceRejected(
                    "our role may not make the publication",
                    publication=name,
                    why=error.facts.get("why"),
                    hint=_for_the_owner([created]),
                ) from None
            check_covers(now, tables)
            return done
        done.append(statement)
    return done


def covers(found: Publication, tables: Collection[TableId]) -> bool:
    """Whether every change of these is sent, as a change of the table that the file names."""
    is_whole = found.goes_via_root and found.operations == set(OPERATIONS)
    return is_whole and not missing_from(found, tables)


def check_covers(found: Publication, tables: Collection[TableId]) -> None:
    """Raises `SourceRejected` with the SQL that cures it when changes would be missed."""
    if covers(found, tables):
        return
    facts = {
        "tables_missing": ", ".join(map(str, missing_from(found, tables))),
        "operations_missing": ", ".join(sorted(set(OPERATIONS) - found.operations)),
        "publish_via_partition_root": "" if found.goes_via_root else "false",
    }
    raise SourceRejected(
        "the publication does not send all that the file asks for",
        publication=found.name,
        **{name: fact for name, fact in facts.items() if fact},
        hint=_for_the_owner(
            [each for each in changes(found, tables) if " DROP TABLE " not in each]
        ),
    )


async def drop(connection: Connection, settings: PostgresSettings, name: str) -> bool:
    """Whether there was one of ours; a given one (`create: never`), or somebody else's, is left
    alone."""
    if settings.publication.create == "never":
        return False
    found = await look(connection, name)
    if found is None or not found.is_ours:
        return False
    with in_our_words("the publication cannot be dropped", publication=name):
        await _execute(connection, f"DROP PUBLICATION IF EXISTS {quote(name)}")
    return True


def quote(name: str) -> str:
    """An identifier, quoted in any case, so that case and keywords have no meaning."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(table: TableId) -> str:
    return f"{quote(table.namespace)}.{quote(table.name)}"


def table_list(tables: Iterable[TableId]) -> str:
    return ", ".join(map(quoted_table, sorted(tables)))


def member_list(tables: Iterable[TableId]) -> str:
    """Without the tables that inherit from them, which are tables of their own: the server would
    add these again, or drop them."""
    return ", ".join(f"ONLY {quoted_table(each)}" for each in sorted(tables))


def few(tables: Sequence[object]) -> str:
    """Their names, as far as anybody wants to read them."""
    shown = ", ".join(map(str, tables[:SHOWN_MAX]))
    return shown + (f" and {len(tables) - SHOWN_MAX} more" if len(tables) > SHOWN_MAX else "")


def _for_the_owner(told: Iterable[str]) -> str:
    return "have somebody who owns the tables run: " + "; ".join(told)


async def _execute(connection: Connection, statement: str) -> None:
    await connection.execute(sql.SQL(statement))
