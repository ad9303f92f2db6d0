"""Makes the publication, and keeps it as the file wants it where our role may."""

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
    find_unidentified,
    identities_of,
)
from headwater.connectors.postgres.publication.uncapturable_tables import REFUSES
from headwater.connectors.postgres.server.connection import (
    READ_ONLY,
    RIGHTS,
    PgConnection,
    in_our_words,
)
from headwater.connectors.postgres.server.sql_identifiers import member_list, quote
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.table_schema import TableId

PUBLISH = f"publish = '{', '.join(OPERATIONS)}'"
VIA_ROOT = "publish_via_partition_root = true"
GENERATED = "publish_generated_columns = stored"
GENERATED_SINCE = 18_0000
"""Before, publications are without generated columns, and the server does not mind. From then on it
refuses to change rows whose replica identity has some that are not published."""


async def lacks_generated(
    connection: PgConnection, found: Publication | None, tables: Collection[TableId]
) -> bool:
    """Whether it leaves out generated columns by which rows of these say which they are. The server
    then refuses every UPDATE and DELETE of them to everybody."""
    if found is None or not found.could_send_generated:
        return False
    return OF_STORED in (await identities_of(connection, tables)).values()


def whole_statement(found: Publication) -> str:
    """SQL that takes filters and lists of columns out of it. What it does not name, SET drops."""
    objects = [member_list(found.members)]
    if found.schemas:
        objects.append(f"TABLES IN SCHEMA {', '.join(map(quote, sorted(found.schemas)))}")
    return f"ALTER PUBLICATION {quote(found.name)} SET TABLE {', '.join(objects)}"


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
    connection: PgConnection,
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
    if unsafe := await find_unidentified(connection, new):
        raise SourceRejected(
            f"{REFUSES} {unsafe.why}",
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


async def drop(connection: PgConnection, settings: PostgresSettings, name: str) -> bool:
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


def _for_the_owner(told: Iterable[str]) -> str:
    return "have somebody who owns the tables run: " + "; ".join(told)


async def _execute(connection: PgConnection, statement: str) -> None:
    await connection.execute(sql.SQL(statement))
