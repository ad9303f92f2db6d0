"""How far back a cursor is read again: which of the settings counts for it depends on its type."""

import pyarrow as pa

from headwater.connectors.sql.settings import SqlSourceSettings
from headwater.core_log.foundation.errors import SourceRejected


def lag_of(kind: pa.DataType) -> str:
    """The key of the setting; empty where no distance can be taken from a value."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "lag"
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return "lag_count"
    return ""


def given_lags(settings: SqlSourceSettings) -> tuple[str, ...]:
    lags = {"lag": settings.lag_ms, "lag_count": settings.lag_count}
    return tuple(name for name, value in lags.items() if value)


def check_lag(
    settings: SqlSourceSettings, cursor: str, kind: pa.DataType, *, declared: str, table: str
) -> None:
    """Raises where a lag is wanted and could never be kept to."""
    if (given := given_lags(settings)) and not lag_of(kind):
        raise SourceRejected(
            f"`{given[0]}` can have no effect on a cursor of this type",
            table=table,
            column=cursor,
            type=declared,
            hint="take a cursor of times, days or whole numbers, or read this table by a pipeline"
            " without a lag",
        )
