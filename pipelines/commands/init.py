"""`headwater init`: writes a pipeline file with every key explained."""

from pathlib import Path

import click

from headwater.connectors import SOURCES
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.commands.explain import completer
from headwater.pipelines.terminal.output import Output, shared_options
from headwater.sinks import SINKS

BEGINNING = ("generator", "console")
"""The default, which runs without any other system."""


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
