"""Names of files and directories, safe whatever tables, columns and values are called."""

import hashlib
from urllib.parse import quote

from headwater.core_log.model.table_schema import TableId

NAME_BYTES_MAX = 120
DIGEST_DIGITS = 16
NULL = "__HIVE_DEFAULT_PARTITION__"
"""Hive's word for a partition value that is null."""


def escape(text: str) -> str:
    """Letters, digits, `_`, `-`, `.` and `~` stay, all else is percent-encoded as UTF-8. A dot or
    an underscore in front is encoded too, so that nothing is hidden or leads upwards; what is too
    long keeps its beginning and gets a digest."""
    escaped = quote(text, safe="", errors="surrogatepass")
    if escaped[:1] in (".", "_"):
        escaped = f"%{ord(escaped[0]):02X}{escaped[1:]}"
    if len(escaped) <= NAME_BYTES_MAX:
        return escaped
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_DIGITS]
    kept = escaped[: NAME_BYTES_MAX - DIGEST_DIGITS - 1]
    return f"{kept.rpartition('%')[0] if '%' in kept[-2:] else kept}~{digest}"


def table_directory(table: TableId) -> str:
    """Namespace and name are escaped apart, so that no two tables share a directory."""
    if not table.namespace:
        return escape(table.name)
    return f"{escape(table.namespace)}.{escape(table.name).replace('.', '%2E')}"


def partition_directory(column: str, value: str | None) -> str:
    return f"{escape(column)}={NULL if value is None else escape(value)}"
