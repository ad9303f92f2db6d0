"""Reads the pipeline files that a command was given, and keeps their secrets out of its output."""

import os
from pathlib import Path

from pipelines.loading import LoadedPipeline, check, load, redaction_of
from pipelines.output import Output

PLACEHOLDER = "not-set-here"


def load_given(output: Output, path: Path, *, reaches_systems: bool = True) -> list[LoadedPipeline]:
    """The pipelines of a file or a directory, with the references of this environment; a command
    that reaches no system does not need those that are missing."""
    environment = dict(os.environ)
    if not reaches_systems:
        missing = check(path, environment=environment, may_be_unset=True).unset
        environment |= {each.variable: PLACEHOLDER for each in missing if each.variable}
    loaded = load(path, environment=environment)
    output.scrub = redaction_of(loaded).scrub
    return loaded
