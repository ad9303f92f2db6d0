"""Names that a database can hold: shortened when too long, the same way every time."""

from collections.abc import Iterable
from hashlib import sha256

from headwater.core_log.foundation.errors import SchemaRefused
from headwater.core_log.model.table_schema import TableId

SHADOW, OLD = "__headwater_new", "__headwater_old"
OWN = "_headwater_"
"""How every column begins that is ours and not the source's."""

DIGEST_LETTERS = 8


def fit(name: str, *, bytes_max: int, suffix: str = "") -> str:
    """`name` with its suffix, cut in the middle where that is too long: the digest of the whole
    name keeps two long names with the same beginning apart."""
    if len((name + suffix).encode()) <= bytes_max:
        return name + suffix
    digest = "_" + sha256(name.encode()).hexdigest()[:DIGEST_LETTERS] + suffix
    kept = name.encode()[: bytes_max - len(digest)]
    return kept.decode(errors="ignore") + digest


def fit_columns(
    table: TableId, names: Iterable[str], *, bytes_max: int, is_case_sensitive: bool
) -> dict[str, str]:
    """Column of the source to column of the target; raises `SchemaRefused` where two become one."""
    fitted = {name: fit(name, bytes_max=bytes_max) for name in names}
    taken: dict[str, str] = {}
    for name, short in fitted.items():
        folded = short if is_case_sensitive else short.casefold()
        if folded in taken:
            raise SchemaRefused(
                "two columns would have one name in the target",
                table=str(table),
                columns=(taken[folded], name),
                hint="rename one of them with `transform: rename`",
            )
        if folded.startswith(OWN) or "\0" in name or not name:
            raise SchemaRefused(
                "a column's name cannot be used in the target",
                table=str(table),
                column=name,
                hint="rename it with `transform: rename`",
            )
        taken[folded] = name
    return fitted


def fit_table(table: TableId, *, namespace: str, name: str, bytes_max: int) -> TableId:
    """Where a table of the source goes, by the templates of the settings."""
    parts = {"{schema}": table.namespace, "{table}": table.name}
    filled = [_fill(template, parts) for template in (namespace, name)]
    if any("\0" in text for text in filled):
        raise SchemaRefused("a table's name cannot be used in the target", table=str(table))
    return TableId(*(fit(text, bytes_max=bytes_max) for text in filled))


def _fill(template: str, parts: dict[str, str]) -> str:
    first, *others = template.split("{schema}")
    filled = parts["{schema}"].join(each.replace("{table}", parts["{table}"]) for each in others)
    first = first.replace("{table}", parts["{table}"])
    return first + parts["{schema}"] + filled if others else first
