"""Loads the pipeline files of a command, and keeps their secrets out of its output."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path, PurePath

from pydantic import ValidationError

from headwater.config.document import ListNode, MappingNode, parse_document
from headwater.config.mistakes import Code, MistakesFound
from headwater.config.redaction import Redaction
from headwater.config.substitution import substitute
from headwater.config.validation import Validator
from headwater.core_log.foundation.database_url import NOT_SET
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.loaded_parts import LoadedPart, load_part, part_again
from headwater.pipelines.file.loader import LoadedPipeline, check, load, redaction_of
from headwater.pipelines.terminal.output import Output


def load_given(
    output: Output, path: Path, *, data: Path | None = None, reaches_systems: bool = True
) -> list[LoadedPipeline]:
    """Returns the pipelines of a file or a directory, with the environment's references. Commands
    without access to systems need no missing reference. `data` stands in place of `log.path`."""
    environment = dict(os.environ)
    if not reaches_systems:
        missing = check(path, environment=environment, may_be_unset=True).unset
        environment |= {each.variable: NOT_SET for each in missing if each.variable}
    loaded = load(path, environment=environment)
    output.scrub = redaction_of(loaded).scrub
    return [each.with_log_at(data) for each in loaded]


PLACES = ("path", "url")
"""Keys that name a sink's target."""
NAME = "replay"
"""The name of such a sink without one; two pipelines, or two sinks of one, keep their tables apart
by it."""


def sink_elsewhere(part: LoadedPart, place: str) -> LoadedPart:
    key = next((key for key in PLACES if key in part.content), None)
    if key is None:
        raise ConfigError(
            "a sink of this type cannot have another target", sink=part.name, type=part.kind
        )
    if str(part.content[key]) == place or PurePath(str(part.content[key])) == PurePath(place):
        raise ConfigError(
            "the target is that of the live table",
            hint="--swap puts a copy in its place; --into wants another one",
            sink=part.name,
        )
    try:
        return part_again(part.name, {**part.content, key: place}, is_source=False)
    except ValidationError as error:
        raise ConfigError(
            "the target does not fit the type of the sink",
            sink=part.name,
            type=part.kind,
            why=error.errors()[0]["msg"],
        ) from None


def sink_of_words(
    words: str, *, taken: Collection[str], environment: Mapping[str, str]
) -> tuple[LoadedPart, Redaction]:
    """Returns the sink of `console`, or of `{type: files, path: ./out}`, with a redaction of its
    secrets."""
    if words in taken:
        raise ConfigError(
            "the sink belongs to the pipeline and has its own offsets",
            hint="headwater rebuild PIPELINE/TABLE --swap rebuilds its table; `{type: ...}` names"
            " another target",
            sink=words,
        )
    text = words if words.startswith("{") else f"{{type: {words}}}"
    substituted = substitute(parse_document(text.encode(), Path("--into")), environment)
    document = substituted.document
    validator = Validator(document, [*substituted.mistakes, *substituted.unset])
    if not isinstance(document.root, MappingNode | ListNode):
        validator.tell(Code.WRONG_KIND, document.root.text_position, "should be keys with values")
    part = load_part(validator, document.root, (), is_source=False)
    if part is None or validator.mistakes:
        raise MistakesFound(validator.mistakes)
    named = "name" in part.content
    name = part.name if named else NAME
    if name in taken:
        raise ConfigError(
            "a sink of the pipeline already has this name", sink=name, hint="give it another"
        )
    return part_again(name, dict(part.content), is_source=False), substituted.redaction
