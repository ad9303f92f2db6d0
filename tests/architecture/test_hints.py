"""Commands that hints name are there, with these options, and can be run as they stand."""

import ast
import re
from collections.abc import Iterator

import click
import pytest

from headwater.pipelines.cli import cli
from tests.architecture.sources import PRODUCT, python_files, tree_of

COMMAND = re.compile(r"\bheadwater ((?:[a-z]+ ?)[^`;:,()\n]*)")
FILLED = "X"
"""In place of what an f-string fills in."""


def said(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What the module may say: its texts, but for notes below names and the help of options."""
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "help":
            left_out |= {id(part) for part in ast.walk(node.value)}
        elif isinstance(node, ast.JoinedStr) and id(node) not in left_out:
            left_out |= {id(part) for part in node.values}
            parts = (
                part.value if isinstance(part, ast.Constant) else FILLED for part in node.values
            )
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in left_out:
            yield node.lineno, str(node.value)


def wrong_in(words: list[str]) -> str:
    """Why this cannot be run; empty where it can. `headwater` with a word that is no command is
    prose, and words behind the arguments are the rest of a sentence."""
    command: click.Command = cli
    context = click.Context(cli)
    named = 0
    while isinstance(command, click.Group):
        found = command.get_command(context, words[named]) if named < len(words) else None
        if found is None:
            return "" if named == 0 else f"{' '.join(words[:named])} wants a command"
        command, named = found, named + 1
    given = [word for word in words[named:] if not word.startswith("-")]
    options = [word.partition("=")[0] for word in words[named:] if word.startswith("-")]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    if missing := [each for each in options if each not in {*known, "--help", "-"}]:
        return f"there is no {' '.join(missing)}"
    wanted = [each for each in command.params if isinstance(each, click.Argument) and each.required]
    fits = [_fits(word, each) for word, each in zip(given, wanted, strict=False)]
    if not all(fits) or len(fits) < len(wanted):
        return f"{command.name} wants {' '.join(each.make_metavar(context) for each in wanted)}"
    return ""


def _fits(word: str, argument: click.Argument) -> bool:
    """A word that is filled in, or stands in capitals for what the reader knows, or is a choice."""
    choices = argument.type.choices if isinstance(argument.type, click.Choice) else ()
    return FILLED in word or word == "%s" or word.isupper() or word in choices


@pytest.mark.parametrize("package", PRODUCT)
def test_every_command_of_a_hint_can_be_run(package: str) -> None:
    wrong = [
        f"{path}:{line}: headwater {found[1]}: {why}"
        for path in python_files(package)
        for line, text in said(tree_of(path))
        for found in COMMAND.finditer(text)
        if (why := wrong_in(found[1].split()))
    ]

    assert not wrong, "\n".join(wrong)
