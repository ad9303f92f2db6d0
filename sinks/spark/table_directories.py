"""Names of tables' directories, safe for every table name."""

import re
from hashlib import sha256

from headwater.core_log.model.table_schema import TableId

LETTERS_MAX = 120
DIGEST_LETTERS = 8


def directory_of(table: TableId, template: str) -> str:
    """Returns `{schema}.{table}` filled in. Without a schema, its separator is dropped too."""
    if not table.namespace:
        template = re.sub(r"\{schema\}[./_-]?", "", template)
    parts = {"{schema}": safe(table.namespace), "{table}": safe(table.name)}
    return re.sub(r"\{schema\}|\{table\}", lambda found: parts[found[0]], template)


def safe(name: str) -> str:
    """Returns a safe name. Plain names stay; others get a digest, so that no two names collide,
    none is hidden, and none leads upwards."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:LETTERS_MAX].lstrip("._")
    if plain == name:
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LETTERS]
    return f"{plain}-{digest}"
