"""Machines have the same version of a file if it says the same, whatever is each machine's own."""

from pathlib import Path

import pytest

from headwater.pipelines.file.loader import load

FILE = """
pipeline: shop
source: {{type: generator, rate: {rate}}}
sink: {{type: sql, url: "${{env:TARGET}}"}}
log: {{type: kafka, bootstrap: "{bootstrap}", path: "{path}"}}
{more}
"""


def digest(directory: Path, target: str = "sqlite:///t.db", **written: object) -> str:
    file = directory / "pipeline.yaml"
    values = {"rate": 1, "bootstrap": "a:1", "path": "data", "more": ""} | written
    file.write_text(FILE.format(**values))
    return load(file, environment={"TARGET": target})[0].digest


@pytest.mark.parametrize(
    "other",
    [
        {"bootstrap": "b:1"},
        {"path": "/var/other"},
        {"more": "workers: 3"},
        {"more": "http: {listen: 127.0.0.1:8471}"},
        {"more": "# a remark"},
        {"target": "sqlite:///elsewhere.db"},
    ],
)
def test_keys_of_one_machine_make_no_other_version(tmp_path: Path, other: dict[str, str]) -> None:
    assert digest(tmp_path, **other) == digest(tmp_path)


def test_another_source_or_sink_or_log_is_another_version(tmp_path: Path) -> None:
    assert digest(tmp_path, rate=2) != digest(tmp_path)
    assert digest(tmp_path, more="limits: {slice_rows: 5}") != digest(tmp_path)
