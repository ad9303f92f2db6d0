"""Generates the manual, `explain`, `init` and the JSON Schema of pipeline files from the
settings."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Any, NamedTuple

from headwater.config.mistakes import did_you_mean
from headwater.config.model_keys import fields_of
from headwater.config.reference import (
    WIDTH,
    SettingKey,
    commented_yaml,
    keys_of,
    pipeline_schema,
    summary_of,
)
from headwater.config.registry import known_types
from headwater.connectors import SOURCES
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import Settings
from headwater.pipelines.file.loaded_parts import component_of
from headwater.pipelines.file.spec import PipelineSpec, SinkTask, SourceTask
from headwater.sinks import SINKS


class Component(NamedTuple):
    """A source or a sink, by its YAML `type:`."""

    kind: str
    is_source: bool
    component: type[Any]

    @property
    def word(self) -> str:
        return "source" if self.is_source else "sink"

    @property
    def settings(self) -> type[Settings]:
        settings: type[Settings] = self.component.Settings
        return settings

    @property
    def task(self) -> type[Settings]:
        return SourceTask if self.is_source else SinkTask

    def all_keys(self) -> list[SettingKey]:
        """Returns its own keys and the common ones, of which its own win; `type` first."""
        own = {key.path: key for key in keys_of(self.settings)}
        shared = {key.path: key for key in keys_of(self.task)}
        kind = replace(shared["type"], type=f"`{self.kind}`", text="Says that this is meant.")
        return list(({"type": kind} | shared | own | {"type": kind}).values())


def our_components() -> list[Component]:
    return [
        component(kind, is_source=is_source)
        for is_source, table in ((True, SOURCES), (False, SINKS))
        for kind in table
    ]


def component(kind: str, *, is_source: bool) -> Component:
    return Component(kind, is_source, component_of(kind, is_source=is_source))


def find_components(kind: str, *, word: str = "") -> list[Component]:
    """Returns what `type: kind` can mean: a source, a sink, or both; only a `word` if given."""
    found = [
        component(kind, is_source=is_source)
        for its_word, is_source in (("source", True), ("sink", False))
        if word in ("", its_word) and kind in kinds(is_source=is_source)
    ]
    if not found:
        known = [*kinds(is_source=True), *kinds(is_source=False), *fields_of(PipelineSpec)]
        if word:
            known = kinds(is_source=word == "source")
        raise ConfigError(
            f"{word or 'type or key'} {kind!r} is unknown",
            hint=did_you_mean(kind, sorted(set(known))),
        )
    return found


def kinds(*, is_source: bool) -> list[str]:
    table, group = (SOURCES, "headwater.sources") if is_source else (SINKS, "headwater.sinks")
    return sorted(known_types(table, group=group))


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema for editors, with our own types."""
    models: dict[bool, dict[str, tuple[type[Settings], ...]]] = {True: {}, False: {}}
    for each in our_components():
        models[each.is_source][each.kind] = (each.settings, each.task)
    return pipeline_schema(PipelineSpec, sources=models[True], sinks=models[False])


def commented_file(source: Component, sinks: Sequence[Component]) -> str:
    """Returns a pipeline file with every key; optional keys are commented out."""
    first = {"pipeline"}
    others = set(fields_of(PipelineSpec)) - first
    return "\n".join(
        [
            HOW_TO_READ,
            *commented_yaml(PipelineSpec, leaving_out=others),
            *_commented_part(source),
            "",
            *_commented_sinks(sinks),
            "",
            *commented_yaml(PipelineSpec, leaving_out=first),
        ]
    )


def _commented_part(part: Component) -> list[str]:
    own = {*fields_of(part.settings), "type"}
    return [
        *(f"# {line}" for line in wrap(summary_of(part.component), WIDTH)),
        f"{part.word}:",
        f"  type: {part.kind}",
        *commented_yaml(part.settings, indent=2, leaving_out={"type"}),
        *commented_yaml(part.task, indent=2, leaving_out=own),
    ]


def _commented_sinks(sinks: Sequence[Component]) -> Iterator[str]:
    if len(sinks) == 1:
        yield from _commented_part(sinks[0])
        return
    yield "sink:"
    for sink in sinks:
        lines = _commented_part(sink)
        at = lines.index("sink:")
        yield from (f"  {line}" for line in lines[:at])
        yield f"  - {lines[at + 1].lstrip()}"
        yield from (f"  {line}" for line in lines[at + 2 :])


HOW_TO_READ = """\
# A Headwater pipeline. A key behind a # without a space has its default, or is an example:
# take the sign away to change it. `headwater explain KEY` says what it does, and
# `headwater check` finds what is wrong.
"""
