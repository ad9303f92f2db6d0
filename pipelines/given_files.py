"""Reads the pipeline files that a command was given, and keeps their secrets out of its output."""

import os
from pathlib import Path

from pipelines.loading import LoadedPipeline, load, redaction_of
from pipelines.output import Output


def load_given(output: Output, path: Path) -> list[LoadedPipeline]:
    """The pipelines of a file or a directory, with the references of this environment."""
    loaded = load(path, environment=os.environ)
    output.scrub = redaction_of(loaded).scrub
    return loaded
