"""A mistake shows its key, its code and its line with a caret, and nothing that may be secret."""

from pathlib import Path

import pytest

from headwater.config.mistakes import Code, Mistake, MistakesFound
from headwater.pipelines.file.loader import load
from tests.architecture.sources import python_files, text_of
from tests.pipelines.pipeline_files import Write

HEAD = "pipeline: shop\nsource: {type: generator}\n"
SINK = "sink: {type: sql, url: 'sqlite:///x'}\n"


def mistakes_in(path: Path) -> MistakesFound:
    with pytest.raises(MistakesFound) as found:
        load(path, environment={})
    return found.value


def mistake_in(path: Path) -> Mistake:
    [mistake] = mistakes_in(path).mistakes
    return mistake


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            HEAD + "sink:\n  - {type: sql, url: sqlite:///x, tables: {'*': {mode: mirorr}}}\n",
            [
                """pipeline.yaml:4:56: should be 'mirror', 'soft_delete', 'append' or 'scd2' """
                """[HW204 sink[0].tables."*".mode]""",
                "  4 |   - {type: ***, url: ***, tables: {'*': {mode: mirorr}}}",
                "    |                                                ^",
                "  hint: did you mean 'mirror'?",
            ],
        ),
        (
            HEAD + SINK + "log:\n  histroy: 7d # of May\n",
            [
                "pipeline.yaml:5:3: key 'histroy' is unknown [HW201 log.histroy]",
                "  5 |   histroy: ***",
                "    |   ^",
                "  hint: did you mean 'history'?",
            ],
        ),
        (
            HEAD + SINK + "log: {type: kafka, bootstrap: [5, x]}\n",
            [
                "pipeline.yaml:4:32: should be text [HW203 log.bootstrap[0]]",
                "  4 | log: {type: ***, bootstrap: [***, ***]}",
                "    |                              ^",
                "  hint: put it between quotes",
            ],
        ),
        (
            HEAD + SINK + "log:\n\tpath: x\n",
            [
                "pipeline.yaml:5:1: found character that cannot start any token [HW102]",
                "  5 |  path: ***",
                "    | ^",
                "  hint: indent with spaces, a tab cannot",
            ],
        ),
        (
            HEAD + SINK + "log:\n  path: x\n  path: y\n",
            [
                "pipeline.yaml:6:3: the key 'path' occurs twice, first in line 5 [HW103]",
                "  6 |   path: ***",
                "    |   ^",
            ],
        ),
    ],
)
def test_a_mistake_shows_its_code_its_key_and_its_line(
    write: Write, text: str, told: list[str]
) -> None:
    path = write(text)

    assert str(mistake_in(path)).removeprefix(f"{path.parent}/").splitlines() == told


@pytest.mark.parametrize(
    "wrong",
    [
        "pipeline: {name: shop, salt: canary}\n" + HEAD.partition("\n")[2] + SINK,
        HEAD
        + SINK
        + "log: {type: kafka, bootstrap: 'h:1', security: {password: canary, usr: x}}\n",
        HEAD + "sink: {type: sql, url: 'sqlite://u:canary@h/x', tabels: x}\n",
        HEAD + "sink: {name: &a canary, type: sql, url: *a, tabels: x}\n",
        HEAD + SINK + "transform: [{table: 'x\n  canary', drp: x}]\n",
        HEAD + SINK + "log: {histroy: 7d} # canary\n",
        HEAD + SINK + "log: {'path': 'x\\u2028', histroy: canary}\n",
        HEAD + SINK + "log: {path: 'x\u2028  canary', histroy: 5}\n",
        HEAD + SINK + "log: [canary\n",
        HEAD + SINK + "log: canary: canary\n",
        HEAD + SINK + "- canary\n",
    ],
)
def test_no_value_beside_a_mistake_is_shown_and_no_secret_in_its_place(
    write: Write, wrong: str
) -> None:
    found = mistakes_in(write(wrong))

    assert "canary" not in str(found)
    assert all(each.excerpt is not None for each in found.mistakes)


def test_a_code_and_a_key_are_told_to_programs(write: Write) -> None:
    told = mistake_in(write(HEAD + SINK + "log: {histroy: 7d}\n")).as_json()

    assert (told["code"], told["key"]) == ("HW201", "log.histroy")


def test_no_two_kinds_share_a_code_and_each_is_told_somewhere() -> None:
    product = "".join(
        text_of(path) for room in ("config", "pipelines/file") for path in python_files(room)
    )

    assert len({each.code for each in Code}) == len(Code)
    assert not [each.name for each in Code if f"Code.{each.name}" not in product]
