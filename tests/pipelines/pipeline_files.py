"""Pipeline files of made-up parts, and what comes of loading them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from headwater.config.mistakes import MistakesFound
from headwater.pipelines.file.loader import LoadedPipeline, load

SMALLEST = """\
pipeline: shop
source:
  type: made-up
  url: postgresql://h/shop
sink:
  type: made-up
  path: ./lake
"""
PLACEHOLDERS = """
    pipeline: shop
    source: {{type: postgres, url: 'host=h', tables: a.b, toast: placeholder}}
    log: {log}
    sink: {{type: console}}
    """
CANARY = "canary%4@\"/' 0"

FURTHER_KEYS = """\
log:
  path: ./data
  history: 2d
  cleanup: compact,delete
  retention: {time: 30d, size: unlimited}
  schemas: true
transform:
  - table: public.users
    mask: {email: hash, note: null, phone: truncate(4)}
    drop: ssn
  - table: [public.orders, "!public.orders_old"]
    filter: "status <> 'draft'"
    add: {order_day: "date(created_at)"}
    python: shop.transforms:clean_orders
route:
  - {from: "/tenant_(\\\\d+)\\\\.(.*)/", to: "crm.$2", add_key: {tenant_id: "$1"}}
errors:
  retry: {for: 10m, backoff: 1s..1m}
  dead_letter: {stop_after: {failures: 20, of_last: 100}}
  isolate: pipeline
verify: {every: 24h}
workers: 0
tests:
  - name: a draft never reaches the lake
    given: [{table: public.orders, op: c, after: {id: 1, status: draft}}]
    expect: {public.orders: []}
"""

Write = Callable[..., Path]
"""Text, and the name of its file, into the directory of a test."""


def one(path: Path, environment: Mapping[str, str] | None = None) -> LoadedPipeline:
    (pipeline,) = load(path, environment=environment or {})
    return pipeline


def mistakes(path: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """Without the directory and the line, hints after a dash."""
    with pytest.raises(MistakesFound) as found:
        load(path, environment=environment or {})
    return [
        f"{each.where}: {each.problem}".removeprefix(f"{path.parent}/")
        + (f" - {each.hint}" if each.hint else "")
        for each in found.value.mistakes
    ]
