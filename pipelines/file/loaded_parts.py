"""A source or a sink of a pipeline file: its class, and its checked settings."""

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from headwater.config.debezium import translate
from headwater.config.document import (
    ListNode,
    MappingNode,
    ScalarNode,
    YamlNode,
    parse_document,
    plain,
    references_in,
)
from headwater.config.mistakes import MISTAKES_SHOWN_MAX, Code, KeyPath, MistakesFound, did_you_mean
from headwater.config.model_keys import fields_of
from headwater.config.redaction import Redaction
from headwater.config.registry import load_settings, load_type
from headwater.config.substitution import read_again, substitute
from headwater.config.validation import Validator
from headwater.connectors import SETTINGS as SOURCE_SETTINGS
from headwater.connectors import SOURCES
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import Settings
from headwater.pipelines.file.spec import SinkTask, SourceTask
from headwater.pipelines.reports import VERIFY
from headwater.sinks import SETTINGS as SINK_SETTINGS
from headwater.sinks import SINKS

if TYPE_CHECKING:
    from headwater.core_log.model.table_schema import TableId

SOURCE = "source"
"""The name of the task that reads the source."""
TARGET_KEYS = ("path", "url")
"""Keys that name a sink's target."""
REPLAY = "replay"
"""The name of such a sink without one; two pipelines, or two sinks of one, keep their tables apart
by it."""


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """A source or a sink: its class and its settings; nothing is opened yet."""

    name: str
    """The task's name: `source`, or a sink's own."""
    kind: str
    """The value of `type:`."""
    component: Callable[..., Any] = field(compare=False)
    """Made as `component(settings, context)`; the class is loaded only then."""
    settings: Settings
    task: SourceTask | SinkTask
    """The keys that do not depend on the type. A component that declares one of them itself, such
    as another default of `commit_every`, has it in `settings`; see `task_setting`."""
    content: Mapping[str, Any] = field(repr=False)
    """The part of the file, with references resolved."""
    references: Mapping[KeyPath, str] = field(default_factory=dict, repr=False)
    """Values with references to files, by their place in `content`."""

    def task_setting(self, name: str) -> Any:
        """Returns a field of `task`, from the component's settings if they declare it."""
        return getattr(self.settings if hasattr(self.settings, name) else self.task, name)

    def table_settings(self, table: "TableId") -> Any:
        """Returns how the sink keeps one table; None if its tables have no settings."""
        return self.settings.of(str(table)) if hasattr(self.settings, "of") else None


def component_of(kind: str, *, is_source: bool) -> type[Any]:
    if is_source:
        return load_type(kind, SOURCES, group="headwater.sources")
    return load_type(kind, SINKS, group="headwater.sinks")


def settings_of(kind: str, *, is_source: bool) -> type[Settings]:
    if is_source:
        return load_settings(kind, SOURCE_SETTINGS, SOURCES, group="headwater.sources")
    return load_settings(kind, SINK_SETTINGS, SINKS, group="headwater.sinks")


def _make(kind: str, *arguments: Any, is_source: bool) -> Any:
    return component_of(kind, is_source=is_source)(*arguments)


def load_part(
    validator: Validator, node: YamlNode, at: KeyPath, *, is_source: bool
) -> LoadedPart | None:
    """Returns a source or a sink; mistakes are added to `validator`."""
    word = "source" if is_source else "sink"
    if not isinstance(node, MappingNode):
        if not isinstance(node, ScalarNode) or not node.is_unset:
            hint = f"write `type:` below `{word}:`"
            validator.tell(
                Code.WRONG_KIND, node.text_position, "should be keys with values", hint, keys=at
            )
        return None
    kind = node.values.get("type")
    if not isinstance(kind, ScalarNode):
        validator.tell_at(
            Code.MISSING_KEY, at, f"the key 'type' is missing in {word!r}", "headwater explain"
        )
        return None
    if kind.is_unset:
        return None
    try:
        model = settings_of(kind.text, is_source=is_source)
    except ConfigError as error:
        validator.tell(Code.UNKNOWN_TYPE, kind.text_position, error.problem, error.hint)
        return None
    return _validate(validator, node, at, kind.text, model, is_source=is_source)


