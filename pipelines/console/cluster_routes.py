"""Route of the cluster's page: its nodes, what each holds, what is not well, and what moves."""

from dataclasses import dataclass

from starlette.requests import Request

from headwater.pipelines.console.console_route import API, ConsoleContext, ConsoleRoute
from headwater.pipelines.console.topic_pages import sizes_of
from headwater.pipelines.watching.cluster_state import AWAY, read_state

PROBLEMS_MAX = 200


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node, which may have brokers, a vote in the metadata quorum, or both."""

    id: int
    address: str
    is_away: bool
    vote: str
    """`leader`, `voter`, `observer` or `none`."""
    metadata_lag: int | None
    """Records of the metadata that it lacks; None where nobody knows."""
    leads: int
    """Partitions that it leads."""
    replicas: int
    in_sync: int
    """Replicas of it that have every record."""


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """The cluster that has the log."""

    id: str
    quorum: str
    nodes: list[NodeFacts]
    topics: int
    partitions: int
    bytes: int | None
    """On disk; None where the cluster does not say."""
    problems: list[str]
    """Problems of the cluster, at most 200."""
    moves: list[str]
    """Partitions that are being moved, at most 200."""
    offline: dict[str, str]
    """Partitions that the disk keeps from being used, with the reason of each."""
    problem: str


async def cluster(console: ConsoleContext, request: Request) -> ClusterPage:
    async with console.open_log() as log:
        topics = await log.topics.all()
        found = await read_state(log, topics)
        sizes = await sizes_of(log)
    now = console.live.now
    return ClusterPage(
        id=found.cluster_id,
        quorum=found.quorum,
        nodes=[
            NodeFacts(
                each.node,
                each.address,
                each.address == AWAY,
                each.vote,
                each.metadata_lag,
                each.leads,
                each.replicas,
                each.in_sync,
            )
            for each in found.nodes
        ],
        topics=len(topics),
        partitions=sum(len(topic.partitions) for topic in topics),
        bytes=sum(sizes.values()) if sizes else None,
        problems=list(found.problems[:PROBLEMS_MAX]),
        moves=list(found.moves[:PROBLEMS_MAX]),
        offline=dict(now.get("offline_partitions") or {}),
        problem=str(now.get("log_problem") or ""),
    )


ROUTES = (
    ConsoleRoute(
        "GET",
        API + "/cluster",
        cluster,
        "The nodes of the log's cluster, what each of them leads and holds, what is not well, and "
        "what is being moved.",
        ClusterPage,
    ),
)
