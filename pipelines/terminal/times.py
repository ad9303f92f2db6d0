"""Moments as people write and read them: ISO 8601 in UTC, or how long ago."""

import re
from datetime import UTC, datetime, timedelta

AGO = re.compile(r"(\d+)(ms|s|m|h|d)")
UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(timestamp_ms: int) -> str:
    """As ISO 8601 in UTC; what no calendar holds stays a number."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def parse_time(text: str, now_ms: int) -> int | None:
    """Milliseconds since 1970 of an ISO date or time (UTC unless it says otherwise), or of "10m"
    ago; None where the text is neither.
    """
    ago = AGO.fullmatch(text)
    if ago:
        return max(0, now_ms - int(ago[1]) * UNIT_MS[ago[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(milliseconds=1)
