"""Whole pipeline files on pages are taken as they stand."""

import re
from pathlib import Path

import pytest

from headwater.pipelines.file.loader import load

PROJECT = Path(__file__).resolve().parents[2]
WHOLE = re.compile(r"```yaml\n(pipeline:.*?)```", re.DOTALL)
ENVIRONMENT = {"SHOP_URL": "postgresql://shop/shop"}
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
FILES = [
    pytest.param(text, id=f"{page.relative_to(PROJECT)}-{number}")
    for page in PAGES
    if not page.name.startswith("writing-")  # whose parts are made there
    for number, text in enumerate(WHOLE.findall(page.read_text()))
    if "\nsource:" in text
]


@pytest.mark.parametrize("text", FILES)
def test_a_pipeline_on_a_page_is_a_whole_one(text: str, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(text)

    assert load(tmp_path / "pipeline.yaml", environment=ENVIRONMENT)
