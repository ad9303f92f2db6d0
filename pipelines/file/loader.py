"""Loads pipeline files to checked settings and components, and reports every mistake at once."""

import hashlib
import json
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.config.document import ListNode, MappingNode, YamlNode, plain, read_document
from headwater.config.excerpts import add_excerpt
from headwater.config.mistakes import (
    MISTAKES_SHOWN_MAX,
    Code,
    KeyPath,
    Mistake,
    MistakesFound,
    did_you_mean,
)
from headwater.config.model_keys import fields_of
from headwater.config.redaction import Redaction
from headwater.config.substitution import Substituted, substitute
from headwater.config.validation import Validator
from headwater.core_log.foundation.database_url import NOT_SET
from headwater.pipelines.file.checks import (
    problems_between,
    problems_within,
    remarks_between,
    remarks_within,
)
from headwater.pipelines.file.loaded_parts import (
    SOURCE,
    load_part,
    named_parts,
    part_again,
    with_secrets_of_now,
    without,
)
from headwater.pipelines.file.loaded_parts import LoadedPart as LoadedPart
from headwater.pipelines.file.log_settings import files_at
from headwater.pipelines.file.spec import PipelineSpec

if TYPE_CHECKING:
    from headwater.pipelines.terminal.output import Output


PROCESS_KEYS = ("workers", "tests", "http", "notify")
"""Keys of a pipeline file that change nothing of a running task."""
MACHINE_KEYS = ("path", "listen", "cluster", "fsync", "bootstrap", "security", "rack")
"""Keys of `log` that say how one machine reaches the log."""
DIGEST_DIGITS = 32


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """One pipeline of a file with every reference resolved: it contains secrets."""

    name: str
    path: Path
    directory: Path
    """The directory of relative paths."""
    spec: PipelineSpec
    source: LoadedPart
    sinks: tuple[LoadedPart, ...]
    content: Mapping[str, Any] = field(repr=False)
    """The file without its source and sinks, resolved."""
    redaction: Redaction = field(default_factory=Redaction, repr=False)
    """Removes the secrets of this file from output."""
    digest: str = ""
    """The digest of the file as it is written, see `_file_digest`."""
    data: Path | None = None
    """Directory of the log in place of `log.path`, as `--data` of a command names it."""

    @property
    def log_path(self) -> Path:
        return self.data or (self.directory / self.spec.log.path).resolve()

    def with_log_at(self, data: Path | None) -> "LoadedPipeline":
        """Returns the pipeline with its log in this directory; None leaves it to the file."""
        return self if data is None else replace(self, data=data.resolve())

    def with_secrets_of_now(self) -> "LoadedPipeline":
        """Returns the pipeline with the files of `${file:}` in its source and sinks read again."""
        source, redaction = with_secrets_of_now(self.source, self.path)
        found = [with_secrets_of_now(sink, self.path) for sink in self.sinks]
        sinks = tuple(sink for sink, _ in found)
        if source is self.source and all(map(operator.is_, sinks, self.sinks)):
            return self
        redaction = self.redaction.merge([redaction, *(each for _, each in found)])
        return replace(self, source=source, sinks=sinks, redaction=redaction)

    def to_wire(self) -> bytes:
        """Returns the pipeline for a worker's pipe; it contains secrets, so it is never stored."""
        content = {
            "path": str(self.path),
            "directory": str(self.directory),
            "content": self.content,
            "source": self.source.content,
            "sinks": [sink.content for sink in self.sinks],
            "names": [sink.name for sink in self.sinks],
            "references": [
                [[list(at), text] for at, text in part.references.items()]
                for part in (self.source, *self.sinks)
            ],
            "secrets": sorted(self.redaction.secrets),
            "digest": self.digest,
            "data": None if self.data is None else str(self.data),
        }
        return json.dumps(content).encode()

    @staticmethod
    def from_wire(content: bytes) -> "LoadedPipeline":
        """Returns a checked pipeline again, without reading files or variables."""
        parts = json.loads(content)
        spec = PipelineSpec.model_validate(parts["content"], by_alias=True, by_name=False)
        of_source, *of_sinks = [
            {tuple(at): text for at, text in each} for each in parts["references"]
        ]
        return LoadedPipeline(
            name=spec.name,
            path=Path(parts["path"]),
            directory=Path(parts["directory"]),
            spec=spec,
            source=part_again(SOURCE, parts["source"], is_source=True, references=of_source),
            sinks=tuple(
                part_again(name, sink, is_source=False, references=references)
                for name, sink, references in zip(
                    parts["names"], parts["sinks"], of_sinks, strict=True
                )
            ),
            content=parts["content"],
            redaction=Redaction(parts["secrets"]),
            digest=parts["digest"],
            data=None if parts["data"] is None else Path(parts["data"]),
        )


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """The pipelines of a path, and the references that are missing for a run."""

    pipelines: tuple[LoadedPipeline, ...]
    """Returns pipelines without missing references."""
    unset: tuple[Mistake, ...]
    """References to missing variables and files."""
    remarks: tuple[Mistake, ...]
    """Remarks that are no mistakes."""
    files: tuple[Path, ...]
    names: tuple[str, ...]
    """Names of all pipelines, as far as known."""


