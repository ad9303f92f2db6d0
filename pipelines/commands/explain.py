"""`headwater explain`: describes a source, a sink or a key of the pipeline file."""

from collections.abc import Callable, Iterable, Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from headwater.connectors import SOURCES
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.output import Output, shared_options
from headwater.sinks import SINKS

if TYPE_CHECKING:
    from headwater.config.reference import SettingKey


def completer(
    *names: Iterable[str],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Returns names that begin with the typed text; from tables, so that nothing is imported."""
    known = sorted({name for each in names for name in each})

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
        return [name for name in known if name.startswith(begun)]

    return complete


WIDTH = 92


@click.command()
@click.argument(
    "what", metavar="[TYPE[.KEY]]", required=False, shell_complete=completer(SOURCES, SINKS)
)
@click.option("--json-schema", is_flag=True, help="Print the JSON Schema of the file, for editors.")
@shared_options
@click.pass_obj
def explain(output: Output, what: str | None, json_schema: bool) -> None:
    """Describe a source, a sink or a key of the pipeline file.

    TYPE is a value of `type:`, or a key of the file such as log or errors.retry; without it all of
    them are listed. A type of both sources and sinks is shown twice; source.TYPE and sink.TYPE
    select one.
    """
    if json_schema:
        import json

        from headwater.pipelines.file.reference import json_schema as schema_of_files

        schema = schema_of_files()
        output.result(schema, [json.dumps(schema, indent=2)])
    elif what is None:
        _list_all(output)
    else:
        _tell(output, what)


def _list_all(output: Output) -> None:
    from headwater.config.model_keys import fields_of
    from headwater.config.reference import one_line
    from headwater.core_log.foundation.settings import explanations_of
    from headwater.pipelines.file.reference import kinds
    from headwater.pipelines.file.spec import PipelineSpec
    from headwater.pipelines.terminal.output import table

    rows = [
        (word, kind, _summary(kind, is_source=is_source))
        for word, is_source in (("source", True), ("sink", False))
        for kind in kinds(is_source=is_source)
    ]
    rows += [
        ("key", name, one_line(text))
        for name, text in zip(
            fields_of(PipelineSpec), explanations_of(PipelineSpec).values(), strict=True
        )
    ]
    answer = [dict(zip(("kind", "name", "summary"), row, strict=True)) for row in rows]
    output.result(answer, table(("KIND", "NAME", "SUMMARY"), rows))


def _summary(kind: str, *, is_source: bool) -> str:
    """Returns the summary; a type that cannot be loaded is listed too, as it may be another
    package's."""
    from headwater.config.reference import summary_of
    from headwater.pipelines.file.loaded_parts import component_of

    try:
        return summary_of(component_of(kind, is_source=is_source))
    except ConfigError as error:
        return error.problem


def _tell(output: Output, what: str) -> None:
    from headwater.config.model_keys import fields_of
    from headwater.config.reference import keys_below, keys_called, keys_of, summary_of
    from headwater.pipelines.file.reference import find_components
    from headwater.pipelines.file.spec import PipelineSpec

    name, _, path = what.partition(".")
    wanted = ""
    if name in ("source", "sink") and path:
        wanted = name
        name, _, path = path.partition(".")
    sections: list[tuple[str, str, list[SettingKey]]] = []
    if not wanted and name in fields_of(PipelineSpec):
        sections.append((what, "", keys_below(keys_of(PipelineSpec), what)))
    elif not wanted and (found := keys_called(keys_of(PipelineSpec), what)):
        sections.append((what, "", found))
    else:
        for each in find_components(name, word=wanted):
            summary = "" if path else summary_of(each.component)
            keys = keys_below(each.all_keys(), path)
            sections.append((f"{each.kind} ({each.word})", summary, keys))
    sections = [section for section in sections if section[2]]
    if not sections:
        raise ConfigError(f"{name!r} has no key {path!r}", hint=f"headwater explain {name}")
    answer = [
        {"name": title, "summary": summary or None, "keys": [key.as_json() for key in keys]}
        for title, summary, keys in sections
    ]
    output.result(answer, (line for section in sections for line in _section(output, *section)))


def _section(
    output: Output, title: str, summary: str, keys: Iterable["SettingKey"]
) -> Iterator[str]:
    yield output.style(title, fg="cyan", bold=True)
    if summary:
        yield summary
    for key in keys:
        yield ""
        default = "required" if key.is_required else f"default {key.default}" * bool(key.default)
        yield "  ".join(filter(None, (output.style(key.path, fg="green"), key.type, default)))
        yield from (f"    {line}" for line in wrap(key.text, WIDTH))
        yield from (f"    for example: {example}" for example in key.examples)
    yield ""
