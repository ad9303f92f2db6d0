"""Scenario files say what they mean before any cluster plays them."""

import pytest

from tests.cluster.scenario import Step, node_count, parse, scenarios

KINDS = ("processes", "links", "upgrade")


def test_lines_are_steps_and_indented_ones_are_repeated() -> None:
    steps = parse("# why\nwork 5\n\n2 times:\n  kill node 1\n  start it\nin sync\n")

    body = [Step("kill node 1"), Step("start it")]
    assert steps == [Step("work 5"), Step("2 times:", body, 2), Step("in sync")]


def test_a_first_line_says_how_many_nodes_there_are() -> None:
    assert node_count(parse("# why\nnodes 5\nwork 5\n")) == 5
    assert node_count(parse("work 5\n")) == 3


def test_an_indented_step_without_a_repetition_is_refused() -> None:
    with pytest.raises(AssertionError, match="indented"):
        parse("work 5\n  work 6\n")


@pytest.mark.parametrize(
    "line",
    [
        "wrok 5",
        "work",
        "work five",
        "kill",
        "kill nobody",
        "kill node one",
        "kill controller and",
        "nodes many",
        "move orders",
        "kill leader of orders",
        "isolate leader orders-0",
        "heal",
        "some times:",
        "2 times:\n  kil node 1",
    ],
)
def test_a_mistyped_step_is_refused_before_anything_is_played(line: str) -> None:
    with pytest.raises(AssertionError, match=r"no such step|no number of times"):
        parse(f"work 5\n{line}\n")


def test_every_scenario_file_says_why_and_can_be_read() -> None:
    for path in [path for kind in KINDS for path in scenarios(kind)]:
        text = path.read_text()
        assert text.startswith("# ")
        assert parse(text)
