"""A sink that is no part of a pipeline file: named on the command line, or another's elsewhere."""

from collections.abc import Collection, Mapping
from pathlib import Path, PurePath

from headwater.config.document import ListNode, MappingNode, parse_document
from headwater.config.mistake_codes import Code
from headwater.config.mistakes import MistakesFound
from headwater.config.redaction import Redaction
from headwater.config.substitution import substitute
from headwater.config.validation import Validator
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.loaded_parts import LoadedPart, load_part, part_again

PLACES = ("path", "url")
"""Keys that say where a sink's target is."""
NAME = "replay"
"""What such a sink is called where it is given no name: two pipelines, or two sinks of one, keep
their tables apart by it."""


def sink_elsewhere(part: LoadedPart, place: str) -> LoadedPart:
    """The same sink with its target at another place."""
    key = next((key for key in PLACES if key in part.content), None)
    if key is None:
        raise ConfigError(
            "this kind of sink has no place that could be another", sink=part.name, type=part.kind
        )
    if str(part.content[key]) == place or PurePath(str(part.content[key])) == PurePath(place):
        raise ConfigError(
            "that is where the live table is",
            hint="--swap puts a copy in its place; --into wants another one",
            sink=part.name,
        )
    return part_again(part.name, {**part.content, key: place}, is_source=False)


def sink_of_words(
    words: str, *, taken: Collection[str], environment: Mapping[str, str]
) -> tuple[LoadedPart, Redaction]:
    """`console`, or `{type: files, path: ./out}`: a type, or the keys as a pipeline file has them;
    and what hides the secrets among them."""
    if words in taken:
        raise ConfigError(
            "that sink is fed already, and stands where it stands",
            hint="headwater rebuild PIPELINE/TABLE --swap makes its table anew; `{type: ...}` names"
            " another target",
            sink=words,
        )
    text = words if words.startswith("{") else f"{{type: {words}}}"
    substituted = substitute(parse_document(text.encode(), Path("--into")), environment)
    document = substituted.document
    validator = Validator(document, [*substituted.mistakes, *substituted.unset])
    if not isinstance(document.root, MappingNode | ListNode):
        validator.tell(Code.WRONG_KIND, document.root.place, "should be keys with values")
    part = load_part(validator, document.root, (), is_source=False)
    if part is None or validator.mistakes:
        raise MistakesFound(validator.mistakes)
    named = "name" in part.content
    name = part.name if named else NAME
    if name in taken:
        raise ConfigError("a sink of the pipeline has that name", sink=name, hint="give it another")
    return part_again(name, dict(part.content), is_source=False), substituted.redaction
