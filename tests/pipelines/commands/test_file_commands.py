"""`init` writes what `check` accepts, and `explain` knows every key that `check` does."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headwater.connectors import SOURCES
from headwater.pipelines.file.reference import our_components
from headwater.pipelines.terminal import exit_codes
from headwater.sinks import SINKS
from tests.pipelines import fake_components
from tests.pipelines.conftest import Headwater

CANARY = "canary-secret-1"
FILE = """\
pipeline: shop
source: {type: made-up, url: 'postgresql://u:${env:CANARY}@h/shop'}
sink: {type: made-up, path: x}
"""


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(SOURCES, "made-up", fake_components.SOURCE)
    monkeypatch.setitem(SINKS, "made-up", fake_components.SINK)
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.chdir(tmp_path)


def test_a_correct_file_is_reported_as_correct(headwater: Headwater) -> None:
    Path("pipeline.yaml").write_text(FILE)

    ran = headwater("check")

    assert (ran.code, ran.data, ran.remarks) == (0, "nothing is wrong in 1 file\n", "")


def test_mistakes_are_told_to_people_and_to_programs(headwater: Headwater) -> None:
    Path("pipeline.yaml").write_text(FILE + "lgo: {}\nworkers: x\n")

    ran, again = headwater("check"), headwater("check", "--json")

    assert ran.code == again.code == exit_codes.INVALID
    assert "pipeline.yaml:4:1: key 'lgo' is unknown [HW201 lgo]\n  4 | lgo: {}\n" in ran.remarks
    assert "  hint: did you mean 'log'?" in ran.remarks
    assert again.envelope["error"]["facts"]["mistakes"][1] == {
        "file": "pipeline.yaml",
        "line": 5,
        "column": 10,
        "code": "HW204",
        "key": "workers",
        "problem": "should be 'auto' or a whole number",
        "hint": None,
    }


def test_a_file_that_is_not_there_is_told_by_its_name(headwater: Headwater) -> None:
    ran = headwater("check", "none.yaml")

    assert ran.code == exit_codes.INVALID
    assert "none.yaml: no such file or directory" in ran.remarks


def test_an_unset_variable_fails_unless_it_is_allowed(
    headwater: Headwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("pipeline.yaml").write_text(FILE)
    monkeypatch.delenv("CANARY")

    ran, allowed = headwater("check"), headwater("check", "--allow-unset", "--json")

    assert ran.code == exit_codes.INVALID
    assert "pipeline.yaml:2:30: the environment has no CANARY" in ran.remarks
    assert allowed.code == exit_codes.OK
    assert [each["line"] for each in allowed.envelope["data"]["unset"]] == [2]


def test_a_remark_is_no_mistake(headwater: Headwater) -> None:
    Path("pipeline.yaml").write_text(FILE + "transform: [{table: a, mask: {b: hash}}]\n")

    ran = headwater("check")

    assert ran.code == exit_codes.OK
    assert "pipeline.yaml:4:30: a hash without a salt can be found out" in ran.remarks


@pytest.mark.parametrize("options", [(), ("--json",), ("-v",), ("--allow-unset",)])
def test_a_secret_is_in_no_output_of_a_check(headwater: Headwater, options: Any) -> None:
    Path("pipeline.yaml").write_text(
        FILE.replace("made-up,", "'${env:CANARY}',", 1) + "log: {value: '${env:CANARY}'}\n"
    )

    ran = headwater("check", *options)

    assert ran.code == exit_codes.INVALID
    assert "canary" not in ran.data + ran.remarks


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_secret_is_in_no_traceback(headwater: Headwater, options: Any) -> None:
    Path("pipeline.yaml").write_text(FILE)

    ran = headwater("plan", "pipeline.yaml", *options)

    assert ran.code == exit_codes.INTERNAL
    assert "RuntimeError" in ran.remarks and "no answer from" in ran.remarks
    assert "canary" not in ran.data + ran.remarks


def test_a_written_file_is_right_but_for_what_only_its_owner_knows(headwater: Headwater) -> None:
    ran = headwater("init", "made-up", "made-up", "made-up")

    assert ran.data == "wrote pipeline.yaml\n"
    checked = headwater("check", "--allow-unset", "--json")
    assert checked.code == exit_codes.OK, checked.data
    assert checked.envelope["data"]["pipelines"] == ["shop"]


@pytest.mark.parametrize("at", range(len(SOURCES)))
def test_a_file_can_be_written_for_every_type(headwater: Headwater, at: int) -> None:
    source, sink = list(SOURCES)[at], list(SINKS)[at % len(SINKS)]

    headwater("init", source, sink)

    checked = headwater("check", "--allow-unset")
    assert checked.code == exit_codes.OK, checked.remarks


@pytest.mark.slow
def test_every_line_of_a_written_file_can_be_switched_on(headwater: Headwater) -> None:
    text = headwater("init", "--file", "-").data

    switched = "\n".join(switch_on(text))

    keys = yaml.safe_load(switched)
    assert {"pipeline", "source", "sink", "log", "transform", "tests", "limits"} <= set(keys)
    assert keys["errors"]["dead_letter"]["stop_after"] == {"failures": 20, "of_last": 1000}
    assert keys["route"][0]["to"] == "crm.$2"


def switch_on(text: str) -> Iterator[str]:
    """Explanations have a space behind their sign, keys have none."""
    for line in text.splitlines():
        bare = line.lstrip()
        is_key = bare.startswith("#") and not bare.startswith("# ")
        yield line.replace("#", "", 1) if is_key else line


@pytest.mark.slow
def test_a_file_that_is_there_is_kept(headwater: Headwater) -> None:
    Path("pipeline.yaml").write_text("mine")

    ran = headwater("init")

    assert ran.code == exit_codes.INVALID
    assert Path("pipeline.yaml").read_text() == "mine"
    assert headwater("init", "--force").code == exit_codes.OK


def test_a_pipeline_without_a_sink_is_not_begun(headwater: Headwater) -> None:
    ran = headwater("init", "generator")

    assert ran.code == exit_codes.INVALID
    assert "headwater init generator console" in ran.remarks


def test_everything_there_is_can_be_listed(headwater: Headwater) -> None:
    listed = headwater("explain", "--json").envelope["data"]

    found = {(each["kind"], each["name"]) for each in listed}
    assert {("source", "generator"), ("sink", "sql"), ("key", "log")} <= found
    assert all(each["summary"].strip() for each in listed)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("made-up", ["made-up (source)", "made-up (sink)", "path  text  required"]),
        ("source.made-up", ["snapshot.mode  `initial` or `never`  default initial"]),
        ("made-up.slot", ["slot.max_retained  size  default 20GiB"]),
        ("sink.made-up.commit_every", ["commit_every  duration  default 10s"]),
        ("log.history", ["log.history  duration  default 7d"]),
        ("log", ["log.retention.time  duration or `forever`  default forever"]),
        ("transform.mask", ["transform[].mask", "for example: {email: hash, phone: redact}"]),
        ("schema_changes", ["pipeline.schema_changes", "default evolve"]),
        ("errors.retry", ["errors.retry.backoff  text  default 1s..1m"]),
    ],
)
def test_a_key_is_explained_by_its_own_words(
    headwater: Headwater, what: str, told: list[str]
) -> None:
    ran = headwater("explain", what, "--no-color")

    assert ran.code == exit_codes.OK
    assert all(words in ran.data for words in told)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("made-op", "did you mean 'made-up'?"),
        ("log.histroy", "'log' has no key 'histroy'"),
        ("source.console", "source 'console' is unknown"),
        ("made-up.nothing", "'made-up' has no key 'nothing'"),
    ],
)
def test_an_unknown_type_or_key_cannot_be_explained(
    headwater: Headwater, what: str, words: str
) -> None:
    ran = headwater("explain", what)

    assert ran.code == exit_codes.INVALID
    assert words in ran.remarks


def test_every_component_begins_its_page_with_what_it_guarantees() -> None:
    for each in our_components():
        assert (each.component.__doc__ or "").strip(), each.kind


@pytest.mark.slow
def test_editors_get_a_schema_that_takes_what_check_takes(headwater: Headwater) -> None:
    import jsonschema

    schema = json.loads(headwater("explain", "--json-schema").data)
    validator = jsonschema.Draft202012Validator(schema)
    file = {
        "pipeline": "shop",
        "source": {"type": "made-up", "url": "${env:X}", "slot.name": "x", "batch_wait": "5ms"},
        "sink": [{"type": "made-up", "path": "x", "commit_every": "1m"}],
        "log": {"history": "7d", "partitions": "${env:N}", "schemas": True, "retention": {}},
        "transform": {"a": 1},
    }

    jsonschema.Draft202012Validator.check_schema(schema)
    wrong = {"/".join(map(str, each.absolute_path)) for each in validator.iter_errors(file)}
    assert wrong == {"transform"}
    del file["transform"]
    file["log"] = {"history": 7}
    file["source"] = {"type": "made-up", "url": "x", "tabels": "a"}
    wrong = {"/".join(map(str, each.absolute_path)) for each in validator.iter_errors(file)}
    assert wrong == {"log/history", "source"}


@pytest.mark.parametrize("command", ["init", "explain"])
def test_a_shell_completes_types(command: str) -> None:
    from click.shell_completion import ShellComplete

    from headwater.pipelines.cli import cli

    offered = ShellComplete(cli, {}, "headwater", "X").get_completions([command], "ge")

    assert [each.value for each in offered] == ["generator"]
