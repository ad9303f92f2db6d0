"""What goes with a function to Spark's workers."""

import importlib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from headwater.sinks.spark.columns import keep_archives


def test_archives_on_the_path_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("packed_module.py", "")
    monkeypatch.syspath_prepend(archive)
    assert find_spec("packed_module") is not None

    keep_archives()
    with zipfile.ZipFile(archive, "a") as content:
        content.writestr("packed_later.py", "")
    importlib.invalidate_caches()  # as a worker does before each task

    assert find_spec("packed_later") is None
