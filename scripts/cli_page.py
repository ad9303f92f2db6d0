"""docs/cli.md, from the commands themselves."""

import inspect
from collections.abc import Iterator

import click

from headwater.pipelines.cli import COMMANDS, cli
from headwater.pipelines.terminal.exit_codes import MEANINGS
from headwater.pipelines.terminal.output import shared_options

OPENING = """\
# The command line

<!-- Written by `make docs`; edit the commands, not this page. -->

Data goes to stdout and everything else to stderr, so a pipe carries data only. Commands that talk
to a log find it by `--bootstrap HOST:PORT`, by the pipeline file that `-f FILE` names, or by
`--data DIR` (where whoever runs has written its address; beside `-f`, in place of `log.path`); else
by `./pipeline.yaml`, else in `./data`.

## Exit codes

{codes}

A second `headwater broker` on a data directory in use ends with 3 and names the process that owns
it; a port that is taken, or an address beyond loopback, is configuration and ends with 2.

## `--json`

Every command writes one envelope; commands that stream (`tail`, `log inspect --batches`) write one
per line, so that `jq` reads both alike:

```json
{{"ok": true, "data": {{"headwater": "0.1.0"}}, "error": null}}
{{"ok": false, "data": null, "error": {{"kind": "LogUnavailable", "problem": "...", "hint": "...",
 "facts": {{"data": "data"}}, "exit_code": 3}}}}
```

| Field | What it is |
|---|---|
| `ok` | whether the command did what it was asked and found nothing wrong |
| `data` | the answer; there with exit code 4, too, where the answer is what was found |
| `error.kind` | the class of the error, stable; `UsageError` for what was typed wrongly |
| `error.problem`, `error.facts` | what is so, and where |
| `error.hint` | what to do: a command or an edit; null where there is nothing to say |

## Options of every command

They may stand before the name of the command, too: `headwater --json status`.

{shared}
"""


def page() -> str:
    """The whole page, as Markdown."""
    parts = [OPENING.format(codes="\n".join(_codes()), shared="\n".join(_shared_options()))]
    root = click.Context(cli, info_name="headwater")
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None, "every name in the table has its module"
        parts += _sections(click.Context(command, info_name=name, parent=root))
    return "\n".join(parts)


def _codes() -> Iterator[str]:
    yield "| Code | Meaning |\n|---|---|"
    for code, meaning in MEANINGS.items():
        yield f"| {code} | {meaning} |"


def _shared_options() -> Iterator[str]:
    yield from _options(click.Context(_with_shared_options), hidden=set())


@click.command()
@shared_options
def _with_shared_options() -> None:
    """Carries what every command has."""


def _sections(ctx: click.Context) -> Iterator[str]:
    """One heading per command, a group's before those of its commands."""
    command = ctx.command
    is_below_group = ctx.parent is not None and ctx.parent.parent is not None
    yield f"{'###' if is_below_group else '##'} `{ctx.command_path}`\n"
    yield f"{inspect.cleandoc(command.help or '')}\n"
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _sections(click.Context(inner, info_name=name, parent=ctx))
        return
    usage = " ".join(ctx.get_usage().removeprefix("Usage: ").split())
    yield f"```\n{usage}\n```\n"
    rows = list(_options(ctx, hidden={option.name for option in _with_shared_options.params}))
    if len(rows) > 1:
        yield "\n".join(rows) + "\n"


def _options(ctx: click.Context, *, hidden: set[str | None]) -> Iterator[str]:
    yield "| Option | Meaning |\n|---|---|"
    for option in ctx.command.params:
        record = option.get_help_record(ctx)
        if isinstance(option, click.Option) and record and option.name not in hidden:
            words, meaning = record
            yield f"| `{words}` | {' '.join(meaning.split())} |"
