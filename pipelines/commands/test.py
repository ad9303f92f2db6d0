"""`headwater test`: runs the examples of a pipeline file through its transforms and routes."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.pipelines.terminal.output import (
    DifferencesFound,
    Output,
    format_count,
    shared_options,
)

if TYPE_CHECKING:
    from headwater.pipelines.file.loader import LoadedPipeline
    from headwater.pipelines.preview.worked_examples import ExampleResult, TableDifference


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("pipeline.yaml"))
@shared_options
@click.pass_obj
def test(output: Output, path: Path) -> None:
    """Run the tests of the pipeline file PATH, or of every file in a directory.

    The given changes pass masks, the log's value format, filters, added columns, functions and
    routes, and become tables: no source, log or sink is used, and unset variables are ignored. Exit
    code 4 means that a table is not as expected.
    """
    from headwater.pipelines.file.loader import load_given

    outcomes = {
        each.name: run_examples(each) for each in load_given(output, path, reaches_systems=False)
    }
    data = {name: [outcome_facts(outcome) for outcome in found] for name, found in outcomes.items()}
    lines = [
        line for found in outcomes.values() for each in found for line in describe_outcome(each)
    ]
    count = sum(map(len, outcomes.values()))
    failed = sum(not each.is_passed for found in outcomes.values() for each in found)
    if failed:
        raise DifferencesFound(
            f"{failed} of {format_count(count, 'test')} failed", data=data, lines=lines
        )
    output.result(data, lines)
    output.note(f"{format_count(count, 'test')} passed" if count else "the file has no `tests:`")


def run_examples(loaded: "LoadedPipeline") -> "list[ExampleResult]":
    from headwater.pipelines.loops.assembly import wire_of
    from headwater.pipelines.preview.worked_examples import WorkedExamples
    from headwater.pipelines.transforms.after_log import RowTransforms
    from headwater.pipelines.transforms.before_log import MasksAndDrops, salt_of

    spec = loaded.spec
    # Each test has its own transforms, because routes remember the tables they have seen.
    return [
        WorkedExamples(
            MasksAndDrops(spec.transform, salt=salt_of(spec.pipeline)),
            RowTransforms(spec.transform, spec.route, directory=loaded.directory),
            wire_of(loaded),
        ).run(test)
        for test in spec.tests
    ]


def outcome_facts(outcome: "ExampleResult") -> dict[str, object]:
    return {
        "name": outcome.name,
        "passed": outcome.is_passed,
        "differences": [
            {"table": each.table, "expected": each.expected, "found": each.found}
            for each in outcome.differences
        ],
        "rejected": list(outcome.rejected),
        "error": outcome.error or None,
    }


def describe_outcome(outcome: "ExampleResult") -> Iterator[str]:
    yield f"{'ok  ' if outcome.is_passed else 'FAIL'}  {outcome.name}"
    if outcome.error:
        yield from (f"      {line}" for line in outcome.error.splitlines())
    for each in outcome.differences:
        yield f"      {each.table}: - expected, + found"
        yield from (f"      {line}" for line in row_diff(each))
    if not outcome.is_passed:
        yield from (f"      rejected: {reason}" for reason in outcome.rejected)


def row_diff(difference: "TableDifference") -> Iterator[str]:
    """Returns differing rows with equal ones around them, which show their place."""
    from difflib import SequenceMatcher

    from headwater.pipelines.terminal.record_lines import row_line

    expected = [row_line(row) for row in difference.expected]
    found = [row_line(row) for row in difference.found]
    for kind, a, b, c, d in SequenceMatcher(None, expected, found, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from (f"  {line}" for line in expected[a:b])
            continue
        yield from (f"- {line}" for line in expected[a:b])
        yield from (f"+ {line}" for line in found[c:d])
    if not found:
        yield "  (the table has no rows)"