def load(path: Path, *, environment: Mapping[str, str]) -> list[LoadedPipeline]:
    """Returns the pipelines of one file, or of every `*.yaml` and `*.yml` directly in a
    directory."""
    return list(check(path, environment=environment).pipelines)


def check(
    path: Path,
    *,
    environment: Mapping[str, str],
    may_be_unset: bool = False,
    reads_expressions: bool = False,
) -> CheckedFile:
    """Checks the files at `path` without any system; raises `MistakesFound` with all mistakes.

    Missing references are mistakes, unless they may be unset. Reading SQL expressions loads DuckDB,
    which no broker does.
    """
    readings = [_Reading.of(each, environment, reads_expressions) for each in files_at(path)]
    mistakes = [mistake for each in readings for mistake in each.mistakes]
    unset = [mistake for each in readings for mistake in each.unset]
    pipelines = [each.pipeline for each in readings if each.pipeline is not None]
    for left, problem, hint in problems_between(pipelines):
        mistakes.append(Mistake(left.path, None, problem, hint, code=Code.NEIGHBOURS))
    wrong = mistakes if may_be_unset else mistakes + unset
    if wrong:
        redaction = Redaction().merge(each.redaction for each in readings)
        raise MistakesFound([_redact(mistake, redaction) for mistake in _order(wrong)])
    remarks = [remark for each in readings for remark in each.remarks]
    for left, problem, hint in remarks_between(pipelines):
        remarks.append(Mistake(left.path, None, problem, hint, code=Code.REMARK))
    return CheckedFile(
        pipelines=tuple(pipelines),
        unset=tuple(unset),
        remarks=tuple(remarks),
        files=tuple(each.path for each in readings),
        names=tuple(each.name for each in readings if each.name),
    )


