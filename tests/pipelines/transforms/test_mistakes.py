"""What is wrong with transforms is told with its place in the file, before anything runs."""

from pathlib import Path

from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater

FILE = """pipeline: shop
source: {type: generator}
sink: {type: console}
transform:
  - table: public.orders
    filter: "status <> 'draft"
    add: {day: "date(created_at)", home: "getenv('HOME')", part: "substrin(status, 1)"}
    cast: {total: number}
"""


def test_expressions_and_types_are_read_by_check(headwater: Headwater, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(FILE)

    ran = headwater("check", tmp_path / "pipeline.yaml")

    assert ran.code == exit_codes.INVALID
    assert "pipeline.yaml:6:13: the text is not one value" in ran.remarks
    assert "pipeline.yaml:7:42: the expression uses a function" in ran.remarks
    assert "not permitted: getenv" in ran.remarks
    assert "did you mean substring?" in ran.remarks
    assert "pipeline.yaml:8:19: the type does not exist" in ran.remarks
