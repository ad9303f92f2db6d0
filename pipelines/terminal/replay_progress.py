"""How far a replay has come, said now and then, with how long it will take yet."""

import time
from typing import TYPE_CHECKING

from pipelines.terminal.output import Output
from pipelines.watching.quantities import duration_text

if TYPE_CHECKING:
    from pipelines.proving.replaying import Replaying

EVERY_S = 2.0


class ReplayProgress:
    """Call it with every report."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._began_s = self._told_s = time.monotonic()

    def __call__(self, replaying: "Replaying") -> None:
        now_s = time.monotonic()
        if now_s - self._told_s < EVERY_S or replaying.offsets >= replaying.offsets_wanted:
            return
        self._told_s = now_s
        left = replaying.offsets_wanted - replaying.offsets
        left_ms = round((now_s - self._began_s) * 1_000 * left / max(replaying.offsets, 1))
        share = replaying.offsets / replaying.offsets_wanted
        self._output.note(
            f"{replaying.changes:,} changes, {share:.0%}, {duration_text(left_ms)} left"
        )
