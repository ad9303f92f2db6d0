"""What needs no server: our codec, and compaction in its own process."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks import codec as codec_cases
from benchmarks import compaction as compaction_loads
from benchmarks.stages import Bench

CODEC_ROUNDS = 5
DIRTY = {"compaction-plain": 0, "compaction-zstd": 2}
"""Row to its place among the loads of `benchmarks.compaction`."""


def codec(bench: Bench) -> None:
    """Sealing and checking included."""
    found: dict[str, Any] = codec_cases.measure_case(codec_cases.CASES[0], CODEC_ROUNDS)
    for direction in ("encode", "decode"):
        bench.add(f"codec-{direction}", {"per_second": median(found[direction]) * 1e6})


def compaction(bench: Bench) -> None:
    """The keys occur in random order; bytes are counted as the records are uncompressed."""
    for row, place in DIRTY.items():
        load = compaction_loads.LOADS[place]
        load = replace(load, records=bench.scaled(load.records), keys=bench.scaled(load.keys))
        directory = bench.directory / row
        directory.mkdir()
        try:
            found: dict[str, Any] = compaction_loads.measure(load, directory, rounds=1)
        finally:
            shutil.rmtree(directory)
        figures = {
            "per_second": found["records_per_s"],
            "mb_per_second": found["uncompressed_bytes_per_s"] / 1e6,
            "bytes_per_key": found["map_bytes_per_key"],
        }
        if found["kept"] != found["keys"]:
            raise RuntimeError("one record of every key should have been kept")
        bench.add(row, figures)


ALONE: dict[str, Callable[[Bench], None]] = {"codec": codec, "compaction": compaction}