def _validate(
    validator: Validator,
    node: MappingNode,
    at: KeyPath,
    kind: str,
    model: type[Settings],
    *,
    is_source: bool,
) -> LoadedPart | None:
    """Passes each key to the component if it declares it, else to the common keys."""
    task_model: type[SourceTask] | type[SinkTask] = SourceTask if is_source else SinkTask
    own = set(fields_of(model))
    shared = set(fields_of(task_model)) - own | {"type"}
    if is_source:
        translated = translate(node, known=frozenset(own | shared))
        for place, problem, hint in translated.mistakes:
            validator.tell(Code.DEBEZIUM_OPTION, place, problem, hint)
        node = translated.node
    left = [key for key in node.values if key not in own and key not in shared]
    for key in left[:MISTAKES_SHOWN_MAX]:
        validator.tell(
            Code.UNKNOWN_KEY,
            node.key_positions[key],
            f"key {key!r} is unknown",
            did_you_mean(key, sorted(own | shared)),
            keys=(*at, key),
        )
    task = validator.validate(task_model, without(node, *(set(node.values) - shared)), at)
    others = set(node.values) - own
    settings = validator.validate(model, without(node, *others), at)
    if task is None or settings is None or left:
        return None
    name = SOURCE if is_source else (task.name or kind)
    component = partial(_make, kind, is_source=is_source)
    return LoadedPart(
        name, kind, component, settings, task, content=plain(node), references=references_in(node)
    )


def part_again(
    name: str,
    content: dict[str, Any],
    *,
    is_source: bool,
    references: Mapping[KeyPath, str] | None = None,
) -> LoadedPart:
    kind = content["type"]
    model = settings_of(kind, is_source=is_source)
    task_model: type[SourceTask] | type[SinkTask] = SourceTask if is_source else SinkTask
    own = set(fields_of(model))
    shared = set(fields_of(task_model)) - own | {"type"}
    settings = model.model_validate(
        {key: value for key, value in content.items() if key in own}, by_alias=True, by_name=False
    )
    task = task_model.model_validate(
        {key: value for key, value in content.items() if key in shared},
        by_alias=True,
        by_name=False,
    )
    component = partial(_make, kind, is_source=is_source)
    return LoadedPart(
        name, kind, component, settings, task, content=content, references=references or {}
    )


def with_secrets_of_now(part: LoadedPart, path: Path) -> tuple[LoadedPart, Redaction]:
    """Returns the part with the files of its references read again, and a redaction of what is new.
    While one cannot be read, its former value stays."""
    content: Any = None
    redaction = Redaction()
    for at, reference in part.references.items():
        found = read_again(reference, path)
        if found is None or found[0] == _value_at(part.content, at):
            continue
        content = copy.deepcopy(part.content) if content is None else content
        _value_at(content, at[:-1])[at[-1]] = found[0]
        redaction = redaction.merge([found[1]])
    if content is None:
        return part, redaction
    again = part_again(
        part.name, content, is_source=part.name == SOURCE, references=part.references
    )
    return again, redaction


def _value_at(content: Any, at: KeyPath) -> Any:
    for key in at:
        content = content[key]
    return content


def named_parts(
    validator: Validator, parts: list[LoadedPart], places: list[KeyPath]
) -> tuple[LoadedPart, ...] | None:
    """Names sinks without a name by their type, the second one `-2`."""
    taken: set[str] = {SOURCE, VERIFY}
    named: list[LoadedPart] = []
    for part, at in zip(parts, places, strict=True):
        assert isinstance(part.task, SinkTask), "sinks have the keys of sinks"
        name, count = part.name, 1
        while name in taken and not part.task.name:
            count += 1
            name = f"{part.name}-{count}"
        if name in taken:
            problem = f"the name {name!r} is taken"
            validator.tell_at(Code.CONTRADICTION, (*at, "name"), problem, "choose another one")
            return None
        taken.add(name)
        named.append(replace(part, name=name))
    return tuple(named)


def without(mapping: MappingNode, *keys: str) -> MappingNode:
    left_out = set(keys)
    kept = {key: value for key, value in mapping.values.items() if key not in left_out}
    return replace(mapping, values=kept)


def sink_elsewhere(part: LoadedPart, place: str) -> LoadedPart:
    key = next((key for key in TARGET_KEYS if key in part.content), None)
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
    name = part.name if named else REPLAY
    if name in taken:
        raise ConfigError(
            "a sink of the pipeline already has this name", sink=name, hint="give it another"
        )
    return part_again(name, dict(part.content), is_source=False), substituted.redaction
