"""Every pipeline of examples/ runs as its README says."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.connectors.generator.history import truth
from headwater.connectors.generator.settings import GeneratorSettings
from scripts.embedded_mysql import embedded_mysql

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/pipeline.yaml"))
SAYS = {
    "shop-to-sqlite": [
        "{customers} rows",
        "{products} rows",
        "{orders} rows",
        "{order_lines} rows",
    ],
    "files-to-parquet": ["1 12.5 2026-01-30", "after one more line:", "4 41.0 2026-02-01"],
    "postgres-to-sqlite": [
        "customers: 500 rows, equal",
        "orders: 19,801 rows, equal",
        "removed replication slot",
    ],
    "mysql-to-lake": ["customers: 500 rows, equal", "orders: 19,801 rows, equal"],
    "shop-to-kafka": ["outside.orders", "{orders} rows came back", "{order_lines} rows came back"],
}
TOTALS = {"shop-to-sqlite": 10_000, "shop-to-kafka": 6_000}


@pytest.fixture
def mysql_with_log() -> Iterator[str]:
    with embedded_mysql("mysql-9") as server:
        yield server.address_of("")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_pipeline_does_what_its_page_says(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = tmp_path / name
    shutil.copytree(EXAMPLES / name, directory, ignore=shutil.ignore_patterns("data", "lake"))
    counts: dict[str, str] = {}
    if name in TOTALS:
        tables = truth(GeneratorSettings(size=1_000, total=TOTALS[name], rate=0))
        counts = {table.name: f"{table.name}: {rows.num_rows:,}" for table, rows in tables.items()}

    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if name.startswith("postgres"):
        environment["SHOP_PG_URL"] = request.getfixturevalue("postgres")
    if name.startswith("mysql"):
        environment["SHOP_MYSQL_URL"] = request.getfixturevalue("mysql_with_log")

    done = subprocess.run(
        ["bash", directory / "run.sh"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    missing = [each for each in SAYS[name] if each.format(**counts) not in done.stdout]
    assert not missing, done.stdout


def test_every_example_has_a_page_and_is_told_what_to_say() -> None:
    assert set(SAYS) == set(NAMES)
    assert all((EXAMPLES / name / "README.md").is_file() for name in NAMES)
