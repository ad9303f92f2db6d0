"""The types of one database by oid, and the readers of their columns."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from headwater.connectors.postgres.server.connection import has_no_encoding
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.types.arrays import array_reading
from headwater.connectors.postgres.types.builtin import (
    LEFT_OUT_IN_ARRAYS,
    builtin_reading,
    extension_reading,
    hstore_reading,
)
from headwater.connectors.postgres.types.column_reader import (
    BYTES,
    ColumnPlan,
    TypeReader,
    as_type,
    text_reading,
)
from headwater.connectors.postgres.types.datetime import interval_reading
from headwater.connectors.postgres.types.numeric import money_reading
from headwater.core_log.rows.schema_text import decimals_as_text

if TYPE_CHECKING:
    from psycopg import AsyncConnection

ENUM = "io.debezium.data.Enum"
DEPTH_MAX = 32
"""Domains over domains, and arrays of them: more is a circle."""

TYPES = """
SELECT t.oid::int8, n.nspname, t.typname, t.typtype::text, t.typbasetype::int8, t.typtypmod,
       CASE WHEN e.oid IS NULL THEN 0 ELSE e.oid END::int8, t.typndims, e.typdelim::text,
       CASE WHEN t.typtype = 'e' THEN ARRAY(
           SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = t.oid
           ORDER BY enumsortorder
       ) END
FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_type e ON e.typarray = t.oid
WHERE t.typtype NOT IN ('c', 'p') AND coalesce(e.typtype, 'b') <> 'c'
"""
ONE_UNIT = "SELECT 1::pg_catalog.money::text"


class PgType(NamedTuple):
    """A row of the catalog of types."""

    oid: int
    namespace: str
    name: str
    kind: str
    """`b`ase, `d`omain, `e`num, `r`ange or `m`ultirange."""
    base_oid: int
    """Base type of a domain."""
    modifier: int
    """Type modifier of a domain's base."""
    item_oid: int
    """Item type of an array; else 0."""
    dimensions: int
    """Dimensions of a domain over arrays."""
    delimiter: str | None
    labels: Sequence[str] | None
    """Labels of an enum, in order."""


@dataclass(slots=True)
class TypeMap:
    """The types of the last look-up; composite ones are treated as text."""

    settings: PostgresSettings
    _types: dict[int, PgType] = field(default_factory=dict)
    _strange: set[int] = field(default_factory=set)
    """Types that were looked up and are only known as text."""
    _one_unit_of_money: str = "$1.00"
    _has_any_bytes: bool = False
    """Whether the database accepts any bytes as text."""

    @classmethod
    async def load(
        cls, connection: "AsyncConnection[Any]", settings: PostgresSettings
    ) -> "TypeMap":
        book = cls(settings)
        await book.reload(connection)
        return book

    async def reload(self, connection: "AsyncConnection[Any]") -> None:
        """Reads all types again: enums may have new labels."""
        rows = await (await connection.execute(TYPES)).fetchall()
        self._types = {row[0]: PgType(*row) for row in rows}
        self._strange.clear()
        self._has_any_bytes = has_no_encoding(connection)
        [[self._one_unit_of_money]] = await (await connection.execute(ONE_UNIT)).fetchall()

    async def learn(self, connection: "AsyncConnection[Any]", oids: Collection[int]) -> None:
        """Reads the types again if one of these is new; cheap if none is."""
        if self.knows(oids):
            return
        await self.reload(connection)
        self._strange |= {oid for oid in oids if oid not in self._types}

    def knows(self, oids: Collection[int]) -> bool:
        return all(oid in self._types or oid in self._strange for oid in oids)

    def plan(
        self,
        name: str,
        type_oid: int,
        type_modifier: int,
        *,
        is_nullable: bool,
        dimensions: int = 1,
        number: int = 0,
    ) -> ColumnPlan | None:
        """Returns the plan of a column; None if `unknown_types: skip` leaves it out.

        `dimensions` is the catalog's value for an array's column; the stream has neither it nor the
        column's number, which is 0 if unknown.
        """
        reading = self._reading(type_oid, type_modifier, dimensions, depth=0)
        if reading is None:
            return None
        column = replace(reading.column(name, is_nullable=is_nullable), id=number)
        plan = ColumnPlan(
            column,
            reading.read,
            pa.scalar(reading.unavailable, reading.type),
            asked=BYTES if self._has_any_bytes and reading.form is None else reading.asked,
            form=reading.form,
        )
        if reading.read_text is None or self.settings.decimal == "precise":
            return plan
        text = decimals_as_text(column)
        return plan._replace(
            with_nan=plan._replace(
                column=text, read=reading.read_text, unavailable=pa.scalar(None, text.type)
            )
        )

    def _reading(
        self, oid: int, modifier: int, dimensions: int, *, depth: int
    ) -> TypeReader | None:
        known = self._types.get(oid)
        if known is None or depth > DEPTH_MAX:
            return self._unknown()
        if known.kind == "d":
            inner = known.modifier if known.modifier >= 0 else modifier
            return self._reading(
                known.base_oid, inner, max(known.dimensions, dimensions), depth=depth + 1
            )
        if known.item_oid:
            return self._array(known, modifier, dimensions, depth=depth)
        if known.kind == "e":
            labels = text_reading(ENUM, {"allowed": ",".join(known.labels or ())})
            return replace(labels, asked=as_type("text"))
        return self._by_name(known, modifier) or self._unknown()

    def _by_name(self, known: PgType, modifier: int) -> TypeReader | None:
        if known.namespace != "pg_catalog":
            if known.name == "hstore":
                return hstore_reading(self.settings.hstore)
            return extension_reading(known.name, modifier)
        if known.name == "money":
            return money_reading(self._one_unit_of_money)
        if known.name == "interval":
            return interval_reading(self.settings.interval)
        return builtin_reading(known.name, modifier)

    def _array(
        self, known: PgType, modifier: int, dimensions: int, *, depth: int
    ) -> TypeReader | None:
        item_type = self._types.get(known.item_oid)
        if item_type is None:
            return self._unknown()
        skips = self.settings.unknown_types == "skip"
        if skips and (item_type.kind == "d" or item_type.name in LEFT_OUT_IN_ARRAYS):
            return None
        item = self._reading(known.item_oid, modifier, 1, depth=depth + 1)
        if item is None:
            return None
        return array_reading(item, delimiter=known.delimiter or ",", dimensions=dimensions)

    def _unknown(self) -> TypeReader | None:
        return text_reading() if self.settings.unknown_types == "text" else None
