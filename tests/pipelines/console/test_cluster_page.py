"""The cluster's page over three real brokers, of which one is killed and comes back."""

import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.cluster.nodes import HeadwaterNodes
from tests.pipelines.console.browser_pages import check_accessible, page_of
from tests.pipelines.run_process import running

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_a_broker_that_is_away_shows_and_what_it_leaves(browser: Browser, tmp_path: Path) -> None:
    nodes = HeadwaterNodes(tmp_path)
    try:
        for node in nodes.addresses:
            nodes.start(node)
            while not (nodes.data(node) / "endpoint.json").exists():
                nodes.check()
                time.sleep(0.05)
        bootstrap = ",".join(nodes.bootstrap)
        with (
            running(
                "topics", "create", "orders", "--partitions", "3", "--bootstrap", bootstrap
            ) as made,
            running("ui", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0", "--no-open") as ui,
        ):
            assert made.wait() == 0
            assert ui.stdout is not None
            base, _, token = ui.stdout.readline().strip().partition("/#")
            with page_of(browser, f"{base}/cluster#{token}") as page:
                expect(page.get_by_role("heading", name="3 brokers have the log.")).to_be_visible()
                expect(page.get_by_text("voters 1 2 3")).to_be_visible()
                brokers = page.get_by_role("region", name="Brokers").locator("tbody tr")
                expect(brokers).to_have_count(3)
                check_accessible(page)

                nodes.kill(3)
                expect(page.get_by_role("heading", name="1 broker is away.")).to_be_visible()
                problems = page.get_by_role("region", name="What is not well")
                expect(problems).to_contain_text("node 3 is away")
                expect(problems).to_contain_text("orders-0 is under-replicated")
                check_accessible(page)

                nodes.start(3)
                expect(page.get_by_role("heading", name="3 brokers have the log.")).to_be_visible()
                expect(problems).to_have_count(0)
    finally:
        nodes.end()
