"""The table: what is to be reached, row by row, and whether it was."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.figures import Collected, spread

OURS, KAFKA, FORMER, LIMIT = "headwater", "kafka", "former", "machine"
Judge = Callable[[Collected, str], list[str] | None]
"""The shortfalls in words, none when reached; None when it was not measured."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    what: str
    goal: str
    figures: tuple[tuple[str, str], ...]
    """Name of the figure, and its unit."""
    judge: Judge
    limit: str = ""
    """The row of the machine's own limit to be shown beside it."""

    def cells(self, collected: Collected) -> list[str]:
        missed = self.judge(collected, self.name)
        verdict = "not measured" if missed is None else "; ".join(missed) or "reached"
        limit = self._shown(collected, LIMIT, self.limit) if self.limit else ""
        costs = [
            " / ".join(spread_middle(collected, self.name, who, figure) for who in (OURS, KAFKA))
            for figure in ("server_cpu_s", "server_pss_mb")
        ]
        ours = self._shown(collected, OURS, self.name)
        theirs = self._shown(collected, KAFKA, self.name)
        return [self.what, self.goal, ours, theirs, limit, *costs, verdict]

    def _shown(self, collected: Collected, who: str, row: str) -> str:
        values = [(collected.values(row, who, name), unit) for name, unit in self.figures]
        found = [f"{spread(each)} {unit}" for each, unit in values if each]
        return "<br>".join(found) or "-"


def spread_middle(collected: Collected, row: str, who: str, figure: str) -> str:
    value = collected.middle(row, who, figure)
    return "-" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def at_least(figure: str, limit: float) -> Judge:
    def judge(collected: Collected, row: str) -> list[str] | None:
        ours = collected.middle(row, OURS, figure)
        if ours is None:
            return None
        return [] if ours >= limit else [f"missed: {ours / limit:.0%} of {limit:,.0f}"]

    return judge


def at_most(figure: str, limit: float) -> Judge:
    def judge(collected: Collected, row: str) -> list[str] | None:
        ours = collected.middle(row, OURS, figure)
        if ours is None:
            return None
        return [] if ours <= limit else [f"missed: {figure} {ours:.2f} over {limit:g}"]

    return judge


def not_behind_kafka(figure: str, *, less_is_better: bool = False) -> Judge:
    """Nothing to fall behind where Kafka was not measured."""

    def judge(collected: Collected, row: str) -> list[str] | None:
        ours, theirs = (collected.middle(row, who, figure) for who in (OURS, KAFKA))
        if ours is None:
            return None
        if theirs is None or (ours < theirs if less_is_better else ours >= theirs):
            return []
        return [f"missed: {figure} is {ours / theirs:.2f} times Kafka's"]

    return judge


def share_of_limit(figure: str, limit_row: str, share: float) -> Judge:
    def judge(collected: Collected, row: str) -> list[str] | None:
        ours = collected.middle(row, OURS, figure)
        limit = collected.middle(limit_row, LIMIT, figure)
        if ours is None or limit is None:
            return None
        return [] if ours >= share * limit else [f"missed: {ours / limit:.0%} of the limit"]

    return judge


def times_limit(figure: str, limit_row: str, times: float) -> Judge:
    def judge(collected: Collected, row: str) -> list[str] | None:
        ours = collected.middle(row, OURS, figure)
        limit = collected.middle(limit_row, LIMIT, figure)
        if ours is None or limit is None:
            return None
        return [] if ours <= times * limit else [f"missed: {ours / limit:.1f} times the limit"]

    return judge


def every(*judges: Judge) -> Judge:
    def judge(collected: Collected, row: str) -> list[str] | None:
        found = [each(collected, row) for each in judges]
        if any(each is None for each in found):
            return None
        return [problem for each in found if each for problem in each]

    return judge


PER_SECOND, MB = ("per_second", "records/s"), ("mb_per_second", "MB/s")
PERCENTILES = (("p50_ms", "ms p50"), ("p99_ms", "ms p99"))


def produce_rows() -> list[Row]:
    rows = []
    for size in (100, 1000):
        for codec in ("none", "lz4", "zstd"):
            wanted = [not_behind_kafka("per_second")]
            goal = "Kafka's rate, less server CPU"
            if (size, codec) == (100, "none"):
                wanted.append(at_least("per_second", 1_200_000))
                goal = f"1.2 M/s, {goal}"
            wanted.append(not_behind_kafka("server_cpu_s", less_is_better=True))
            what = f"produce {size} B, {codec}, acks=1, librdkafka"
            rows.append(Row(f"produce-{size}-{codec}", what, goal, (PER_SECOND,), every(*wanted)))
    return rows


