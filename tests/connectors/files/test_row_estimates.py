"""How many rows files have is judged by where they begin, before any of them is read."""

from pathlib import Path

import pytest

from headwater.connectors.files.settings import FilesSettings
from headwater.connectors.files.source import FilesSource
from headwater.core_log.model.table_schema import TableId
from tests.connectors.files.test_contract import KINDS, ROWS
from tests.contract.source_suite import context

PACKED_OFF = 4
"""How far off the guess may be where nobody knows how well a file is compressed."""


@pytest.mark.parametrize("ending", KINDS)
async def test_rows_are_judged_by_the_first_file_of_a_table(tmp_path: Path, ending: str) -> None:
    write, _ = KINDS[ending]
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}{ending}").write_bytes(write(ROWS))
    (tmp_path / "notes.doc").write_bytes(b"nothing that is read")
    settings = FilesSettings(path=str(tmp_path), table="rows")

    found = await FilesSource(settings, context()).row_estimates()

    off = PACKED_OFF if ending.endswith((".gz", ".zst")) else 1.05
    assert found.keys() == {TableId("", "rows")}
    assert 3 * len(ROWS) / off <= found[TableId("", "rows")] <= 3 * len(ROWS) * off


async def test_a_broken_file_has_no_row_estimate(tmp_path: Path) -> None:
    (tmp_path / "whole.csv").write_text("id\n1\n2\n3\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no end")
    (tmp_path / "empty.csv").touch()
    settings = FilesSettings(path=str(tmp_path), table="{stem}")

    found = await FilesSource(settings, context()).row_estimates()

    assert {table.name: rows for table, rows in found.items()} == {
        "whole": 4, "broken": 0, "empty": 0,
    }  # fmt: skip
