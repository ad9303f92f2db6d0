"""`headwater init`, `check` and `explain`: a pipeline file and its keys, without any system."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from headwater.connectors import SOURCES
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.output import Output, format_count, shared_options
from headwater.sinks import SINKS

if TYPE_CHECKING:
    from headwater.config.reference import SettingKey

BEGINNING = ("generator", "console")
"""The default, which runs without any other system."""
WIDTH = 92


def completer(
    *names: Iterable[str],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Returns names that begin with the typed text; from tables, so that nothing is imported."""
    known = sorted({name for each in names for name in each})

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
        return [name for name in known if name.startswith(begun)]

    return complete


@click.command()
@click.argument("types", metavar="[TYPE]...", nargs=-1, shell_complete=completer(SOURCES, SINKS))
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("pipeline.yaml"),
    show_default=True,
    help="The file to write; - is stdout.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@shared_options
@click.pass_obj
def init(output: Output, types: tuple[str, ...], file: Path, force: bool) -> None:
    """Write a pipeline file with every key explained.

    The first TYPE is the source, the others are sinks; without any it is a generated shop and the
    console. Required keys are filled with examples, all others are commented out with their
    defaults.
    """
    from headwater.pipelines.file.reference import commented_file, component

    kinds = types or BEGINNING
    if len(kinds) == 1:
        raise ConfigError(
            "the pipeline has no sink",
            hint=f"headwater init {kinds[0]} {BEGINNING[1]}",
        )
    source = component(kinds[0], is_source=True)
    sinks = [component(kind, is_source=False) for kind in kinds[1:]]
    text = commented_file(source, sinks)
    if file == Path("-"):
        output.result({"file": None, "text": text}, [text.rstrip("\n")])
        return
    if file.exists() and not force:
        raise ConfigError(
            "the file already exists", file=str(file), hint="choose another --file, or --force"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    output.result({"file": str(file), "text": text}, [f"wrote {file}"])
    output.note(f"next: headwater check {file}")


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("pipeline.yaml"))
@click.option(
    "--allow-unset",
    is_flag=True,
    help="Allow references to missing variables and files, for a machine without the secrets.",
)
@shared_options
@click.pass_obj
def check(output: Output, path: Path, allow_unset: bool) -> None:
    """Check a pipeline file, or a directory of them, offline.

    All mistakes are shown at once, each with its place, its key, its line and a code of
    docs/error-codes.md; exit code 2 means that there are some. The default PATH is ./pipeline.yaml.
    """
    from headwater.pipelines.file.loader import check as check_files

    found = check_files(
        path, environment=os.environ, may_be_unset=allow_unset, reads_expressions=True
    )
    for mistake in found.unset:
        output.note(f"not set: {mistake}")
    for remark in found.remarks:
        output.note(f"remark: {remark}")
    answer = {
        "files": [str(each) for each in found.files],
        "pipelines": list(found.names),
        "unset": [each.as_json() for each in found.unset],
        "remarks": [each.as_json() for each in found.remarks],
    }
    output.result(answer, [f"nothing is wrong in {format_count(len(found.files), 'file')}"])


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
