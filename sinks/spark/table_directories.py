"""Directories of tables, safe whatever the tables are called."""

import re
from hashlib import sha256

from headwater.core_log.model.table_schema import TableId

LETTERS_MAX = 120
DIGEST_LETTERS = 8


def directory_of(table: TableId, template: str) -> str:
    """`{schema}.{table}` filled in. Where there is no schema, what separates it goes as well."""
    if not table.namespace:
        template = re.sub(r"\{schema\}[./_-]?", "", template)
    parts = {"{schema}": safe(table.namespace), "{table}": safe(table.name)}
    return re.sub(r"\{schema\}|\{table\}", lambda found: parts[found[0]], template)


def safe(name: str) -> str:
    """Plain names stay; others get a digest, so that no two become one, nothing is hidden, and
    nothing leads upwards."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:LETTERS_MAX].lstrip("._")
    if plain == name:
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LETTERS]
    return f"{plain}-{digest}"
