"""Mistakes in the transforms of a pipeline file, whatever its tables look like."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from headwater.core_log.foundation.errors import (
    ConfigError,
)
from headwater.pipelines.file.spec import TransformRule
from headwater.pipelines.transforms.columns import parsed_type
from headwater.pipelines.transforms.expressions import Expressions
from headwater.pipelines.transforms.functions import UserFunction

Problem = tuple[tuple[str | int, ...], str, str]
"""The keys that lead to it in the file, what is so, and what to do."""


def mistakes_in(rules: Sequence[TransformRule], *, directory: Path) -> Iterator[Problem]:
    """Expressions that cannot be read, types that do not exist, and functions that cannot be
    imported, which are looked for in `directory` as well. Loads DuckDB where there are
    expressions, so this is for a process that runs no broker."""
    expressions = cache(Expressions)
    for at, rule in enumerate(rules):
        for keys, text in _expressions_of(rule):
            try:
                expressions().check(text)
            except ConfigError as error:
                yield ("transform", at, *keys), _describe(error), error.hint
        for name, text in rule.cast.items():
            try:
                parsed_type(text)
            except ConfigError as error:
                yield ("transform", at, "cast", name), error.problem, error.hint

        if rule.python:
            try:
                UserFunction(rule.python, directory=directory)
            except ConfigError as error:
                raised = error.facts.get("raised")
                told = f"{error.problem}: {raised}" if raised else error.problem
                yield ("transform", at, "python"), told, error.hint


def _expressions_of(rule: TransformRule) -> Iterator[tuple[tuple[str, ...], str]]:
    if rule.filter:
        yield ("filter",), rule.filter
    yield from ((("add", name), text) for name, text in rule.add.items())


def _describe(error: ConfigError) -> str:
    function = error.facts.get("function")
    return f"{error.problem}: {function}" if function else error.problem
