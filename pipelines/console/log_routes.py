"""Routes of the log's pages: topics, their messages, consumer groups, and the cluster."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import ConfigError, HeadwaterError
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.pipelines.console import table_past
from headwater.pipelines.console.console_route import API, ConsoleContext, ConsoleRoute, number_of
from headwater.pipelines.console.hidden_columns import WHOLE_CHARACTERS_MAX, ShownTable
from headwater.pipelines.console.live_status import event_of
from headwater.pipelines.console.message_search import (
    LookBudget,
    MessageFilter,
    MessagePage,
    MessageTail,
    search,
)
from headwater.pipelines.console.shown_records import RecordReader, ShownRecord, pick, with_headers
from headwater.pipelines.console.table_past import TopicActivity
from headwater.pipelines.console.topic_pages import (
    GroupLine,
    GroupPage,
    TopicLine,
    TopicPage,
    describe_group,
    describe_topic,
    list_groups,
    list_topics,
    sizes_of,
    table_topics,
)
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.terminal.quantities import parse_count
from headwater.pipelines.terminal.starting_points import EARLIEST, LATEST, resolve
from headwater.pipelines.time_travel.history.key_history import key_bytes
from headwater.pipelines.watching.cluster_state import AWAY, read_state

TOPIC = API + "/topics/{topic}"
SHOWN = 50
PROBLEMS_MAX = 200
DEAD_LETTERS, OWN_TOPICS = ".dlq", "__headwater_"
"""Topics that may hold values of rows, although they are no table's: failed records, and where a
source is with reading rows."""
FILTERS = {
    "partition": "Only this partition.",
    "key": "Only this key; of a table's topic written as for the command `rows`.",
    "contains": "Only messages whose key or value contains these bytes; of a table with hidden "
    "columns, whose shown values contain them.",
    "operations": "Only events with one of these letters, such as `cu`.",
}


async def topics(console: ConsoleContext, request: Request) -> list[TopicLine]:
    async with console.open_log() as log:
        return await list_topics(log)


async def topic(console: ConsoleContext, request: Request) -> TopicPage:
    async with console.open_log() as log:
        return await describe_topic(log, request.path_params["topic"])


async def activity(console: ConsoleContext, request: Request) -> TopicActivity:
    async with console.open_log() as log:
        now_ms = unix_ms()
        return await table_past.activity(log, request.path_params["topic"], now_ms=now_ms)


async def messages(console: ConsoleContext, request: Request) -> MessagePage:
    given = request.query_params
    async with console.searches, console.open_log() as log:
        chosen = await _ChosenTopic.find(console, log, request)
        now_ms = unix_ms()
        lower = await resolve(log, chosen.places, given.get("from", EARLIEST), now_ms=now_ms)
        upper = await resolve(log, chosen.places, given.get("until", LATEST), now_ms=now_ms)
        both = [place for place in chosen.places if place in lower and place in upper]
        bounds = await log.bounds(both)
        return await search(
            log,
            chosen.reader(log),
            chosen.wanted,
            lower={at: max(lower[at], bounds[at].start) for at in both},
            upper={at: min(upper[at], bounds[at].stable) for at in both},
            limit=number_of(request, "limit", default=SHOWN, most=SHOWN),
            hidden=chosen.shown.hidden if chosen.shown else (),
            budget=LookBudget(),
        )


async def message(console: ConsoleContext, request: Request) -> ShownRecord:
    """One record, with its headers and its whole value."""
    offset = int(request.path_params["offset"])
    async with console.open_log() as log:
        chosen = await _ChosenTopic.find(console, log, request)
        [place] = chosen.places
        limit = FetchLimit(bytes_max=1, wait_ms_max=0)
        for each in await log.fetch({place: offset}, limit=limit, isolation=Isolation.COMMITTED):
            columns = arrow_codec.decode(each.data, from_offset=offset, partition=place)
            if len(columns) and int(columns.offsets[0]) == offset:
                one = pick(columns, [0])
                reader = chosen.reader(log)
                [record] = await reader.read(place, one, characters_max=WHOLE_CHARACTERS_MAX)
                return record if reader.hides else with_headers(record, one, 0)
    raise ConfigError(
        "the log has no record at this offset",
        hint="compaction or retention may have removed it, or it is a marker",
        topic=place.topic,
        partition=place.partition,
        offset=offset,
    )


async def tail(console: ConsoleContext, request: Request) -> Response:
    """Server-sent events until the browser goes."""
    async with console.open_log() as log:
        chosen = await _ChosenTopic.find(console, log, request)
    console.tails.check()

    async def events() -> AsyncIterator[bytes]:
        with console.tails.count_one():
            try:
                async with console.sources.follow_log() as running:
                    following = MessageTail(running, chosen.reader(running), chosen.wanted)
                    async for seen in following.follow(chosen.places):
                        yield event_of("messages", seen)
            except HeadwaterError as error:
                yield event_of("problem", {"problem": error.problem, "hint": error.hint})

    return StreamingResponse(
        events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def groups(console: ConsoleContext, request: Request) -> list[GroupLine]:
    async with console.open_log() as log:
        return await list_groups(log)


async def group(console: ConsoleContext, request: Request) -> GroupPage:
    async with console.open_log() as log:
        return await describe_group(log, request.path_params["group"])


class _ChosenTopic:
    """The partitions and the filter that a request names."""

    def __init__(
        self,
        name: str,
        places: list[TopicPartition],
        stored: StoredSchema | None,
        shown: ShownTable | None,
        wanted: MessageFilter,
        *,
        hides_bytes: bool,
        hides_events: bool,
    ) -> None:
        self.name, self.places, self.stored = name, places, stored
        self.shown, self.wanted = shown, wanted
        self._hides_bytes, self._hides_events = hides_bytes, hides_events

    def reader(self, log: Log) -> RecordReader:
        return RecordReader(
            log,
            self.name,
            self.shown,
            hides_bytes=self._hides_bytes,
            hides_events=self._hides_events,
        )

    @classmethod
    async def find(cls, console: ConsoleContext, log: Log, request: Request) -> "_ChosenTopic":
        name, given = request.path_params["topic"], request.query_params
        count = await log.partition_count(name)
        stored = (await table_topics(log)).get(name)
        shown = None
        if stored is not None:
            known = await console.hidden.known_schemas(log, stored.pipeline)
            shown = console.hidden.view(stored.pipeline, stored.schema, known)
        numbers = range(count)
        asked = request.path_params.get("partition", given.get("partition"))
        if asked is not None:
            number = parse_count(str(asked))
            if number is None or number >= count:
                raise ConfigError("the topic does not have this partition", topic=name, has=count)
            numbers = range(number, number + 1)
        wanted = MessageFilter(
            contains=given.get("contains", ""),
            keys=await _keys(log, stored, shown, given),
            operations=frozenset(given.get("operations", "")),
        )
        places = [TopicPartition(name, each) for each in numbers]
        has_values = name.endswith(DEAD_LETTERS) or name.startswith(OWN_TOPICS)
        hides = console.hidden.hides_anything
        return cls(
            name,
            places,
            stored,
            shown,
            wanted,
            hides_bytes=hides and has_values,
            hides_events=hides,
        )


async def _keys(
    log: Log, stored: StoredSchema | None, shown: ShownTable | None, given: Mapping[str, str]
) -> frozenset[bytes] | None:
    text = given.get("key")
    if not text:
        return None
    if shown is not None and shown.is_key_hidden:
        raise ConfigError("the key of the table is hidden here", table=str(shown.schema.table))
    if stored is None or not stored.schema.key:
        return frozenset({text.encode()})
    return await key_bytes(log, stored, text)


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
        API + "/topics",
        topics,
        "All topics: partitions, bytes on disk, offsets of the last minute, and whose table it is.",
        list[TopicLine],
    ),
    ConsoleRoute(
        "GET", TOPIC, topic, "One topic: its partitions and its configuration.", TopicPage
    ),
    ConsoleRoute(
        "GET",
        TOPIC + "/activity",
        activity,
        "How many records were appended in each of 120 slots, by the time index alone.",
        TopicActivity,
    ),
    ConsoleRoute(
        "GET",
        TOPIC + "/messages",
        messages,
        "Messages, newest first. One look reads at most 64 MiB or 2 seconds, and says where it "
        "ended.",
        MessagePage,
        {
            **FILTERS,
            "from": "Nothing older than this place: an offset, a time, or how long ago.",
            "until": "Nothing from this place on; `next` of the answer goes on below it.",
            "limit": "Messages, at most 50.",
        },
    ),
    ConsoleRoute(
        "GET",
        TOPIC + "/messages/{partition:count}/{offset:count}",
        message,
        "One record with its headers; a value is cut after 1,048,576 characters.",
        ShownRecord,
    ),
    ConsoleRoute(
        "GET",
        TOPIC + "/tail",
        tail,
        "Server-sent events: `messages` with at most 50 of each second, and how many more there "
        "were.",
        Response,
        FILTERS,
    ),
    ConsoleRoute("GET", API + "/groups", groups, "All consumer groups.", list[GroupLine]),
    ConsoleRoute(
        "GET",
        API + "/groups/{group}",
        group,
        "One consumer group: its members, and how far it is behind in each partition.",
        GroupPage,
    ),
    ConsoleRoute(
        "GET",
        API + "/cluster",
        cluster,
        "The nodes of the log's cluster, what each of them leads and holds, what is not well, and "
        "what is being moved.",
        ClusterPage,
    ),
)
