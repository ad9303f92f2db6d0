"""The examples of docs/transforms.md are what they say."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.pipelines.file.spec import TransformRule
from headwater.pipelines.terminal import exit_codes
from headwater.pipelines.transforms.after_log import RowTransforms
from tests.architecture.sources import ROOT
from tests.pipelines.conftest import Headwater
from tests.pipelines.transforms.table_changes import INSERT, changes_of, only, schema_of

PAGE = (ROOT / "docs" / "transforms.md").read_text()
HEAD = "pipeline: shop\nsource: {type: generator}\nsink: {type: console}\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_every_pipeline_of_the_page_passes_its_tests(headwater: Headwater, tmp_path: Path) -> None:
    for number, block in enumerate(blocks("yaml")):
        path = tmp_path / f"page{number}.yaml"
        path.write_text(HEAD + block)

        ran = headwater("test", path)

        assert ran.code == exit_codes.OK, ran.data + ran.remarks
    assert len(blocks("yaml")) == 2


def test_the_function_of_the_page_does_what_it_shows(tmp_path: Path) -> None:
    [program] = blocks("python")
    (tmp_path / "shown_on_the_page.py").write_text(program)
    rule = TransformRule(table=("public.orders",), python="shown_on_the_page:clean_orders")
    schema = schema_of({"id": pa.int64(), "status": pa.string()})

    found = only(
        RowTransforms([rule], [], directory=tmp_path).apply(
            changes_of(schema, (INSERT, {"id": 1, "status": "paid"}))
        )
    )

    assert found.rows.to_pylist() == [{"id": 1, "status": "paid", "loud": "PAID"}]
