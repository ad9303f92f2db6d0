"""Stored names never move: these spellings are in targets that exist."""

from hashlib import sha256

import pytest

from headwater.core_log.model.table_schema import TableId
from headwater.sinks.object_names import (
    fit,
    hive_name,
    hive_partition_directory,
    hive_table_directory,
    lake_name,
    lake_table_directory,
)


@pytest.mark.parametrize("name", ["orders", "Orders-2.old_x", "a" * 120])
def test_a_plain_name_is_the_same_in_every_target(name: str) -> None:
    assert hive_name(name) == lake_name(name) == name


@pytest.mark.parametrize(
    ("name", "hive", "lake"),
    [
        ("order items", "order%20items", "order_items-d9206391"),
        ("_tmp", "%5Ftmp", "tmp-ca86e3ce"),
        ("..", "%2E.", "-5ec1f7e7"),
        ("ordér", "ord%C3%A9r", "ord_r-91b14d91"),
        ("a/b", "a%2Fb", "a_b-c14cddc0"),
        ("x" * 130, "x" * 103 + "~3afbb132863c57f0", "x" * 120 + "-3afbb132"),
        ("é" * 30, "%C3%A9" * 17 + "~f96161c7582c75df", "-f96161c7"),
    ],
)
def test_another_name_keeps_its_spelling_in_each_target(name: str, hive: str, lake: str) -> None:
    assert (hive_name(name), lake_name(name)) == (hive, lake)


def test_a_table_keeps_its_directory_in_each_target() -> None:
    table = TableId("sales", "a.b")

    assert hive_table_directory(table) == "sales.a%2Eb"
    assert lake_table_directory(table, "{schema}.{table}") == "sales.a.b"
    assert lake_table_directory(TableId("", "a"), "x/{schema}.{table}") == "x/a"
    assert hive_partition_directory("day", "a b") == "day=a%20b"
    assert hive_partition_directory("day", None) == "day=__HIVE_DEFAULT_PARTITION__"


def test_a_long_name_keeps_its_spelling_in_a_database() -> None:
    assert fit("orders", bytes_max=20, suffix="__new") == "orders__new"
    assert fit("x" * 30, bytes_max=20) == "xxxxxxxxxxx_" + sha256(b"x" * 30).hexdigest()[:8]
    assert fit("x" * 30, bytes_max=20, suffix="__new").startswith("xxxxxx_")
