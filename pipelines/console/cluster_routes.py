"""Route of the cluster's page: its brokers, and what each of them leads and holds."""

from dataclasses import dataclass

from starlette.requests import Request

from headwater.pipelines.console.console_context import ConsoleContext
from headwater.pipelines.console.console_route import API, ConsoleRoute
from headwater.pipelines.console.topic_pages import sizes_of


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """One broker."""

    id: int
    address: str
    is_controller: bool
    led: int
    """Partitions that it leads."""
    behind: int
    """Partitions of which it is a replica and not in sync."""


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """The cluster that has the log."""

    id: str
    brokers: list[BrokerFacts]
    topics: int
    partitions: int
    bytes: int | None
    """On disk; None where the cluster does not say."""
    offline: dict[str, str]
    """Partitions that the disk keeps from being used, with the reason of each."""
    problem: str


async def cluster(console: ConsoleContext, request: Request) -> ClusterPage:
    async with console.open_log() as log:
        found, topics = await log.describe_cluster(), await log.topics.all()
        sizes = await sizes_of(log)
    parts = [part for topic in topics for part in topic.partitions]
    now = console.live.now
    return ClusterPage(
        id=found.cluster_id,
        brokers=[
            BrokerFacts(
                id=each.node_id,
                address=f"{each.host}:{each.port}",
                is_controller=each.node_id == found.controller_id,
                led=sum(part.leader == each.node_id for part in parts),
                behind=sum(
                    each.node_id in part.replicas and each.node_id not in part.in_sync
                    for part in parts
                ),
            )
            for each in found.brokers
        ],
        topics=len(topics),
        partitions=len(parts),
        bytes=sum(sizes.values()) if sizes else None,
        offline=dict(now.get("offline_partitions") or {}),
        problem=str(now.get("log_problem") or ""),
    )


ROUTES = (
    ConsoleRoute(
        "GET",
        API + "/cluster",
        cluster,
        "The brokers of the log, what each of them leads, and what their disks refuse.",
        ClusterPage,
    ),
)
