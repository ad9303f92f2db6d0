"""A pipeline from PostgreSQL to Delta over a log of one or several brokers."""

import subprocess
import sys
import time
from pathlib import Path

import psycopg

from benchmarks.figures import Figures
from benchmarks.pipelines import ENVIRONMENT

PIPELINE = """
pipeline: shop
source: {{type: postgres, url: "{postgres}", tables: [public.{table}], slot: {{name: {table}}}}}
sink: {{type: spark, path: lake}}
log: {log}
"""


def rows_through(bootstrap: str, place: Path, postgres: str, rows: int) -> Figures:
    """Reads so many rows and applies them; raises if source, log and lake then differ. Without
    addresses the log is one broker within the run."""
    place.mkdir()
    table = place.name.replace("-", "_")
    fill(postgres, table, rows)
    log = f"{{type: kafka, bootstrap: '{bootstrap}'}}" if bootstrap else "{path: data}"
    file = place / "pipeline.yaml"
    file.write_text(PIPELINE.format(postgres=postgres, table=table, log=log))
    begun = time.monotonic()
    headwater(place, "run", file.name, "--once", "-q")
    seconds = time.monotonic() - begun
    headwater(place, "verify", "shop", "-q", "-f", file.name)
    return {"per_second": rows / seconds, "seconds": seconds}


def fill(postgres: str, table: str, rows: int) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE {table} (id bigint PRIMARY KEY, quantity int, price numeric(12,2),"
            " note text, at timestamptz)".encode()
        )
        connection.execute(
            f"INSERT INTO {table} SELECT i, i % 97, i % 10000 / 100.0, repeat('n', 120), now()"
            f" FROM generate_series(1, {rows}) i".encode()
        )


def headwater(place: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "headwater.pipelines.cli", *arguments]
    done = subprocess.run(command, cwd=place, env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-2000:])