def load_given(
    output: "Output", path: Path, *, data: Path | None = None, reaches_systems: bool = True
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


def redaction_of(pipelines: Sequence[LoadedPipeline]) -> Redaction:
    return Redaction().merge(each.redaction for each in pipelines)


@dataclass(slots=True)
class _Reading:
    """One file while it is loaded."""

    path: Path
    name: str = ""
    digest: str = ""
    pipeline: LoadedPipeline | None = None
    mistakes: list[Mistake] = field(default_factory=list)
    unset: list[Mistake] = field(default_factory=list)
    remarks: list[Mistake] = field(default_factory=list)
    redaction: Redaction = field(default_factory=Redaction)
    reads_expressions: bool = False

    @staticmethod
    def of(path: Path, environment: Mapping[str, str], reads_expressions: bool) -> "_Reading":
        reading = _Reading(path, reads_expressions=reads_expressions)
        try:
            document = read_document(path)
        except MistakesFound as found:
            reading.mistakes += found.mistakes
            return reading
        if isinstance(document.root, MappingNode):
            reading.digest = _file_digest(document.root)
        reading._read(substitute(document, environment))
        for problems in (reading.mistakes, reading.unset, reading.remarks):
            problems[:] = [
                add_excerpt(each, document, reading.redaction) if at < MISTAKES_SHOWN_MAX else each
                for at, each in enumerate(_order(problems))
            ]
        return reading

    def _read(self, substituted: Substituted) -> None:
        document, self.redaction = substituted.document, substituted.redaction
        self.mistakes += substituted.mistakes
        self.unset += substituted.unset
        root = document.root
        if not isinstance(root, MappingNode):
            problem = "a pipeline file is made of keys and values"
            self.mistakes.append(
                Mistake(self.path, root.text_position, problem, code=Code.WRONG_KIND)
            )
            return
        validator = Validator(document, self.mistakes)
        head = without(root, SOURCE, "sink")
        known = fields_of(PipelineSpec)
        unknown = [key for key in head.values if key not in known]
        for key in unknown[:MISTAKES_SHOWN_MAX]:
            guess = did_you_mean(key, [*known, SOURCE, "sink"])
            place, problem = head.key_positions[key], f"key {key!r} is unknown"
            validator.tell(Code.UNKNOWN_KEY, place, problem, guess, keys=(key,))
        head = without(head, *unknown)
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
            redaction=self.redaction.merge(
                Redaction(_secrets_of(each))
                for each in (spec, source.settings, *(sink.settings for sink in sinks))
            ),
            digest=self.digest,
        )
        for keys, problem, hint in problems_within(self.pipeline):
            validator.tell_at(Code.CONTRADICTION, keys, problem, hint)
        if self.reads_expressions:
            from headwater.pipelines.transforms.after_log import mistakes_in

            for keys, problem, hint in mistakes_in(
                spec.transform, directory=self.pipeline.directory
            ):
                validator.tell_at(Code.BAD_EXPRESSION, keys, problem, hint)
        remarks = Validator(document, self.remarks)
        for keys, problem, hint in remarks_within(self.pipeline):
            remarks.tell_at(Code.REMARK, keys, problem, hint)

    def _source(self, validator: Validator, root: MappingNode) -> LoadedPart | None:
        if SOURCE not in root.values:
            problem = f"the key {SOURCE!r} is missing"
            validator.tell(
                Code.MISSING_KEY, root.text_position, problem, "headwater init", keys=(SOURCE,)
            )
            return None
        return load_part(validator, root.values[SOURCE], (SOURCE,), is_source=True)

    def _sinks(self, validator: Validator, root: MappingNode) -> tuple[LoadedPart, ...] | None:
        """None because of a mistake; without sinks the pipeline only fills the log."""
        if "sink" not in root.values:
            return ()
        given = root.values["sink"]
        nodes: list[tuple[YamlNode, KeyPath]] = (
            [(node, ("sink", at)) for at, node in enumerate(given.items)]
            if isinstance(given, ListNode)
            else [(given, ("sink",))]
        )
        parts = [load_part(validator, node, at, is_source=False) for node, at in nodes]
        named = [part for part in parts if part is not None]
        if len(named) < len(parts):
            return None
        return named_parts(validator, named, [at for _, at in nodes])


def _secrets_of(value: Any) -> set[str]:
    """Returns values that the component declares secret, from any origin."""
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


def _order(mistakes: Sequence[Mistake]) -> list[Mistake]:
    distinct = dict.fromkeys(mistakes)
    return sorted(distinct, key=lambda each: (str(each.path), each.text_position or (0, 0)))


def _redact(mistake: Mistake, redaction: Redaction) -> Mistake:
    return replace(
        mistake, problem=redaction.scrub(mistake.problem), hint=redaction.scrub(mistake.hint)
    )


def _file_digest(root: MappingNode) -> str:
    """References stay as they are written: values of the environment and secrets are each
    machine's own."""
    written = plain(root)
    said = {key: value for key, value in written.items() if key not in PROCESS_KEYS}
    log = said.pop("log", None)
    if isinstance(log, dict):
        said["log"] = {key: value for key, value in log.items() if key not in MACHINE_KEYS}
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]
