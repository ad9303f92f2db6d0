"""Names in targets, of tables, values and our own columns; stored spellings stay (decision 23)."""

import re
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import quote

import pyarrow as pa

from headwater.core_log.foundation.errors import SchemaRefused
from headwater.core_log.model.table_schema import TableId
from headwater.sinks.sink import DELETED_AT

NAME_BYTES_MAX = 120
HIVE_DIGEST_DIGITS, SHORT_DIGEST_DIGITS = 16, 8
NULL = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name for a partition value that is null."""

OWN = "_headwater_"
"""Prefix of our own columns."""
OP, TOPIC, PARTITION, OFFSET, COMMITTED_AT = (
    f"{OWN}{name}" for name in ("op", "topic", "partition", "offset", "committed_at")
)
VALID_FROM, VALID_TO, IS_CURRENT = (
    f"{OWN}{name}" for name in ("valid_from", "valid_to", "is_current")
)


def hive_name(text: str) -> str:
    """Percent-encodes all but letters, digits, `_`, `-`, `.` and `~`, as UTF-8.

    A dot or an underscore in front is encoded too, so that nothing is hidden or leads upwards. A
    long name keeps its beginning and gets a digest.
    """
    encoded = quote(text, safe="", errors="surrogatepass")
    if encoded[:1] in (".", "_"):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) <= NAME_BYTES_MAX:
        return encoded
    start = encoded[: NAME_BYTES_MAX - HIVE_DIGEST_DIGITS - 1]
    start = start.rpartition("%")[0] if "%" in start[-2:] else start
    return f"{start}~{digest_of(text, HIVE_DIGEST_DIGITS)}"


def lake_name(text: str) -> str:
    """Replaces all but letters, digits, `_`, `-` and `.`; a changed name gets a digest, so that no
    two names collide, none is hidden, and none leads upwards."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:NAME_BYTES_MAX].lstrip("._")
    return text if plain == text else f"{plain}-{digest_of(text, SHORT_DIGEST_DIGITS)}"


def digest_of(text: str, digits: int) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def hive_table_directory(table: TableId) -> str:
    """Encodes namespace and name apart, so that no two tables share a directory."""
    if not table.namespace:
        return hive_name(table.name)
    return f"{hive_name(table.namespace)}.{hive_name(table.name).replace('.', '%2E')}"


def hive_partition_directory(column: str, value: str | None) -> str:
    return f"{hive_name(column)}={NULL if value is None else hive_name(value)}"


def lake_table_directory(table: TableId, template: str) -> str:
    """Returns `{schema}.{table}` filled in. Without a schema, its separator is dropped too."""
    if not table.namespace:
        template = re.sub(r"\{schema\}[./_-]?", "", template)
    parts = {"{schema}": lake_name(table.namespace), "{table}": lake_name(table.name)}
    return re.sub(r"\{schema\}|\{table\}", lambda found: parts[found[0]], template)


def fit(name: str, *, bytes_max: int, suffix: str = "") -> str:
    """Returns `name` with its suffix, shortened in the middle if too long.

    The digest of the whole name keeps two long names with the same beginning apart.
    """
    if len((name + suffix).encode()) <= bytes_max:
        return name + suffix
    digest = "_" + digest_of(name, SHORT_DIGEST_DIGITS) + suffix
    start = name.encode()[: bytes_max - len(digest)]
    return start.decode(errors="ignore") + digest


def fit_table(table: TableId, *, namespace: str, name: str, bytes_max: int) -> TableId:
    """Returns the target table of a source table, by the templates of the settings."""
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


def own_columns(moment: pa.DataType) -> Mapping[str, Mapping[str, pa.DataType]]:
    """`moment`: the target's type of a time."""
    return {
        "mirror": {},
        "soft_delete": {DELETED_AT: moment},
        "append": {
            OP: pa.string(),
            TOPIC: pa.string(),
            PARTITION: pa.int32(),
            OFFSET: pa.int64(),
            COMMITTED_AT: moment,
        },
        "scd2": {VALID_FROM: moment, VALID_TO: moment, IS_CURRENT: pa.bool_()},
    }
