"""Files have the very values of the log, or the row is refused with its reason."""

from pathlib import Path

import pytest

from tests.sinks.exact_values import differing, kept_by, rows
from tests.sinks.files.targets import FilesBench
from tests.slices import ScriptedTopic

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
async def test_a_value_of_any_type_is_exact_in_files_or_refused(
    tmp_path: Path, format: str
) -> None:
    sink = FilesBench(str(tmp_path), chosen={"format": format}).sink()
    topic, given = ScriptedTopic("shop.public.exact"), rows()

    kept = await kept_by(sink, topic, given)

    assert kept == {row["id"] for row in given}
    assert not await differing(sink, topic, kept), "verify calls it equal"
    await sink.close()
