"""How far a replay has come, said now and then, with how long it will take yet."""

import time
from typing import TYPE_CHECKING

from headwater.pipelines.terminal.output import Output
from headwater.pipelines.watching.quantities import duration_text

if TYPE_CHECKING:
    from headwater.pipelines.reports import Report
    from headwater.pipelines.time_travel.history.cut_points import Ends
    from headwater.pipelines.time_travel.rebuild.replay import Replay

EVERY_S = 2.0


class ReplayProgress:
    """Call it with every report."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._began_s = self._told_s = time.monotonic()

    def __call__(self, replaying: "Replay") -> None:
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


class RebuildProgress:
    """The same from what a delivery reports, up to where the log ended when it began."""

    def __init__(self, output: Output, ends: "Ends") -> None:
        self._progress = ReplayProgress(output)
        self._ends = {f"{topic}-{number}": end for (topic, number), end in ends.items()}
        self._reached = dict.fromkeys(self._ends, 0)
        self._changes = 0

    def __call__(self, report: "Report") -> None:
        from headwater.pipelines.reports import OffsetsApplied, RowsMoved
        from headwater.pipelines.time_travel.rebuild.replay import Replay

        if isinstance(report, RowsMoved):
            self._changes += report.rows
        elif isinstance(report, OffsetsApplied):
            for part, at in report.positions.items():
                if part in self._ends:
                    self._reached[part] = min(int(at), self._ends[part])
            wanted = sum(self._ends.values())
            self._progress(Replay(self._changes, sum(self._reached.values()), wanted))
