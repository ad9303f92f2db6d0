"""Masks, which hide the values of a column for good: redact, hash, truncate, null."""

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.table_schema import Column, DroppedColumn, TableSchema

REDACTED = "***"
BLOCK_BYTES = 64  # of SHA-256
SALT_DIGITS = 8
"""Enough to tell salts apart, and by far too few to find one."""
TRUNCATE = re.compile(r"truncate\((\d+)\)")


def masked_column(column: Column, mask: str, *, is_key: bool, table: str) -> Column:
    """The column as it is afterwards; raises ConfigError where the mask does not fit it."""
    facts = {"table": table, "column": column.name, "mask": mask}
    if is_key and mask != "hash":
        raise ConfigError(
            "a key column can be masked by hash only, because the key must stay unique",
            hint="write hash, or choose another key under source.keys",
            **facts,
        )
    if mask == "null":
        return replace(column, is_nullable=True)
    if mask == "hash":
        if pa.types.is_nested(column.type):
            raise ConfigError(
                "only single values can be hashed", hint="drop it, or mask it by null", **facts
            )
        return replace(column, type=pa.string(), semantic="", parameters={})
    if not pa.types.is_string(column.type):
        raise ConfigError(
            "only text can be redacted or truncated", hint="write hash or null", **facts,
            type=str(column.type),
        )  # fmt: skip
    return replace(column, semantic="", parameters={})


def mask_text(masks: Sequence[str], *, salt: bytes) -> str:
    """How what hides a column is written down: hashes of another salt are other values."""
    used = hashlib.sha256(salt).hexdigest()[:SALT_DIGITS]
    return ", ".join(f"hash of salt {used}" if mask == "hash" else mask for mask in masks)


def is_stricter(mask: str, *, than: str) -> bool:
    """Whether values under the one can be made of values under the other."""
    if not than or mask.rpartition(", ")[2] in ("redact", "null"):
        return bool(mask)
    now, before = TRUNCATE.fullmatch(mask), TRUNCATE.fullmatch(than)
    return now is not None and before is not None and int(now[1]) <= int(before[1])


def masked_values(values: pa.Array, mask: str, *, salt: bytes) -> pa.Array:
    """The same for the values; nulls stay nulls."""
    if mask == "null":
        return pa.nulls(len(values), values.type)
    if mask == "hash":
        return _hash(values, salt)
    if mask == "redact":
        return pc.if_else(values.is_valid(), REDACTED, pa.scalar(None, pa.string()))
    found = TRUNCATE.fullmatch(mask)
    assert found, "the pipeline file was checked for masks that exist"
    return pc.utf8_slice_codeunits(values, 0, int(found[1]))


