"""Synchronous standbys, for one of which the server may mistake our reader of the slot."""

import re

from headwater.connectors.postgres.server.connection import PgConnection, in_our_words
from headwater.core_log.foundation.errors import Diagnostic, SourceRejected

CURE = (
    "name the standbys that commits are to wait for, as in synchronous_standby_names ="
    " 'FIRST 1 (standby_1, standby_2)', without '*' and without \"{name}\";"
    " then SELECT pg_reload_conf();"
)

NAMES = """
SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN ''
    ELSE pg_catalog.current_setting('synchronous_standby_names') END
"""
"""On a standby these names are set for its promotion, and have no effect before."""

READER = """
SELECT r.sync_state, r.application_name
FROM pg_catalog.pg_replication_slots s
JOIN pg_catalog.pg_stat_replication r ON r.pid = s.active_pid
WHERE s.slot_name = %s
"""
"""The state is shown to members of `pg_read_all_stats` only, even for own connections."""

LIST = re.compile(r"\s*(?:(?:FIRST|ANY)\s+)?\d+\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
NAME = re.compile(r'"((?:[^"]|"")*)"|([^\s,]+)')


def are_named(names: str, name: str) -> bool:
    """Whether a connection of that name counts by `synchronous_standby_names`."""
    listed = LIST.fullmatch(names)
    for quoted, plain in NAME.findall(listed[1] if listed else names):
        each = plain or quoted.replace('""', '"')
        if each == "*" or each.lower() == name.lower():
            return True
    return False


async def names_of(connection: PgConnection) -> str:
    with in_our_words("the server does not name its synchronous standbys"):
        [[names]] = await (await connection.execute(NAMES)).fetchall()
    return str(names)


def about(names: str, name: str) -> list[Diagnostic]:
    """Returns the warning to show before a source of that name streams."""
    if not are_named(names, name):
        return []
    return [
        Diagnostic(
            f"synchronous_standby_names = {names} names our reader of the slot as well, so that"
            " commits may wait for the pipeline, which waits for them",
            CURE.format(name=name),
            is_fatal=False,
        )
    ]


async def refuse_to_be_one(connection: PgConnection, slot: str, *, is_long: bool) -> None:
    """Raises if a commit that others do not see yet waits for our confirmation. `is_long`: it has
    waited so long that this is assumed even if another standby could confirm it, or if the
    server does not show our state."""
    with in_our_words("the server does not show who streams from it"):
        rows = await (await connection.execute(READER, [slot])).fetchall()
    for state, name in rows:
        names = await names_of(connection)
        may_be_one = state == "quorum" or (state is None and are_named(names, name))
        if state == "sync" or (is_long and may_be_one):
            raise SourceRejected(
                "a commit waits for us as for a synchronous standby, while we wait to see it",
                slot=slot,
                reader=name,
                synchronous_standby_names=names,
                hint=CURE.format(name=name),
            )
