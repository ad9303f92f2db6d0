"""Loads the pipeline files of a command, and keeps their secrets out of its output."""

import os
from pathlib import Path

from headwater.core_log.foundation.database_url import NOT_SET
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.loader import LoadedPipeline, check, load, redaction_of
from headwater.pipelines.terminal.output import Output


def load_given(output: Output, path: Path, *, reaches_systems: bool = True) -> list[LoadedPipeline]:
    """Returns the pipelines of a file or a directory, with the environment's references. Commands
    without access to systems need no missing reference."""
    environment = dict(os.environ)
    if not reaches_systems:
        missing = check(path, environment=environment, may_be_unset=True).unset
        environment |= {each.variable: NOT_SET for each in missing if each.variable}
    loaded = load(path, environment=environment)
    output.scrub = redaction_of(loaded).scrub
    return loaded


def load_named(output: Output, path: Path, pipeline: str) -> LoadedPipeline:
    """Returns the named pipeline of the files."""
    found = {each.name: each for each in load_given(output, path)}
    if pipeline not in found:
        raise ConfigError(
            "the file does not have a pipeline of this name",
            hint=f"it holds {', '.join(found)}",
            file=str(path),
            pipeline=pipeline,
        )
    return found[pipeline]
