"""Whatever stands in a pipeline file, reading it ends in a pipeline or in words about the file."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.config.mistakes import MistakesFound
from headwater.config.model_keys import annotation_of, fields_of, nested_models
from headwater.connectors import SOURCES
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.loader import load
from headwater.pipelines.file.spec import PipelineSpec, SinkTask, SourceTask
from headwater.sinks import SINKS
from tests.pipelines import fake_components

WORDS = [
    "/(/", "/a|b/", "!", "*", "${env:X}", "${env:NONE}", "${file:x}", "${", "5ms", "9e9", "1..2",
    "1s..1m", "auto", "made-up", "kafka", "embedded", "{table}", "a.b:c", "truncate(4)", "$1", "$9",
    "compact", "flat-avro", "forever", "unlimited", "/" + "(" * 400 + "/", "9" * 400 + "d", "\0",
]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(max_size=8)
)


def keys() -> list[str]:
    """Every key there is, wherever it belongs: in a wrong place it should do no harm either."""
    waiting: list[Any] = [PipelineSpec, SourceTask, SinkTask]
    waiting += [fake_components.MadeUpSourceSettings, fake_components.MadeUpSinkSettings]
    found = {"source", "sink", "slot.name", "table.include.list", "snapshot.mode"}
    seen: set[Any] = set()
    while waiting:
        if (model := waiting.pop()) not in seen:
            seen.add(model)
            found |= set(fields_of(model))
            for field in fields_of(model).values():
                waiting += nested_models(annotation_of(field))
    return sorted(found)


KEYS = st.sampled_from(keys())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
BEGINNING = {
    "pipeline": "shop",
    "source": {"type": "made-up", "url": "x"},
    "sink": {"type": "made-up", "path": "x"},
}


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "made-up", fake_components.SOURCE)
    monkeypatch.setitem(SINKS, "made-up", fake_components.SINK)


@pytest.mark.slow
@pytest.mark.property
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(further=st.dictionaries(KEYS, VALUES, max_size=4), source=VALUES, sink=VALUES)
def test_any_values_under_any_keys_are_taken_or_told(
    tmp_path: Path, further: dict[str, Any], source: Any, sink: Any
) -> None:
    content: dict[str, Any] = BEGINNING | further
    if isinstance(source, dict):
        content["source"] = BEGINNING["source"] | source  # type: ignore[operator]
    if isinstance(sink, dict):
        content["sink"] = [BEGINNING["sink"] | sink, BEGINNING["sink"]]  # type: ignore[operator]
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump(content))

    try:
        pipelines = load(path, environment={"X": "canary-value"})
    except MistakesFound as found:
        assert found.mistakes
        assert "canary" not in str(found)
    except ConfigError as error:
        raise AssertionError(f"it has no place: {error}") from error
    else:
        assert len(pipelines) == 1
