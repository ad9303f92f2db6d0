"""`headwater test` runs a file's examples through the real transforms, and shows what differs."""

from pathlib import Path

import pytest

from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater

FILE = """
pipeline: shop
source: {type: generator}
sink: {type: console}
transform:
  - table: public.users
    mask: {email: hash}
    drop: [ssn]
  - table: public.orders
    filter: "status <> 'draft'"
    add: {order_day: "date(created_at)", with_tax: "total * 1.19::DECIMAL(3,2)"}
    cast: {total: float64}
route:
  - {from: "/tenant_(\\\\d+)\\\\.(.*)/", to: "crm.$2", add_key: {tenant_id: "$1"}}
tests:
"""


def file_with(directory: Path, tests: str) -> Path:
    path = directory / "pipeline.yaml"
    path.write_text(FILE + tests)
    return path


@pytest.mark.slow
def test_examples_that_hold_pass(headwater: Headwater, tmp_path: Path) -> None:
    path = file_with(
        tmp_path,
        """
  - name: a draft never reaches the lake
    given: [{table: public.orders, op: c, after: {id: 1, status: draft, total: 1, created_at: x}}]
    expect: {public.orders: []}
  - name: a paid order has its day and its tax, until it is a draft again
    given:
      - table: public.orders
        after: {id: 1, status: paid, total: "10.00", created_at: "2026-01-31 10:00:00"}
        types: {total: "decimal(10,2)", created_at: timestamp(us)}
      - {table: public.orders, after: {id: 2, status: paid, created_at: "2026-01-31 10:00:00"}}
      - {table: public.orders, op: u, after: {id: 2, status: draft}}
    expect: {public.orders: [{id: 1, order_day: 2026-01-31, with_tax: 11.9, total: 10.0}]}
  - name: shards stay apart, and a truncate empties its own
    given:
      - {table: tenant_1.people, after: {id: 1, name: anna}}
      - {table: tenant_2.people, after: {id: 1, name: bert}}
      - {table: tenant_1.people, op: t}
      - {table: tenant_2.people, op: u, before: {id: 1}, after: {id: 5, name: bert}}
    expect: {crm.people: [{tenant_id: "2", id: 5, name: bert}]}
  - name: what is personal is not there
    given: [{table: public.users, after: {id: 1, email: anna@example.org, ssn: "7"}}]
    expect:
      public.users:
        - {id: 1, email: 6f4aa0ae6a4b6e6ee0f1e0b6e4f6d6d1}
""".replace("6f4aa0ae6a4b6e6ee0f1e0b6e4f6d6d1", hash_of("anna@example.org")),
    )

    ran = headwater("test", path)

    assert ran.data.splitlines() == [
        "ok    a draft never reaches the lake",
        "ok    a paid order has its day and its tax, until it is a draft again",
        "ok    shards stay apart, and a truncate empties its own",
        "ok    what is personal is not there",
    ]
    assert ran.code == exit_codes.OK and "4 tests passed" in ran.remarks


def hash_of(text: str) -> str:
    import hashlib
    import hmac

    return hmac.new(b"headwater:shop", text.encode(), hashlib.sha256).hexdigest()


@pytest.mark.slow
def test_differences_are_shown_row_by_row_and_end_in_exit_code_4(
    headwater: Headwater, tmp_path: Path
) -> None:
    path = file_with(
        tmp_path,
        """
  - name: days
    given:
      - {table: public.orders, after: {id: 1, status: a, total: 1, created_at: "2026-01-30"}}
      - {table: public.orders, after: {id: 2, status: b, total: 1, created_at: "2026-01-31"}}
      - {table: public.orders, after: {id: 3, status: b, total: 1, created_at: "soon"}}
    expect:
      public.orders:
        - {id: 1, order_day: 2026-01-30}
        - {id: 2, order_day: 2026-02-01}
""",
    )

    plain, asked = headwater("test", path), headwater("test", path, "--json")

    assert plain.data.splitlines() == [
        "FAIL  days",
        "      public.orders: - expected, + found",
        '        {"id": 1, "order_day": "2026-01-30"}',
        '      - {"id": 2, "order_day": "2026-02-01"}',
        '      + {"id": 2, "order_day": "2026-01-31"}',
        "      rejected: an expression cannot be computed: "
        "add order_day, with_tax fails: conversion error",
    ]
    assert plain.code == asked.code == exit_codes.DIFFERENT
    [test] = asked.envelope["data"]["shop"]
    assert test["passed"] is False and len(test["rejected"]) == 1
    assert test["differences"][0]["found"][1] == {"id": 2, "order_day": "2026-01-31"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("{table: public.orders, after: {id: 1, stauts: x}}", "does not have this column"),
        ("{table: public.x, after: {id: 1}, key: [nr]}", "no given row has this column"),
        ("{table: public.x, after: {id: 1}, types: {id: number}}", "the type does not exist"),
        ("{table: public.x, after: {id: x}, types: {id: int64}}", "not of its column's type"),
    ],
)
def test_a_test_that_cannot_run_says_why(
    headwater: Headwater, tmp_path: Path, given: str, problem: str
) -> None:
    tests = f"\n  - name: broken\n    given: [{given}]\n    expect: {{public.x: []}}\n"

    ran = headwater("test", file_with(tmp_path, tests))

    assert ran.code == exit_codes.DIFFERENT
    assert "FAIL  broken" in ran.data and problem in ran.data


def test_secrets_are_not_needed(headwater: Headwater, tmp_path: Path) -> None:
    tests = "\n  - name: x\n    given: [{table: x, after: {id: 1}}]\n    expect: {x: [{id: 1}]}\n"
    path = file_with(tmp_path, tests)
    head = "pipeline: {name: '${env:NO_NAME:-shop}', salt: '${env:NO_SALT}'}"
    path.write_text(path.read_text().replace("pipeline: shop", head))

    ran = headwater("test", path, "--json")

    assert ran.code == exit_codes.OK, ran.remarks
    assert list(ran.envelope["data"]) == ["shop"], "a default is a default all the same"


def test_addresses_are_not_needed(headwater: Headwater, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "pipeline: shop\n"
        "source: {type: postgres, url: '${env:NO_SOURCE}', tables: [public.*]}\n"
        "log: {type: kafka, bootstrap: ['${env:NO_BROKER}']}\n"
        "sink: {type: sql, url: '${env:NO_TARGET}'}\n"
        "tests:\n"
        "- {name: x, given: [{table: public.x, after: {id: 1}}], expect: {public.x: [{id: 1}]}}\n"
    )

    ran = headwater("test", path, "--json")

    assert ran.code == exit_codes.OK, ran.remarks


def test_a_file_without_tests_passes_and_says_so(headwater: Headwater, tmp_path: Path) -> None:
    path = file_with(tmp_path, " []\n")

    ran = headwater("test", path)

    assert ran.code == exit_codes.OK and "the file has no `tests:`" in ran.remarks
