"""Iceberg tables in a REST catalog that others built: Iceberg's own server keeps every promise."""

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pyarrow as pa
import pytest

from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import Fenced
from headwater.sinks.sink import RebuildRecipe
from scripts.free_port import free_port
from scripts.owned_process import start_owned
from tests.budget import PATIENCE_S
from tests.compat.java_programs import JAVA, directory_from
from tests.contract.sink_suite import ORDERS, SinkContract
from tests.pipelines.run_process import start
from tests.sinks.spark.orders import TABLE, applied, many
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic

pytestmark = pytest.mark.compat

START_S_MAX = 240
NAMESPACES = (f"shop_{number}" for number in count(1))


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a catalog; each test has a namespace of its own in it."""
    jars = directory_from("fetch_iceberg_rest.sh", "HEADWATER_ICEBERG_REST_JARS")
    directory = tmp_path_factory.mktemp("catalog")
    port = free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "CATALOG_REST_PORT": str(port),
        "CATALOG_URI": f"jdbc:sqlite:{directory}/catalog.db",
        "CATALOG_WAREHOUSE": f"file://{directory}/warehouse",
    }
    said = directory / "server.log"
    with said.open("wb") as output:
        process = start_owned(
            [*JAVA, "-cp", f"{jars}/*", "org.apache.iceberg.rest.RESTCatalogServer"],
            stdout=output,
            stderr=output,
            env=environment,
            cwd=directory,
        )
        address = f"http://127.0.0.1:{port}"
        try:
            wait_until_it_answers(process, address, said)
            yield address
        finally:
            process.terminate()
            process.wait()


def wait_until_it_answers(process: subprocess.Popen[bytes], address: str, said: Path) -> None:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        assert process.poll() is None, said.read_text()[-3000:]
        try:
            with urlopen(f"{address}/v1/config") as answer:
                answer.read()
        except (URLError, ConnectionError):
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"the catalog does not answer: {said.read_text()[-3000:]}")


@dataclass(slots=True)
class RestBench(LakeBench):
    """A lake whose catalog is behind HTTP, read back by pyiceberg from there."""

    def _iceberg(self, table: str) -> pa.Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        chosen = self.chosen["catalog"]
        try:
            held = load(chosen["uri"]).load_table((chosen["namespace"], table.replace(".", "_")))
        except NoSuchTableError:
            return None
        found: pa.Table = held.scan().to_arrow()
        return found


def load(address: str) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("reader", type="rest", uri=address)


def bench_at(address: str, directory: Path) -> RestBench:
    catalog = {"uri": address, "namespace": next(NAMESPACES)}
    chosen = {"format": "iceberg", "catalog": catalog}
    return RestBench(str(directory / "lake"), chosen=chosen)


class TestIcebergInARestCatalog(SinkContract):
    @pytest.fixture
    def bench(self, catalog: str, tmp_path: Path) -> RestBench:
        return bench_at(catalog, tmp_path)


async def test_a_table_is_fenced_rebuilt_maintained_and_dropped(
    catalog: str, tmp_path: Path
) -> None:
    bench, topic = bench_at(catalog, tmp_path), ScriptedTopic()
    bench.clock = SystemClock()
    topic.append(ORDERS, *many(0, 3))
    await applied(bench, topic)
    first, second = bench.sink(), bench.sink()
    for each in (first, second):
        await each.committed_offsets([topic.name])
    topic.append(ORDERS, ("u", {"id": 1, "note": "b"}), ("d", {"id": 2}))
    part = topic.slice()
    await first.apply(part)

    with pytest.raises(Fenced):
        await second.apply(part)
    after_both = await bench.rows("public.orders")
    shadow = await first.shadow(RebuildRecipe(TABLE))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: 0}))
    await first.swap(TABLE)
    topic.append(ORDERS, ("c", {"id": 9, "note": "c"}))
    await applied(bench, topic)

    assert by_id(after_both) == [(0, "a"), (1, "b")]
    assert by_id(await bench.rows("public.orders")) == [(0, "a"), (1, "b"), (9, "c")]
    assert await bench.sink().maintain() == []
    assert len(await bench.sink().versions(TABLE, newest=9)) == 4
    assert len(await bench.sink().drop()) == 1
    assert load(catalog).list_tables((bench.chosen["catalog"]["namespace"],)) == []


def by_id(rows: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return sorted((row["id"], row["note"]) for row in rows)


PIPELINE = """
pipeline: shop
source: {{type: generator, size: 1000, total: 4000, rate: 0, batch_rows: 200}}
sink:
  type: spark
  path: ./lake
  format: iceberg
  commit_every: 0s
  catalog: {{uri: "{address}", namespace: {namespace}}}
"""


def test_a_pipeline_fills_it_and_verify_finds_it_equal(catalog: str, tmp_path: Path) -> None:
    namespace = next(NAMESPACES)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(address=catalog, namespace=namespace))

    for command in (("run", file, "--once"), ("verify", "shop", "-f", file)):
        ran = start(*command)
        said, complained = ran.communicate(timeout=PATIENCE_S)
        assert ran.returncode == 0, said + complained

    names = {name for _, name in load(catalog).list_tables((namespace,))}
    assert {"shop_customers", "shop_orders"} <= names
