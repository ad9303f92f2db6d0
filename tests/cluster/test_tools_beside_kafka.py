"""Kafka's own tools say the same of three brokers of ours as of three of Apache Kafka, but for the
differences that docs/kafka-tools.md lists."""

import asyncio
import os
import re
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from random import Random

import pytest

from tests.cluster.kafka_tools import KafkaTools, Said
from tests.cluster.nodes import HeadwaterNodes, KafkaNodes, Nodes
from tests.cluster.scenario import ONE_STEP, Play
from tests.contract.apache_kafka import java

ROOT = Path(__file__).resolve().parents[2]
SESSIONS = sorted((Path(__file__).parent / "tool_sessions").glob("*.txt"))
PAGE = ROOT / "docs" / "kafka-tools.md"
UNTIL = re.compile(r'until "(?P<gone>.+)" is gone: (?P<command>.+)')
LISTED = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
SESSION_OF_KAFKA = ""
"""Kafka's defaults: nobody is killed, and none of its nodes is fenced on a busy machine."""
VOTER = """
process.roles=controller
node.id={node}
log.dirs={data}
controller.listener.names=CONTROLLER
listeners=CONTROLLER://{address}
"""
OBSERVER = r"(?m)^(\d+)\s+(\S+)\s.*\sObserver\s*$"

pytestmark = [
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.kafka,
    pytest.mark.long("compat"),
]


@pytest.mark.parametrize("session", SESSIONS, ids=[each.stem for each in SESSIONS])
def test_the_tools_say_the_same_but_for_what_the_page_lists(tmp_path: Path, session: Path) -> None:
    jars = java(os.environ["HEADWATER_KAFKA_JARS"])
    lines = [each for each in session.read_text().splitlines() if each and each[0] != "#"]
    plays = list[Sequence[tuple[str, str]]]()
    for name in ("ours", "kafka"):
        directory = tmp_path / name
        directory.mkdir()
        plays.append(play(nodes_of(name, directory, jars), jars, lines))

    ours, kafkas = plays
    differences = [
        (command, "\n".join(unified_diff(theirs.splitlines(), own.splitlines(), lineterm="", n=0)))
        for (command, own), (_, theirs) in zip(ours, kafkas, strict=True)
        if own != theirs
    ]
    listed = set(LISTED.findall(PAGE.read_text())) & {*lines}
    found = {command for command, _ in differences}
    assert found - listed == set(), "\n\n".join(
        f"{command}\n{text}" for command, text in differences if command not in listed
    )
    assert listed - found == set(), "the page lists what is the same by now"


def test_the_quorum_tool_gives_a_vote_and_takes_it(tmp_path: Path) -> None:
    """As docs/cluster.md says. Kafka's nodes of the sessions have their votes by configuration."""
    nodes = HeadwaterNodes(tmp_path, count=4)
    for node in nodes.addresses:
        nodes.start(node)
    tools = KafkaTools(java(os.environ["HEADWATER_KAFKA_JARS"]), nodes.addresses)
    properties = tmp_path / "voter.properties"
    give = f"kafka-metadata-quorum --command-config {properties} add-controller"
    try:
        asyncio.run(Play(nodes, Random(0)).wait_in_sync())
        ((fourth, directory_id),) = observers(tools)
        data, address = nodes.data(int(fourth)), nodes.addresses[int(fourth)]
        properties.write_text(VOTER.format(node=fourth, data=data, address=address))

        given = tools.run(give)
        with_vote = observers(tools)
        again = tools.run(give)
        which = f"--controller-id {fourth} --controller-directory-id {directory_id}"
        taken = tools.run(f"kafka-metadata-quorum remove-controller {which}")
        without = observers(tools)
    finally:
        tools.end()
        nodes.end()

    named = f"controller {fourth} with directory id {directory_id}"
    assert given.text.startswith(f"Added {named}"), given
    assert with_vote == []
    assert again.exit_code == 1 and "DuplicateVoterException" in again.text
    assert taken.exit_code == 0 and named in taken.text
    assert without == [(fourth, directory_id)]


def observers(tools: KafkaTools) -> list[tuple[str, str]]:
    """With the ids of their directories."""
    return re.findall(OBSERVER, tools.run("kafka-metadata-quorum describe --replication").text)


def nodes_of(name: str, directory: Path, jars: Sequence[str]) -> Nodes:
    """With the same default in the settings of both: KafkaNodes have it."""
    if name == "kafka":
        return KafkaNodes(directory, jars, properties=SESSION_OF_KAFKA)
    return HeadwaterNodes(directory, settings=["config.min.insync.replicas=2"])


def play(nodes: Nodes, jars: Sequence[str], lines: Sequence[str]) -> list[tuple[str, str]]:
    """Returns each command with what its tool said. Steps of scenarios stand between commands."""
    for node in nodes.addresses:
        nodes.start(node)
    tools = KafkaTools(jars, nodes.addresses)
    told = list[tuple[str, str]]()
    try:
        for line in ["in sync", *lines]:
            if ONE_STEP.fullmatch(line):
                asyncio.run(Play(nodes, Random(0)).take(line))
            else:
                told.append((line, tools.normal(said(tools, line))))
        return told
    finally:
        tools.end()
        nodes.end()


def said(tools: KafkaTools, line: str) -> Said:
    """Of a command that is given until something is over: its last words."""
    waiting = UNTIL.fullmatch(line)
    if waiting is None:
        return tools.run(line)
    while waiting["gone"] in (last := tools.run(waiting["command"])).text:
        assert last.exit_code == 0, last.text
    return last