def _hash(values: pa.Array, salt: bytes) -> pa.StringArray:
    """HMAC-SHA-256 in hexadecimal of each value's bytes, or of its text.

    Only distinct values are hashed one by one in Python; C++ spreads the results over the rows.
    """
    if not pa.types.is_binary(values.type):
        values = values.cast(pa.string()).cast(pa.binary())
    encoded = values.dictionary_encode()
    digest = _digest_with_key(salt)
    hashes = [digest(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(hashes, pa.string()).take(encoded.indices)


def _digest_with_key(salt: bytes) -> Callable[[bytes], str]:
    """HMAC by its definition (RFC 2104): nearly three times as fast as the module of that name,
    which makes OpenSSL set up its key again for each value."""
    sha256 = hashlib.sha256
    block = (sha256(salt).digest() if len(salt) > BLOCK_BYTES else salt).ljust(BLOCK_BYTES, b"\0")
    inner, outer = bytes(x ^ 0x36 for x in block), bytes(x ^ 0x5C for x in block)
    return lambda value: sha256(outer + sha256(inner + value).digest()).hexdigest()


def hidden_columns(stored: TableSchema) -> list[Column | DroppedColumn]:
    """Those of a form of the log."""
    return [*(each for each in stored.columns if each.mask), *stored.dropped]


def check_hidden(after: TableSchema, before: TableSchema, *, named: Collection[str]) -> None:
    """Raises ConfigError where `after`, as the rules leave it, shows what was hidden in `before`,
    or where nobody can say that it does not. `named` are all names in rules for the table."""
    shown = [each for each in after.columns if not each.mask]
    _check_bare(after, before, shown)
    if _has_same_names(after, before):
        return
    for hidden in hidden_columns(before):
        if (hidden.rule_name or hidden.name) in named:
            found = _suspects(hidden, after, before, shown, named)
            if found:
                raise ConfigError(
                    "a masked or dropped column is gone, and a new column has no rule",
                    hint=f"add {found[0]} to `mask` or `drop` of the rule, beside {hidden.name}; or"
                    f" write a rule of its own for {after.table}, and leave it out of the other; or"
                    " undo the rename; then headwater resume PIPELINE",
                    table=str(after.table),
                    column=hidden.name,
                    new=", ".join(found),
                )


def check_renamed(
    after: TableSchema, former: TableSchema, *, named: Collection[str], is_gone: bool
) -> None:
    """Raises ConfigError where `after`, as the rules leave it, shows what was hidden in `former`,
    whose table it is or may be under another name. `named` are all names in rules for `former`."""
    hidden = [x for x in hidden_columns(former) if (x.rule_name or x.name) in named]
    shown = [each for each in after.columns if not each.mask]
    found = []
    if (after.id and former.id) or _look_alike(after, former):
        for each in hidden:
            has_id = any(x.id for x in shown) and each.id
            found += [x.name for x in shown if (x.id == each.id if has_id else x.name == each.name)]
    elif is_gone and _has_shape_of(after, former):
        found = _shown_instead(after, former, hidden)
    if found:
        raise ConfigError(
            f"the table has the columns of {former.table}, of which a rule hides one that it shows",
            hint=f"write {after.table} into `table` of the rule, beside {former.table}, or a rule"
            f" of its own that hides {found[0]}; or, if the column may be seen, take"
            f" {former.table} out of the rule; then headwater resume PIPELINE",
            table=str(after.table),
            column=found[0],
        )


def _look_alike(one: TableSchema, other: TableSchema) -> bool:
    ours, theirs = _names_of(one), _names_of(other)
    return one.key == other.key and (ours <= theirs or theirs <= ours)


def _has_shape_of(after: TableSchema, former: TableSchema) -> bool:
    sizes = [(len(each.key), len(_names_of(each))) for each in (after, former)]
    return sizes[0] == sizes[1]


def _shown_instead(
    after: TableSchema, former: TableSchema, hidden: Sequence[Column | DroppedColumn]
) -> list[str]:
    """Columns in which hidden ones may be seen, under the same or another name."""
    shown = [each.name for each in after.columns if not each.mask]
    bare = [each.name for each in hidden if each.name in shown]
    gone = [each.name for each in hidden if each.name not in _names_of(after)]
    came = _names_of(after) - _names_of(former)
    are_hidden = len(came - set(shown)) >= len(gone)
    return bare if are_hidden else [*bare, *(name for name in shown if name in came)]


def _names_of(schema: TableSchema) -> set[str]:
    return {*schema.names, *(each.name for each in schema.dropped)}


def _check_bare(after: TableSchema, before: TableSchema, shown: Sequence[Column]) -> None:
    masked = [each for each in before.columns if each.mask]
    names = {each.name for each in masked}
    ids = {each.id for each in masked if each.id and after.id == before.id}
    if bare := sorted(each.name for each in shown if each.name in names or each.id in ids):
        raise ConfigError(
            "a formerly masked column is in pending changes, and no rule masks it",
            hint=f"add {bare[0]} to `mask` of the rule again, beside its later name; then"
            " headwater resume PIPELINE",
            table=str(after.table),
            column=", ".join(bare),
        )


def _has_same_names(after: TableSchema, before: TableSchema) -> bool:
    dropped = [{each.name for each in schema.dropped} for schema in (after, before)]
    return after.names == before.names and dropped[0] == dropped[1]


def _suspects(
    hidden: Column | DroppedColumn,
    after: TableSchema,
    before: TableSchema,
    shown: Sequence[Column],
    named: Collection[str],
) -> list[str]:
    """Columns that may be the hidden one under another name."""
    came = [each for each in shown if each.name not in before.names and each.name not in named]
    if not after.id or before.id not in (0, after.id):  # names are all that there is
        is_there = hidden.name in {each.name for each in after.dropped}.union(after.names)
        return [] if is_there else [each.name for each in came]
    if not hidden.id:
        return [each.name for each in came]
    if hidden.id in {each.id for each in after.columns} | {each.id for each in after.dropped}:
        return []
    return [each.name for each in shown if not each.id]
