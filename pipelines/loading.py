"""From a pipeline file, or a directory of them, to settings that are checked and components that
are found; every mistake of every file is told at once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from config.debezium import translate
from config.document import ListNode, MappingNode, Node, ScalarNode, plain, read_document
from config.mistakes import Mistake, MistakesFound, did_you_mean
from config.model_keys import fields_of
from config.redaction import Redaction
from config.registry import load_type
from config.substitution import Substituted, substitute
from config.validation import Keys, Validator
from connectors import SOURCES
from core_log.errors import ConfigError
from core_log.settings import Settings
from pipelines.checks import problems_between, problems_within, remarks_within
from pipelines.spec import PipelineSpec, SinkUnit, SourceUnit
from sinks import SINKS

SUFFIXES = (".yaml", ".yml")
FILES_MAX = 1_000
SOURCE = "source"
"""The name of the unit that reads the source."""


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """A source or a sink: its class and its settings, nothing opened yet."""

    name: str
    """The unit's name: `source`, or a sink's own."""
    kind: str
    """What `type:` says."""
    component: type[Any]
    """Made as `component(settings, context)`."""
    settings: Settings
    unit: SourceUnit | SinkUnit
    """The keys that do not depend on the type. A component that declares one of them itself, such
    as another default of `commit_every`, has it in `settings`; see `unit_setting`."""
    content: Mapping[str, Any] = field(repr=False)
    """The part as the file has it, resolved."""

    def unit_setting(self, name: str) -> Any:
        """A field of `unit`, from the component's settings where they declare it."""
        return getattr(self.settings if hasattr(self.settings, name) else self.unit, name)


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """One pipeline, as a file says it, with every reference resolved: it holds secrets."""

    name: str
    path: Path
    directory: Path
    """Relative paths are meant from here."""
    spec: PipelineSpec
    source: LoadedPart
    sinks: tuple[LoadedPart, ...]
    content: Mapping[str, Any] = field(repr=False)
    """The file without its source and sinks, resolved."""
    redaction: Redaction = field(default_factory=Redaction, repr=False)
    """Takes the secrets of this file out of whatever is said."""

    @property
    def log_path(self) -> Path:
        """The embedded log's directory."""
        return (self.directory / self.spec.log.path).resolve()

    def to_wire(self) -> bytes:
        """For a worker process, over a pipe; secrets included, so never for a file or a topic."""
        content = {
            "path": str(self.path),
            "directory": str(self.directory),
            "content": self.content,
            "source": self.source.content,
            "sinks": [sink.content for sink in self.sinks],
            "names": [sink.name for sink in self.sinks],
            "secrets": sorted(self.redaction.secrets),
        }
        return json.dumps(content).encode()

    @staticmethod
    def from_wire(content: bytes) -> "LoadedPipeline":
        """Made again from what was checked before; nothing is read from files or variables."""
        parts = json.loads(content)
        spec = PipelineSpec.model_validate(parts["content"], by_alias=True, by_name=False)
        return LoadedPipeline(
            name=spec.name,
            path=Path(parts["path"]),
            directory=Path(parts["directory"]),
            spec=spec,
            source=_part_again(SOURCE, parts["source"], is_source=True),
            sinks=tuple(
                _part_again(name, sink, is_source=False)
                for name, sink in zip(parts["names"], parts["sinks"], strict=True)
            ),
            content=parts["content"],
            redaction=Redaction(parts["secrets"]),
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """What a path holds: its pipelines, and what a run would still need."""

    pipelines: tuple[LoadedPipeline, ...]
    """Without those that hold references to what is not there."""
    unset: tuple[Mistake, ...]
    """References to variables and files that are not there, here and now."""
    remarks: tuple[Mistake, ...]
    """What is no mistake, but worth a thought."""
    files: tuple[Path, ...]
    names: tuple[str, ...]
    """Of all pipelines, as far as they can be told."""


def load(path: Path, *, environment: Mapping[str, str]) -> list[LoadedPipeline]:
    """The pipelines of one file, or of every `*.yaml` and `*.yml` straight below a directory."""
    return list(check(path, environment=environment).pipelines)


def check(path: Path, *, environment: Mapping[str, str], may_be_unset: bool = False) -> Checked:
    """Everything that can be known of the files at `path` without any system; raises
    `MistakesFound` with all that is wrong. References to what is not there are mistakes too,
    unless they may be unset."""
    readings = [_Reading.of(each, environment) for each in files_at(path)]
    mistakes = [mistake for each in readings for mistake in each.mistakes]
    unset = [mistake for each in readings for mistake in each.unset]
    pipelines = [each.pipeline for each in readings if each.pipeline is not None]
    for left, problem, hint in problems_between(pipelines):
        mistakes.append(Mistake(left.path, None, problem, hint))
    wrong = mistakes if may_be_unset else mistakes + unset
    if wrong:
        redaction = Redaction().joined(each.redaction for each in readings)
        raise MistakesFound([_scrubbed(mistake, redaction) for mistake in _ordered(wrong)])
    return Checked(
        pipelines=tuple(pipelines),
        unset=tuple(unset),
        remarks=tuple(remark for each in readings for remark in each.remarks),
        files=tuple(each.path for each in readings),
        names=tuple(each.name for each in readings if each.name),
    )


def files_at(path: Path) -> list[Path]:
    """The file itself, or a directory's pipeline files in the order of their names."""
    if not path.is_dir():
        return [path]
    found = sorted(
        each for each in path.iterdir() if each.suffix in SUFFIXES and not each.name.startswith(".")
    )
    if not found:
        raise ConfigError(
            "the directory holds no pipeline file", directory=str(path), hint="headwater init"
        )
    if len(found) > FILES_MAX:
        raise ConfigError(
            "the directory holds too many pipeline files", files=len(found), at_most=FILES_MAX
        )
    return found


def redaction_of(pipelines: Sequence[LoadedPipeline]) -> Redaction:
    """Takes the secrets of all of them out of whatever is said."""
    return Redaction().joined(each.redaction for each in pipelines)


def component_of(kind: str, *, is_source: bool) -> type[Any]:
    """The class behind a `type:`."""
    if is_source:
        return load_type(kind, SOURCES, group="headwater.sources")
    return load_type(kind, SINKS, group="headwater.sinks")


@dataclass(slots=True)
class _Reading:
    """One file on its way to a pipeline."""

    path: Path
    name: str = ""
    pipeline: LoadedPipeline | None = None
    mistakes: list[Mistake] = field(default_factory=list)
    unset: list[Mistake] = field(default_factory=list)
    remarks: list[Mistake] = field(default_factory=list)
    redaction: Redaction = field(default_factory=Redaction)

    @staticmethod
    def of(path: Path, environment: Mapping[str, str]) -> "_Reading":
        reading = _Reading(path)
        try:
            reading._read(substitute(read_document(path), environment))
        except MistakesFound as found:
            reading.mistakes += found.mistakes
        return reading

    def _read(self, substituted: Substituted) -> None:
        document, self.redaction = substituted.document, substituted.redaction
        self.mistakes += substituted.mistakes
        self.unset += substituted.unset
        root = document.root
        if not isinstance(root, MappingNode):
            self.mistakes.append(
                Mistake(self.path, root.place, "a pipeline file is made of keys and values")
            )
            return
        validator = Validator(document, self.mistakes)
        head = _without(root, SOURCE, "sink")
        for key in _misspelled_parts(head):
            validator.tell(head.key_places[key], f"there is no key {key!r}", _part_guess(key))
            head = _without(head, key)
        spec = validator.validate(PipelineSpec, head, ())
        source, sinks = self._source(validator, root), self._sinks(validator, root)
        if spec is not None:
            self.name = spec.name
        if spec is None or source is None or sinks is None or self.unset or self.mistakes:
            return
        self.pipeline = LoadedPipeline(
            name=spec.name,
            path=self.path,
            directory=self.path.resolve().parent,
            spec=spec,
            source=source,
            sinks=sinks,
            content=plain(head),
            redaction=self.redaction.joined(
                Redaction(_secrets_of(each))
                for each in (spec, source.settings, *(sink.settings for sink in sinks))
            ),
        )
        for keys, problem, hint in problems_within(self.pipeline):
            validator.tell_at(keys, problem, hint)
        remarks = Validator(document, self.remarks)
        for keys, problem, hint in remarks_within(self.pipeline):
            remarks.tell_at(keys, problem, hint)

    def _source(self, validator: Validator, root: MappingNode) -> LoadedPart | None:
        if SOURCE not in root.values:
            validator.tell(root.place, f"the key {SOURCE!r} is missing", "headwater init")
            return None
        return _part(validator, root.values[SOURCE], (SOURCE,), is_source=True)

    def _sinks(self, validator: Validator, root: MappingNode) -> tuple[LoadedPart, ...] | None:
        if "sink" not in root.values:
            validator.tell(root.place, "the key 'sink' is missing", "headwater init")
            return None
        given = root.values["sink"]
        if isinstance(given, ListNode) and not given.items:
            validator.tell(given.place, "should have at least 1 of them")
            return None
        nodes: list[tuple[Node, Keys]] = (
            [(node, ("sink", at)) for at, node in enumerate(given.items)]
            if isinstance(given, ListNode)
            else [(given, ("sink",))]
        )
        parts = [_part(validator, node, at, is_source=False) for node, at in nodes]
        named = [part for part in parts if part is not None]
        if len(named) < len(parts):
            return None
        return _named(validator, named, [at for _, at in nodes])


def _part(validator: Validator, node: Node, at: Keys, *, is_source: bool) -> LoadedPart | None:
    """A source or a sink; what is wrong with it is told to `validator`."""
    word = "source" if is_source else "sink"
    if isinstance(node, ScalarNode) and not node.is_unset:
        validator.tell(node.place, "should be keys with values", f"write `type:` below `{word}:`")
        return None
    kind = node.values.get("type") if isinstance(node, MappingNode) else None
    if not isinstance(node, MappingNode) or not isinstance(kind, ScalarNode):
        validator.tell_at(at, f"the key 'type' is missing in {word!r}", "headwater explain")
        return None
    if kind.is_unset:
        return None
    try:
        component = component_of(kind.text, is_source=is_source)
    except ConfigError as error:
        validator.tell(kind.place, error.problem, error.hint)
        return None
    return _validated(validator, node, at, kind.text, component, is_source=is_source)


def _validated(
    validator: Validator,
    node: MappingNode,
    at: Keys,
    kind: str,
    component: type[Any],
    *,
    is_source: bool,
) -> LoadedPart | None:
    """Each key goes to the component if it declares it, else to what all units have."""
    unit_model: type[SourceUnit] | type[SinkUnit] = SourceUnit if is_source else SinkUnit
    own = set(fields_of(component.Settings))
    shared = set(fields_of(unit_model)) - own | {"type"}
    if is_source:
        translated = translate(node, known=frozenset(own | shared))
        for place, problem, hint in translated.mistakes:
            validator.tell(place, problem, hint)
        node = translated.node
    left = {key for key in node.values if key not in own and key not in shared}
    for key in left:
        validator.tell(
            node.key_places[key],
            f"there is no key {key!r}",
            did_you_mean(key, sorted(own | shared)),
        )
    unit = validator.validate(unit_model, _without(node, *(set(node.values) - shared)), at)
    others = set(node.values) - own
    settings = validator.validate(component.Settings, _without(node, *others), at)
    if unit is None or settings is None or left:
        return None
    name = SOURCE if is_source else (unit.name or kind)
    return LoadedPart(name, kind, component, settings, unit, content=plain(node))


def _part_again(name: str, content: dict[str, Any], *, is_source: bool) -> LoadedPart:
    component = component_of(content["type"], is_source=is_source)
    unit_model: type[SourceUnit] | type[SinkUnit] = SourceUnit if is_source else SinkUnit
    own = set(fields_of(component.Settings))
    shared = set(fields_of(unit_model)) - own | {"type"}
    settings = component.Settings.model_validate(
        {key: value for key, value in content.items() if key in own}, by_alias=True, by_name=False
    )
    unit = unit_model.model_validate(
        {key: value for key, value in content.items() if key in shared},
        by_alias=True,
        by_name=False,
    )
    return LoadedPart(name, content["type"], component, settings, unit, content=content)


def _named(
    validator: Validator, parts: list[LoadedPart], places: list[Keys]
) -> tuple[LoadedPart, ...] | None:
    """Sinks without a name are called by their type, the second one `-2`."""
    taken: set[str] = {SOURCE}
    named: list[LoadedPart] = []
    for part, at in zip(parts, places, strict=True):
        assert isinstance(part.unit, SinkUnit), "sinks have the keys of sinks"
        name, count = part.name, 1
        while name in taken and not part.unit.name:
            count += 1
            name = f"{part.name}-{count}"
        if name in taken:
            validator.tell_at((*at, "name"), f"the name {name!r} is taken", "choose another one")
            return None
        taken.add(name)
        named.append(replace(part, name=name))
    return tuple(named)


def _without(mapping: MappingNode, *keys: str) -> MappingNode:
    return replace(
        mapping, values={key: value for key, value in mapping.values.items() if key not in keys}
    )


def _misspelled_parts(head: MappingNode) -> list[str]:
    """Unknown keys that may be meant for the two that are no fields of `PipelineSpec`."""
    known = set(fields_of(PipelineSpec))
    return [key for key in head.values if key not in known]


def _part_guess(key: str) -> str:
    return did_you_mean(key, [*fields_of(PipelineSpec), SOURCE, "sink"])


def _secrets_of(value: Any) -> set[str]:
    """What the component itself declares to be secret, wherever it came from."""
    from pydantic import BaseModel, SecretStr

    if isinstance(value, SecretStr):
        return {value.get_secret_value()} - {""}
    if isinstance(value, BaseModel):
        value = [getattr(value, name) for name in type(value).model_fields]
    elif isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return {secret for each in value for secret in _secrets_of(each)}
    return set()


def _ordered(mistakes: Sequence[Mistake]) -> list[Mistake]:
    distinct = dict.fromkeys(mistakes)
    return sorted(distinct, key=lambda each: (str(each.path), each.place or (0, 0)))


def _scrubbed(mistake: Mistake, redaction: Redaction) -> Mistake:
    return replace(
        mistake, problem=redaction.scrub(mistake.problem), hint=redaction.scrub(mistake.hint)
    )
