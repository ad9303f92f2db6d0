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
from tests.cluster.scenario import Play
from tests.contract.apache_kafka import java

ROOT = Path(__file__).resolve().parents[2]
SESSIONS = sorted((Path(__file__).parent / "tool_sessions").glob("*.txt"))
PAGE = ROOT / "docs" / "kafka-tools.md"
UNTIL = re.compile(r'until "(?P<gone>.+)" is gone: (?P<command>.+)')
LISTED = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
SESSION_OF_KAFKA = ""
"""Kafka's defaults: nobody is killed, and none of its nodes is fenced on a busy machine."""

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


def nodes_of(name: str, directory: Path, jars: Sequence[str]) -> Nodes:
    """With the same default in the settings of both: KafkaNodes have it."""
    if name == "kafka":
        return KafkaNodes(directory, jars, properties=SESSION_OF_KAFKA)
    return HeadwaterNodes(directory, settings=["config.min.insync.replicas=2"])


def play(nodes: Nodes, jars: Sequence[str], lines: Sequence[str]) -> list[tuple[str, str]]:
    """Returns each command with what its tool said."""
    for node in nodes.addresses:
        nodes.start(node)
    tools = KafkaTools(jars, nodes.addresses)
    try:
        asyncio.run(Play(nodes, Random(0)).wait_in_sync())
        return [(line, tools.normal(said(tools, line))) for line in lines]
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
