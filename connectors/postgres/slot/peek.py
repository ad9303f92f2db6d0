"""Whether a slot still holds changes of rows before a place, found out without taking any."""

import psycopg
from psycopg import sql

from headwater.connectors.postgres.server.connection import PgConnection, in_our_words
from headwater.connectors.postgres.server.lsn import lsn_text
from headwater.connectors.postgres.server.sql_identifiers import quote

MESSAGES_MAX = 10_000
ROW_MESSAGES = tuple(b"IUDT")

PEEK = sql.SQL("""
SELECT coalesce(sum(messages), 0) >= {most} OR coalesce(bool_or(has_rows AND last > {after}), false)
FROM (
    SELECT count(*) AS messages, max(lsn) AS last,
        bool_or(pg_catalog.get_byte(data, 0) = ANY({rows})) AS has_rows
    FROM pg_catalog.pg_logical_slot_peek_binary_changes({slot}, {before}, {most},
        'proto_version', '1', 'publication_names', {publication})
    GROUP BY xid::text
) AS transactions
""")


async def holds_changes(
    connection: PgConnection, slot: str, publication: str, *, after: int, before: int
) -> bool | None:
    """Of transactions that end behind `after`; more than can be looked through count as some. None
    while somebody streams from the slot."""
    statement = PEEK.format(
        slot=sql.Literal(slot),
        publication=sql.Literal(quote(publication)),
        after=sql.SQL("{}::pg_lsn").format(sql.Literal(lsn_text(after))),
        before=sql.SQL("{}::pg_lsn").format(sql.Literal(lsn_text(before))),
        most=sql.Literal(MESSAGES_MAX),
        rows=sql.Literal(list(ROW_MESSAGES)),
    )
    with in_our_words("what the slot holds cannot be looked at", slot=slot):
        try:
            [[found]] = await (await connection.execute(statement)).fetchall()
        except psycopg.errors.ObjectInUse:
            return None
    return bool(found)
