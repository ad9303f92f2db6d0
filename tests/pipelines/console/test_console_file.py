"""The console hides what the pipeline file says, whatever else the file refers to."""

from pathlib import Path

import pytest

from headwater.config.mistakes import MistakesFound
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.console.hidden_columns import hidden_in
from tests.pipelines.pipeline_in_memory import schema_of

FILE = """\
pipeline: {name: shop}
source: {type: postgres, url: "${env:NOT_SET_ANYWHERE}"}
sink: {type: console}
console: {hide: [public.orders.value]}
"""


def test_the_columns_of_the_file_are_hidden(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(FILE)
    (tmp_path / "other.yaml").write_text(FILE.replace("shop", "other").replace("value", "id"))

    hidden = hidden_in(tmp_path)

    assert hidden.view("shop", schema_of("orders")).names == ("id",)
    assert hidden.view("other", schema_of("orders")).names == ("value",)
    assert hidden.view("shop", schema_of("items")).names == ("id", "value")
    assert hidden_in(None).view("shop", schema_of("orders")).names == ("id", "value")


@pytest.mark.parametrize(
    ("name", "said"),
    [("value", r"schema\.table\.column"), ("'public.*.value'", "without a pattern")],
)
def test_a_name_that_is_no_column_is_a_mistake(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "shop.yaml").write_text(FILE.replace("public.orders.value", name))

    with pytest.raises(MistakesFound, match=said):
        hidden_in(tmp_path / "shop.yaml")


def test_a_file_that_hides_columns_names_its_pipeline(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(FILE.replace("shop", '"${env:NOT_SET_ANYWHERE}"'))

    with pytest.raises(ConfigError, match="whose columns"):
        hidden_in(tmp_path / "shop.yaml")
