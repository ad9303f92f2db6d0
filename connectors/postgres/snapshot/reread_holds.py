"""Why a table is not read again by itself, in words that name what would begin it."""

from collections.abc import Iterable, Mapping

from headwater.connectors.postgres.settings import SnapshotSettings
from headwater.connectors.postgres.snapshot.reread_estimate import RereadEstimate
from headwater.connectors.schema_policies import forbidden
from headwater.core_log.model.table_schema import TableId


def held_by_kind(kinds: Iterable[str], policies: Mapping[str, str]) -> str:
    """Empty where the file allows all of them."""
    found = forbidden(kinds, policies)
    return f"`schema_changes` does not allow {', '.join(found)}" if found else ""


def held_by_size(estimate: RereadEstimate, settings: SnapshotSettings) -> str:
    """Empty where it is small enough, and there is room."""
    most = settings.reread_max_rows
    if most is not None and estimate.rows > most:
        return f"it has {estimate.rows_in_words()}, and `snapshot.reread_max_rows` is {most:,}"
    return estimate.lacks_space()


def begun_by(pipeline: str, table: TableId) -> str:
    return f"headwater snapshot start {pipeline}/{table} reads it again"
