"""The source and the sink of the two pages on writing them are what the pages say."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.config.registry import load_type
from headwater.connectors import SOURCES
from headwater.connectors.source import Source
from headwater.core_log.foundation.errors import Fenced, SinkUnavailable
from headwater.sinks import SINKS
from headwater.sinks.sink import AppliedOffset, SinkContext
from tests.contract.source_suite import SourceSuite, context
from tests.fakes import SimulatedClock
from tests.slices import ScriptedTopic, failing, schema_of

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX = 90
NAMES = {"source": ("clock_source", "clock"), "sink": ("counts_sink", "counts")}
PIPELINE = """\
pipeline: wall
source: {type: clock, since: "1970-01-01T00:00:00Z", every: 52w}
sink: {type: counts}
"""
ORDERS = schema_of("public.orders", id=pa.int64())


def block_of(kind: str, language: str) -> str:
    page = (ROOT / f"docs/writing-a-{kind}.md").read_text()
    found = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)
    assert found is not None, f"the page shows {language}"
    return found[1]


def install(directory: Path) -> None:
    """Both pages' code as packages, with the entry points that the pages give."""
    for kind, (module, _) in NAMES.items():
        (directory / f"{module}.py").write_text(block_of(kind, "python"))
        distribution = directory / f"{module}-1.0.dist-info"
        distribution.mkdir()
        (distribution / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n"
        )
        offered = re.search(
            r'entry-points\."([\w.]+)"\]\n(\w+) = "([\w:]+)"', block_of(kind, "toml")
        )
        assert offered is not None, "the page shows the entry point"
        group, name, target = offered.groups()
        (distribution / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], type[Any]]:
    installed = tmp_path / "installed"
    installed.mkdir()
    install(installed)
    monkeypatch.syspath_prepend(str(installed))
    for module, _ in NAMES.values():
        monkeypatch.delitem(sys.modules, module, raising=False)
    tables = {"source": SOURCES, "sink": SINKS}
    return lambda kind: load_type(NAMES[kind][1], tables[kind], group=f"headwater.{kind}s")


class ClockGround:
    """A clock that stands at its tenth tick."""

    change_count, is_exact = 10, True

    def __init__(self, source: type[Any]) -> None:
        self._source = source

    def open(self) -> Source:
        settings = self._source.Settings.model_validate(
            {"since": "1970-01-01T00:00:00Z", "every": "100s"}
        )
        source: Source = self._source(settings, context(SimulatedClock(1_000_500)))
        return source

    def outside(self) -> object:
        return None

    def held(self) -> object:
        return None


class TestTheClock(SourceSuite):
    @pytest.fixture
    def ground(self, load: Callable[[str], type[Any]]) -> ClockGround:
        return ClockGround(load("source"))


async def test_the_sink_counts_every_change_once(
    load: Callable[[str], type[Any]], tmp_path: Path
) -> None:
    make, topic = load("sink"), ScriptedTopic()
    given = SinkContext("shop", tmp_path, {}, SimulatedClock())
    topic.append(ORDERS, ("c", {"id": 1}), ("c", {"id": 2}), ("d", {"id": 1}))
    sink, other = make(make.Settings(), given), make(make.Settings(), given)
    part = topic.slice()

    with pytest.raises(SinkUnavailable):
        await sink.apply(failing(part, SinkUnavailable("the power went")))
    await sink.apply(part)
    with pytest.raises(Fenced):
        await other.apply(part)
    topic.append(ORDERS, ("c", {"id": 3}))
    await other.apply(topic.slice())

    counted = json.loads((tmp_path / "counts.json").read_text())["counts"]
    assert counted == {"public.orders insert": 3, "public.orders delete": 1}
    [applied] = (await sink.committed_offsets([topic.name])).values()
    assert applied == AppliedOffset(topic.topic_id, 6)
    assert await sink.drop() and not await sink.drop()


@pytest.mark.slow
def test_a_pipeline_finds_both_by_their_entry_points(
    load: Callable[[str], type[Any]], tmp_path: Path
) -> None:
    assert load("source") and load("sink"), "both pages are installed"
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)

    done = subprocess.run(
        [sys.executable, "-m", "headwater.pipelines.cli", "run", "--once"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path / 'installed'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    counted = json.loads((tmp_path / "counts.json").read_text())["counts"]
    assert counted["ticks insert"] >= 56, "years since 1970"


@pytest.mark.parametrize("kind", NAMES)
def test_the_code_on_the_page_is_short(kind: str) -> None:
    assert block_of(kind, "python").count("\n") <= LINES_MAX