def consume_rows() -> list[Row]:
    return [
        Row(
            f"consume-{size}-{codec}",
            f"consume {size} B, {codec}, from page cache, librdkafka",
            "Kafka's rate",
            (PER_SECOND,),
            not_behind_kafka("per_second"),
        )
        for size in (100, 1000)
        for codec in ("none", "lz4", "zstd")
    ]


def latency_row(name: str, what: str, p50_ms: float, p99_ms: float) -> Row:
    return Row(
        name,
        what,
        f"p50 {p50_ms:g} ms, p99 {p99_ms:g} ms, below Kafka's",
        PERCENTILES,
        every(
            at_most("p50_ms", p50_ms),
            at_most("p99_ms", p99_ms),
            not_behind_kafka("p50_ms", less_is_better=True),
            not_behind_kafka("p99_ms", less_is_better=True),
        ),
    )


ROWS: tuple[Row, ...] = (
    *produce_rows(),
    Row(
        "synced",
        "produce acks=all, 64 KiB batches, 64 connections, one in flight each, on disk before the "
        "answer (Kafka: flush.messages=1)",
        "100 MB/s, p99 at most 2x the disk's own, ahead of Kafka",
        (MB, *PERCENTILES),
        every(
            at_least("mb_per_second", 100),
            times_limit("p99_ms", "synced", 2),
            not_behind_kafka("mb_per_second"),
        ),
        limit="synced",
    ),
    Row(
        "raw-1m",
        "1 MB batches into a growing file, one connection, acks=1",
        "80 % of os.write",
        (MB,),
        share_of_limit("mb_per_second", "raw-1m", 0.8),
        limit="raw-1m",
    ),
    Row(
        "raw-64k",
        "64 KB batches into a growing file, one connection, acks=1",
        "80 % of os.write",
        (MB,),
        share_of_limit("mb_per_second", "raw-64k", 0.8),
        limit="raw-64k",
    ),
    Row(
        "fetch-1",
        "fetch 1 MB at a time from page cache, one connection",
        "80 % of os.sendfile",
        (MB,),
        share_of_limit("mb_per_second", "fetch-1", 0.8),
        limit="fetch-1",
    ),
    Row(
        "fetch-8",
        "the same, eight connections",
        "80 % of os.sendfile",
        (MB,),
        share_of_limit("mb_per_second", "fetch-8", 0.8),
        limit="fetch-8",
    ),
    *consume_rows(),
    latency_row("latency-acknowledged", "send to acknowledged, 500/s, acks=1", 0.3, 1),
    latency_row(
        "latency-consumed-synced",
        "produce to consumed, 1,000/s, on disk before readable (Kafka: flush.messages=1)",
        1.5,
        5,
    ),
    latency_row(
        "latency-consumed",
        "the same, beside Kafka as it comes, which does not wait for the disk",
        1.5,
        5,
    ),
    Row(
        "start-clean",
        "start to first request answered, 10 topics, 1 GB, after a clean stop",
        "0.5 s",
        (("seconds", "s"),),
        at_most("seconds", 0.5),
    ),
    Row(
        "start-killed",
        "the same after kill -9 under load",
        "1 s",
        (("seconds", "s"),),
        at_most("seconds", 1),
    ),
    Row(
        "memory-idle",
        "memory at rest, 10 topics",
        "90 MB",
        (("server_pss_mb", "MB PSS"),),
        at_most("server_pss_mb", 90),
    ),
    Row(
        "produce-100-none",
        "memory under the produce load (largest, 100 B, none)",
        "160 MB",
        (("server_pss_mb", "MB PSS"),),
        at_most("server_pss_mb", 160),
    ),
    Row(
        "produce-1000-none",
        "memory under the produce load (largest, 1 KB, none)",
        "160 MB",
        (("server_pss_mb", "MB PSS"),),
        at_most("server_pss_mb", 160),
    ),
    Row(
        "compaction-plain",
        "compaction, 8 M records of 126 B, 1 M keys",
        "3 M records/s",
        (PER_SECOND, MB),
        at_least("per_second", 3_000_000),
    ),
    Row(
        "compaction-zstd",
        "compaction, zstd, envelopes of 700 B",
        "150 MB/s",
        (PER_SECOND, MB),
        at_least("mb_per_second", 150),
    ),
    Row(
        "codec-encode",
        "our codec, 100 B values, encode",
        "8 M records/s",
        (PER_SECOND,),
        at_least("per_second", 8_000_000),
    ),
    Row(
        "codec-decode",
        "our codec, 100 B values, decode",
        "5 M records/s",
        (PER_SECOND,),
        at_least("per_second", 5_000_000),
    ),
)

SCALE = (
    *(("partitions", count) for count in (0, 500, 1000, 2000)),
    *(("connections", count) for count in (250, 500)),
)
"""Reported, not judged: rows `<what>-<count>`."""
