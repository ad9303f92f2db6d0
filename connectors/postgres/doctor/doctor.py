"""Checks of a PostgreSQL source; each problem comes with the SQL that cures it."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple

from headwater.connectors.postgres.doctor.slots import examine_slots
from headwater.connectors.postgres.doctor.tables import ExaminedTable, examine_tables
from headwater.connectors.postgres.publication import manage, published_tables
from headwater.connectors.postgres.publication.published_tables import Publication, publication_name
from headwater.connectors.postgres.publication.replica_identity import find_unidentified
from headwater.connectors.postgres.server.connection import (
    PgConnection,
    connect,
    in_our_words,
    parameters_of,
    quote,
)
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot.resume_check import identify
from headwater.connectors.postgres.wal.stream import check_origin
from headwater.core_log.foundation.errors import Diagnostic, HeadwaterError, first_names

WAITS_S_MAX = 60
"""A new slot waits for running transactions; an older one is reported."""
OLDEST, STANDBY_DECODES_SINCE = 14_0000, 16_0000
SERVER = """
SELECT current_user::text, current_setting('wal_level'),
    current_setting('max_replication_slots')::int,
    current_setting('max_wal_senders')::int,
    pg_catalog.pg_is_in_recovery(),
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
    coalesce(current_setting('idle_replication_slot_timeout', true), '0'),
    current_setting('server_encoding')
