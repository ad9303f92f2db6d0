"""A source may follow columns in place only if no rule of the pipeline file needs the rows."""

from pathlib import Path

import pytest

from headwater.core_log.model.table_schema import TableId
from headwater.pipelines.file.loader import load
from headwater.pipelines.loops.assembly import follows_columns

FILE = """
pipeline: shop
source: {type: postgres, url: "host=h", tables: "*.*"}
sink: {type: console}
transform:
  - {table: public.users, mask: {email: hash}, drop: ssn}
  - {table: public.orders, python: "shop.transforms:clean_orders"}
  - {table: public.items, filter: "n > 0", add: {m: "n + 1"}}
route:
  - {from: "/tenant_([0-9]+)[.](.*)/", to: "crm.$2", add_key: {tenant_id: "$1"}}
  - {from: "public.*", to: "copy.$1"}
"""


@pytest.mark.parametrize(
    ("table", "name", "follows"),
    [
        ("public.users", "post", True),
        ("public.users", "email", False),
        ("public.users", "ssn", False),
        ("public.orders", "post", False),
        ("public.items", "post", True),
        ("tenant_1.items", "post", False),
        ("other.items", "email", True),
    ],
)
def test_columns_are_followed_unless_a_rule_needs_the_rows(
    tmp_path: Path, table: str, name: str, follows: bool
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE)
    [loaded] = load(file, environment={})

    found = follows_columns(loaded, TableId(*table.split(".")), [name])

    assert found == follows
