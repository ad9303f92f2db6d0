"""Names of enum labels in the stream, compared with the catalog, which shows only present ones."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headwater.connectors.postgres.schema_history.table_definition import Attribute

XIDS, FIRST_XID = 1 << 32, 3
"""Transactions have numbers of 32 bits in the catalog. Those below the first one are long over."""


class EnumLabel(NamedTuple):
    """A label; it keeps its number when it is renamed."""

    name: str
    since: int | None
    """The transaction that gave it this name; None if an older version stored it."""

    def is_same(self, other: "EnumLabel | None") -> bool:
        if other is None or self.name != other.name:
            return False
        return None in (self.since, other.since) or self.since == other.since


Labels = Mapping[str, EnumLabel]
"""By their numbers."""


def labels_of(columns: Iterable["Attribute"], type_oid: int | None = None) -> dict[str, EnumLabel]:
    """Returns labels of columns of the type, or of all columns; fields of composite types are
    among them."""
    return {
        oid: EnumLabel(name, (column.since or {}).get(oid, [None])[0])
        for column in columns
        if type_oid in (None, column.type_oid)
        for oid, name in (column.parts or {}).items()
    }


def certain_names(then: Labels, now: Labels, horizon: int) -> frozenset[str]:
    """Returns names that stood for the same labels ever since `then`. Labels that are newer may
    have exchanged their names, unless one transaction named all of them. Transactions below
    `horizon` had ended at `then`."""
    new = {
        oid
        for oid, label in now.items()
        if not label.is_same(then.get(oid)) and not is_older(label.since, horizon)
    }
    is_one_change = len({now[oid].since for oid in new}) <= 1
    return frozenset(label.name for oid, label in now.items() if is_one_change or oid not in new)


def differ(then: Labels, now: Labels) -> bool:
    """Whether a label has got a name since, be it the same after another one."""
    return any(oid in now and not label.is_same(now[oid]) for oid, label in then.items())


def may_have_changed(since: Iterable[Sequence[int]], horizon: int) -> bool:
    """Whether the parts of a type may have been others after `horizon`: a type that one transaction
    has made was never another one."""
    named = {xid for each in since for xid in (each[1:] or each)}
    is_newer = any(not is_older(xid, horizon) for xid in named)
    return is_newer and len(named) > 1


def is_older(xid: int | None, horizon: int) -> bool:
    """Whether the transaction ended before all that were running at `horizon`."""
    if xid is None or not horizon:
        return False
    return xid < FIRST_XID or 0 < (horizon - xid) % XIDS < XIDS // 2