"""


class ServerFacts(NamedTuple):
    role: str
    wal_level: str
    slots_max: int
    senders_max: int
    is_standby: bool
    may_create: bool
    idle_timeout: str
    encoding: str


async def examine(
    settings: PostgresSettings, pipeline: str, *, waits_s_max: int = WAITS_S_MAX
) -> list[Diagnostic]:
    """Returns the problems; changes nothing. A check that depends on a failed one is skipped."""
    try:
        connection = await connect(settings)
    except HeadwaterError as error:
        return [_failure_of(error)]
    async with connection:
        if connection.info.server_version < OLDEST:
            version = connection.info.server_version // 10_000
            return [Diagnostic(f"the server is PostgreSQL {version}", "upgrade it to 14 or newer")]
        facts = await _server_facts(connection)
        found = list(_about_the_url(settings))
        found += _about_the_server(facts, connection.info.server_version)
        try:
            check_origin(settings.origin, connection.info.server_version)
        except HeadwaterError as error:
            found.append(Diagnostic(error.problem, error.hint))
        found += [each async for each in _about_replication(settings, facts)]
        publication = await published_tables.look(connection, publication_name(settings, pipeline))
        tables, about_tables = await examine_tables(connection, settings, pipeline)
        found += about_tables
        found += await _about_the_publication(
            connection, settings, pipeline, facts, publication, tables
        )
        found += await examine_slots(
            connection,
            settings,
            pipeline,
            slots_max=facts.slots_max,
            waits_s_max=waits_s_max,
        )
        return found


async def _server_facts(connection: PgConnection) -> ServerFacts:
    with in_our_words("the server does not say how it is set up"):
        row = await (await connection.execute(SERVER)).fetchone()
    assert row is not None, "a question for values has one row as an answer"
    return ServerFacts(*row)


def _about_the_url(settings: PostgresSettings) -> Iterator[Diagnostic]:
    given = parameters_of(settings, name="headwater")
    hosts = str(given.get("host", "")).split(",")
    if len(hosts) > 1 and given.get("target_session_attrs", "any") in ("any", "read-only"):
        yield Diagnostic(
            "`url` names several servers and does not say that the primary is meant",
            "add target_session_attrs=primary to `url` of the source",
        )


def _about_the_server(facts: ServerFacts, version: int) -> Iterator[Diagnostic]:
    if facts.wal_level != "logical":
        yield Diagnostic(
            f"wal_level is {facts.wal_level}",
            "ALTER SYSTEM SET wal_level = logical; then restart the server (Amazon RDS: parameter"
            " rds.logical_replication = 1; Cloud SQL: flag cloudsql.logical_decoding = on)",
        )
    if facts.is_standby and version < STANDBY_DECODES_SINCE:
        yield Diagnostic(
            "the server is a standby, from which changes can be streamed since PostgreSQL 16",
            "set `url` to the primary; with several hosts: target_session_attrs=primary",
        )
    elif facts.is_standby:
        yield Diagnostic(
            "the server is a standby: a new slot there waits until the primary writes, and"
            " publication and heartbeat are the primary's business",
            "let `url` name the primary; or run on it: SELECT pg_log_standby_snapshot();",
            is_fatal=False,
        )
    if facts.encoding == "SQL_ASCII":
        yield Diagnostic(
            "the database takes text of any encoding (SQL_ASCII): rows with text that is not UTF-8"
            " are set aside as dead letters",
            "repair such text, or store it in columns of bytea, before the first run; or move to a"
            " database of UTF8: pg_dump --encoding=...",
            is_fatal=False,
        )
    if facts.idle_timeout not in ("0", ""):
        yield Diagnostic(
            f"the server gives up slots that nobody has read from for {facts.idle_timeout}",
            "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();",
            is_fatal=False,
        )


async def _about_replication(
    settings: PostgresSettings, facts: ServerFacts
) -> AsyncIterator[Diagnostic]:
    """Checks the right to replicate by using it: cloud services grant it in their own ways."""
    try:
        async with await connect(settings, replication=True) as connection:
            await identify(connection)
    except HeadwaterError as error:
        why = str(error.facts.get("reason") or error.facts.get("why", ""))
        if "max_wal_senders" in why:
            yield Diagnostic(
                f"all {facts.senders_max} connections for replication are taken",
                f"ALTER SYSTEM SET max_wal_senders = {facts.senders_max + 10};"
                " then restart the server",
            )
        elif "replication role" in why or "WAL sender" in why:
            yield Diagnostic(
                f"role {facts.role} may not replicate",
                f"ALTER ROLE {quote(facts.role)} REPLICATION;"
                " (on Amazon RDS: make it a member of rds_replication)",
            )
        else:
            yield _failure_of(error)


async def _about_the_publication(
    connection: PgConnection,
    settings: PostgresSettings,
    pipeline: str,
    facts: ServerFacts,
    found: Publication | None,
    tables: Sequence[ExaminedTable],
) -> list[Diagnostic]:
    name, wanted = publication_name(settings, pipeline), [each.table for each in tables]
    if not wanted and found is None:
        return []
    told = list[Diagnostic]()
    new = [each for each in tables if found is None or each.table not in found.covered]
    may = settings.publication.create == "auto" and all(each.is_owned for each in new)
    may = may and (facts.may_create if found is None else found.is_ours)
    published = {*wanted, *(found.covered if found else ())}  # also those that cannot be captured
    lacks_generated = await manage.lacks_generated(connection, found, published)
    if not may and (found is None or lacks_generated or not published_tables.covers(found, wanted)):
        needed = (
            [manage.creation(name, wanted, version=connection.info.server_version)]
            if found is None
            else manage.changes(found, wanted, with_generated=lacks_generated)
        )
        needed = [each for each in needed if " DROP TABLE " not in each]
        missing = wanted if found is None else published_tables.missing_from(found, wanted)
        is_given = settings.publication.create == "never"
        why = "the file says that it is given" if is_given else "our role may not make it"
        problem = (
            f"publication {name} does not exist, and {why}"
            if found is None
            else f"publication {name} does not publish {first_names(missing)}"
            if missing
            else f"publication {name} leaves out operations or generated columns, or names"
            " partitions"
        )
        told.append(Diagnostic(problem, "; ".join(needed) + ";"))
    if unsafe := await find_unidentified(connection, published):
        told.append(
            Diagnostic(
                "the server refuses UPDATE and DELETE, once it publishes them, of tables that"
                f" {unsafe.why}: {first_names(unsafe.tables)}",
                unsafe.hint,
            )
        )
    if found is not None and (said := published_tables.describe_left_out(found, wanted)):
        told.append(
            Diagnostic(
                f"{said}: the rest is not captured",
                manage.whole_statement(found) + ";",
                is_fatal=False,
            )
        )
    return told


def _failure_of(error: HeadwaterError) -> Diagnostic:
    return Diagnostic(
        error.statement, error.hint or "start the server, or correct `url` of the source"
    )
