"""The shop of `make demo` through three brokers, of which each is killed once: nothing is lost."""

import shlex
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from scripts.demo import shop_in
from scripts.demo_brokers import NODES, DemoBrokers
from scripts.embedded_postgres import PostgresMissing
from scripts.numbered_writer import NumberedWriter, writing
from scripts.shop_database import Customers, ShopDatabase, buying
from scripts.shop_pipeline import ShopPipeline, has_java

PIPELINE = """\
pipeline: shop
log:
  type: kafka
  bootstrap: [{bootstrap}]
source:
  {source}
sink:
  type: spark
  path: ./lake
  commit_every: 1s
"""
WELL, NOT_WELL = 0, 4
"""Exit codes of `headwater cluster status`."""
TOPIC = "clicks"


def main(orders: int = 8_000, buying_s: float = 2.0) -> int:
    console = Console(highlight=False, soft_wrap=True)
    if not has_java():
        console.print("Java 17 or newer is not here, and the lake needs it; make demo does without")
        return 1
    try:
        with shop_in("postgres") as shop, tempfile.TemporaryDirectory() as name:
            shop.make_shop(customers=1_000, orders=orders)
            return ClusterShow(console, Path(name), shop).run(buying_s)
    except PostgresMissing as missing:
        console.print(str(missing))
        return 1


class ClusterShow:
    """From three empty directories to the end."""

    def __init__(self, console: Console, directory: Path, shop: ShopDatabase) -> None:
        self._console, self._shop = console, shop
        self._pipeline = ShopPipeline(console, directory, shop)
        self._brokers = DemoBrokers(self._say_command, directory, self._pipeline.environment)
        self._failures: list[str] = []

    def run(self, buying_s: float) -> int:
        pipeline, brokers, say = self._pipeline, self._brokers, self._pipeline.say
        with brokers.running():
            say("three brokers, as docs/cluster.md starts them")
            brokers.start_all()
            pipeline.write(PIPELINE, bootstrap=", ".join(brokers.addresses.values()))
            pipeline.until(lambda: brokers.voters() == [*NODES], wanted="three brokers do not vote")
            self._create_topic()
            self._status(WELL)
            with (
                writing(brokers.addresses.values(), TOPIC) as writer,
                buying(self._shop) as shop,
                pipeline.running(),
            ):
                say("headwater run: people buy, and a client writes numbers with acks=all")
                pipeline.until(lambda: len(pipeline.lake("orders")) > 0)
                for node in NODES:
                    self._kill(node, writer, shop, buying_s)
                shop.stop()
                say(f"{shop.committed:,} transactions, and nobody buys any more")
                pipeline.until(lambda: pipeline.differing() == [])
                writer.stop()
            self._prove(writer)
            self._status(WELL)
        for failure in self._failures:
            self._console.print(failure, style="red")
        say("done")
        return 1 if self._failures else 0

    def _create_topic(self) -> None:
        if self._pipeline.headwater("topics", "create", TOPIC) != 0:
            raise SystemExit(f"{TOPIC} is not there: see above")

    def _kill(
        self, node: int, writer: NumberedWriter, customers: Customers, buying_s: float
    ) -> None:
        """While everybody writes on; then it comes back."""
        time.sleep(buying_s)
        acknowledged, committed = writer.acknowledged, customers.committed
        writer.longest_pause_s = 0.0
        self._pipeline.say(f"kill -9 of broker {node}")
        self._brokers.kill(node)
        time.sleep(buying_s)
        self._status(NOT_WELL)
        self._brokers.start(node)
        self._status(WELL, "--wait")
        self._pipeline.say(
            f"meanwhile {customers.committed - committed:,} transactions in the shop and "
            f"{writer.acknowledged - acknowledged:,} acknowledged numbers; "
            f"the client waited {writer.longest_pause_s:.1f} s at most"
        )

    def _status(self, expected: int, *options: str) -> None:
        code = self._pipeline.headwater("cluster", "status", *options)
        if code != expected:
            self._failures.append(f"cluster status ended with {code}, and not with {expected}")

    def _prove(self, writer: NumberedWriter) -> None:
        self._pipeline.print_tables()
        self._failures += [
            f"{table} differs from the source" for table in self._pipeline.differing()
        ]
        lost = writer.lost()
        self._pipeline.say(
            f"{writer.acknowledged:,} numbers were acknowledged, {len(lost):,} of them are lost"
        )
        if lost:
            self._failures.append(f"acknowledged numbers are lost, the first is {min(lost)}")

    def _say_command(self, *arguments: str) -> None:
        self._console.print(f"$ {shlex.join(arguments)}", markup=False)


if __name__ == "__main__":
    named = dict(zip(("orders", "buying_s"), map(int, sys.argv[1:]), strict=False))
    raise SystemExit(main(**named))
