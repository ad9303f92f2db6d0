"""A schedule: at an interval or by cron, and only in certain hours."""

import re
from datetime import UTC, datetime, timedelta
from typing import Self

from pydantic import Field, model_validator

from headwater.core_log.foundation.settings import DurationMs, YamlSettings

WINDOW = r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)"
MINUTES_PER_DAY = 24 * 60
ATTEMPTS_MAX = 800
"""Limit of cron times that are tried for one inside the window: two years of a daily time."""


class Schedule(YamlSettings):
    """A schedule by interval or by cron; all times are UTC."""

    every_ms: DurationMs = Field(0, examples=["24h"])
    """Interval; 0 means never, or that `cron` is used."""
    cron: str = Field("", examples=["0 3 * * *", "*/5 8-18 * * mon-fri"])
    """Cron expression; instead of `every`."""
    between: str = Field("", pattern=rf"^({WINDOW})?$", examples=["22:00-06:00"])
    """Hours in which it may start (from-to, possibly over midnight); at any time if empty."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if self.cron:
            from apscheduler.triggers.cron import CronTrigger

            CronTrigger.from_crontab(self.cron)
            if self._next(0) is None:
                raise ValueError("`cron` has no time within the hours of `between`")
        return self

    def due_ms(self, *, last_ms: int | None, now_ms: int) -> int:
        """Returns the next start in Unix time; `last_ms` is the last start."""
        if not self.cron:
            wanted = now_ms if last_ms is None else max(now_ms, last_ms + self.every_ms)
            return opening_ms(self.between, wanted)
        due = self._next(max(now_ms, 0 if last_ms is None else last_ms + 1))
        assert due is not None, "checked when it was read"
        return due

    def _next(self, from_ms: int) -> int | None:
        """Returns the next time by cron inside the window; None if there is none."""
        from apscheduler.triggers.cron import CronTrigger

        trigger = CronTrigger.from_crontab(self.cron, UTC)
        for _ in range(ATTEMPTS_MAX):
            found: datetime | None = trigger.get_next_fire_time(None, _moment(from_ms))
            if found is None:
                return None
            due = max(from_ms, round(found.timestamp() * 1_000))
            from_ms = opening_ms(self.between, due)
            if from_ms == due:
                return due
        return None


def opening_ms(between: str, at_ms: int) -> int:
    """Returns the first time at or after that moment within hours such as 22:00-06:00; empty hours
    mean always."""
    match = re.fullmatch(WINDOW, between)
    if match is None:
        return at_ms
    hours, minutes, end_hours, end_minutes = map(int, match.groups())
    start, end = hours * 60 + minutes, end_hours * 60 + end_minutes
    moment = _moment(at_ms)
    minute = moment.hour * 60 + moment.minute
    if (minute - start) % MINUTES_PER_DAY < (end - start) % MINUTES_PER_DAY or start == end:
        return at_ms
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    opening = midnight + timedelta(minutes=start)
    if opening <= moment:
        opening += timedelta(days=1)
    return round(opening.timestamp() * 1_000)


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1_000, UTC)
