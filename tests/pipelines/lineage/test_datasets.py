"""Datasets have the names that OpenLineage's naming specification gives them, without secrets."""

from pathlib import Path

import pytest

from headwater.core_log.model.table_schema import TableId
from headwater.pipelines.lineage.datasets import sink_dataset, source_dataset
from tests.pipelines.pipeline_files import one

ORDERS = TableId("public", "orders")
TOPIC = "shop.public.orders"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "type: postgres, url: 'postgresql://app:secret@db.example/shop', tables: '*'",
            ("postgres://db.example:5432", "shop.public.orders"),
        ),
        (
            "type: postgres, url: 'host=db port=6432 dbname=shop password=secret', tables: '*'",
            ("postgres://db:6432", "shop.public.orders"),
        ),
        (
            "type: postgres, url: 'postgresql://app:the#sec?ret@db/shop', tables: '*'",
            ("postgres://db:5432", "shop.public.orders"),
        ),
        (
            "type: postgres, url: 'postgresql:///shop?host=db,b&port=6432&password=secret', "
            "tables: '*'",
            ("postgres://db:6432", "shop.public.orders"),
        ),
        (
            "type: postgres, url: \"host=db password='a secret host=x' dbname=shop\", tables: '*'",
            ("postgres://db:5432", "shop.public.orders"),
        ),
        (
            "type: mysql, url: 'mysql://app:the,secret@db', tables: '*'",
            ("mysql://db:3306", "public.orders"),
        ),
        (
            "type: mysql, url: 'mysql://app:the#secret@db', tables: '*'",
            ("mysql://localhost:3306", "public.orders"),
        ),
        (
            "type: mysql, url: 'mysql://app:secret@db:3307,db2', tables: '*'",
            ("mysql://db:3307", "public.orders"),
        ),
        (
            "type: sql, url: 'mariadb://app:secret@db/shop', tables: '*'",
            ("mysql://db:3306", "public.orders"),
        ),
        (
            "type: kafka, bootstrap: 'kafka-1:9092', topics: orders",
            ("kafka://kafka-1:9092", "orders"),
        ),
        ("type: files, path: 's3://lake/in/*.csv'", ("s3://lake", "in/*.csv")),
        ("type: generator", ("headwater://shop", TOPIC)),
    ],
)
def test_a_table_of_a_source(tmp_path: Path, source: str, expected: tuple[str, str]) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(f"pipeline: shop\nsource: {{{source}}}\n")

    found = source_dataset(one(path), ORDERS, TOPIC)

    assert found == expected
    assert not any(word in "".join(found) for word in ("sec", "the", "app"))


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        (
            "type: sql, url: 'postgresql://app:secret@dw/reports', namespace: '{schema}'",
            ("postgres://dw:5432", "reports.public.orders"),
        ),
        (
            "type: sql, url: 'postgresql://app:secret@dw/reports', table: '{schema}_{table}'",
            ("postgres://dw:5432", "reports.public.public_orders"),
        ),
        ("type: sql, url: 'sqlite:///target.db'", ("sqlite:{tmp}/target.db", "orders")),
        ("type: spark, path: ./lake", ("file", "{tmp}/lake/public.orders")),
        ("type: spark, path: 's3://lake/shop/'", ("s3://lake", "shop/public.orders")),
        ("type: files, path: ./out", ("file", "{tmp}/out/public.orders")),
        (
            "type: kafka, bootstrap: 'kafka-1:9092'",
            ("kafka://kafka-1:9092", "shop.public.orders"),
        ),
        ("type: console", ("headwater://shop", "console.public.orders")),
    ],
)
def test_a_table_of_a_sink(tmp_path: Path, sink: str, expected: tuple[str, str]) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(f"pipeline: shop\nsource: {{type: generator}}\nsink: {{{sink}}}\n")
    loaded = one(path)

    found = sink_dataset(loaded, loaded.sinks[0], ORDERS)

    assert found == tuple(each.replace("{tmp}", str(tmp_path)) for each in expected)
    assert "secret" not in "".join(found)
