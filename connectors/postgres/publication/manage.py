"""Creates the publication, and keeps it in line with the file if our role may."""

from collections.abc import Collection, Iterable, Sequence

from psycopg import sql

from headwater.connectors.postgres.publication.published_tables import (
    OPERATIONS,
    Publication,
    covers,
    look,
    missing_from,
)
from headwater.connectors.postgres.publication.replica_identity import (
    OF_STORED,
    REFUSES,
    find_unidentified,
    identities_of,
)
from headwater.connectors.postgres.server.connection import (
    READ_ONLY,
    RIGHTS,
    PgConnection,
    in_our_words,
    member_list,
    quote,
)
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.table_schema import TableId

PUBLISH = f"publish = '{', '.join(OPERATIONS)}'"
VIA_ROOT = "publish_via_partition_root = true"
GENERATED = "publish_generated_columns = stored"
GENERATED_SINCE = 18_0000
"""Earlier publications have no generated columns, and the server accepts that. Since this version
it refuses changes of rows whose replica identity has unpublished ones."""


async def lacks_generated(
    connection: PgConnection, found: Publication | None, tables: Collection[TableId]
) -> bool:
    """Whether it leaves out generated columns of the replica identity of these tables. The server
    then refuses every UPDATE and DELETE of them."""
    if found is None or not found.could_send_generated:
        return False
    return OF_STORED in (await identities_of(connection, tables)).values()


def whole_statement(found: Publication) -> str:
    """Returns SQL that removes row filters and column lists. SET drops everything that it does not
    name."""
    objects = [member_list(found.members)]
    if found.schemas:
        objects.append(f"TABLES IN SCHEMA {', '.join(map(quote, sorted(found.schemas)))}")
    return f"ALTER PUBLICATION {quote(found.name)} SET TABLE {', '.join(objects)}"


def creation(name: str, tables: Collection[TableId], *, version: int) -> str:
    """Returns SQL that creates it, on a server of this version."""
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
    """Returns SQL that makes it publish exactly `tables`, except those that are `spared`, and
    generated columns if wanted; empty if nothing is to change. A publication for all tables or
    for schemas keeps its extent."""
    quoted = quote(found.name)
    options = [
        *([] if found.goes_via_root else [VIA_ROOT]),
        *([] if found.operations == set(OPERATIONS) else [PUBLISH]),
        *([GENERATED] if with_generated else []),
    ]
    told = [f"ALTER PUBLICATION {quoted} SET ({', '.join(options)})"] if options else []
    # Without publish_via_partition_root the partitions are covered instead, so membership counts as
    # well.
    if new := set(tables) - found.covered - found.members.keys():
        told.append(f"ALTER PUBLICATION {quoted} ADD TABLE {member_list(new)}")
    if old := {each for each in found.members.keys() - set(tables) if str(each) not in spared}:
        told.append(f"ALTER PUBLICATION {quoted} DROP TABLE {member_list(old)}")
    return told


async def keep(
    connection: PgConnection,
    settings: PostgresSettings,
    name: str,
    tables: Collection[TableId],
    *,
    spared: Collection[str] = (),
) -> Sequence[str]:
    """Creates the publication, or changes it with the tables of the file; returns what was done. It
    must exist before a slot is created, because the server uses its state at that time.

    Tables that stay published without being in the file do no harm: the source leaves them out.
    """
    found = await look(connection, name)
    created = creation(name, tables, version=connection.info.server_version)
    if settings.publication.create == "never":
        if found is None:
            raise SourceRejected(
                "the publication does not exist",
                publication=name,
                hint=_for_the_owner([created]),
            )
        check_covers(found, tables)
        return ()
    new = tables if found is None else set(tables) - found.covered - found.members.keys()
    if unsafe := await find_unidentified(connection, new):
        raise SourceRejected(
            f"{REFUSES} {unsafe.why}",
            tables=", ".join(map(str, unsafe.tables)),
            hint=f"give them a primary key, leave them out of `tables`, or: {unsafe.hint}",
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
            if error.facts.get("sqlstate") not in (RIGHTS, READ_ONLY):  # a standby cannot change it
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


def check_covers(found: Publication, tables: Collection[TableId]) -> None:
    """Raises `SourceRejected` with the SQL that cures it if changes would be missed."""
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


async def drop(connection: PgConnection, settings: PostgresSettings, name: str) -> bool:
    """Drops our publication; returns whether there was one. A given one (`create: never`), or
    another owner's, is left alone."""
    if settings.publication.create == "never":
        return False
    found = await look(connection, name)
    if found is None or not found.is_ours:
        return False
    with in_our_words("the publication cannot be dropped", publication=name):
        await _execute(connection, f"DROP PUBLICATION IF EXISTS {quote(name)}")
    return True


def _for_the_owner(told: Iterable[str]) -> str:
    return "have somebody who owns the tables run: " + "; ".join(told)


async def _execute(connection: PgConnection, statement: str) -> None:
    await connection.execute(sql.SQL(statement))
