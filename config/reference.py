"""The manual's tables, and commented examples, from the settings themselves."""

import inspect
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headwater.config.model_keys import annotation_of, fields_of, is_model, members, origin_of
from headwater.config.yaml_words import default_words, type_words, value_words
from headwater.core_log.foundation.settings import explanations_of

WIDTH = 88


@dataclass(frozen=True, slots=True)
class SettingKey:
    path: str
    """With dots; `[]` after a key that holds a list, `<name>` where any name may stand."""
    type: str
    default: str
    is_required: bool
    text: str
    examples: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "key": self.path,
            "value": self.type,
            "default": self.default or None,
            "required": self.is_required,
            "text": self.text,
            "examples": self.examples,
        }


def keys_below(keys: Iterable[SettingKey], path: str) -> list[SettingKey]:
    """The key at a path and those below it; all of them for an empty path. `transform.mask` finds
    `transform[].mask`."""
    return [key for key in keys if not path or f"{_bare(key.path)}.".startswith(f"{_bare(path)}.")]


def keys_called(keys: Iterable[SettingKey], name: str) -> list[SettingKey]:
    return [key for key in keys if f".{_bare(key.path)}".endswith(f".{_bare(name)}")]


def _bare(path: str) -> str:
    return path.replace("[]", "").replace(".<name>", "")


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[SettingKey]:
    """Every key of a model and of those inside it, in the order of their declaration."""
    texts = explanations_of(model).values()
    for (name, field), text in zip(fields_of(model).items(), texts, strict=True):
        yield SettingKey(
            prefix + name,
            type_words(field),
            default_words(field),
            field.is_required(),
            one_line(text),
            tuple(value_words(each) for each in field.examples or ()),
        )
        for infix, inner in inner_models(field):
            yield from keys_of(inner, f"{prefix}{name}{infix}.")


def inner_models(field: FieldInfo) -> Iterator[tuple[str, type[BaseModel]]]:
    """Models below a field, with what stands between its name and their keys."""
    yield from _inner(annotation_of(field), "")


def _inner(annotation: Any, infix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for member in members(annotation):
        if is_model(member):
            yield infix, member
        elif origin_of(member) in (tuple, list):
            yield from _inner(get_args(member)[0], f"{infix}[]")
        elif origin_of(member) is dict:
            yield from _inner(get_args(member)[1], f"{infix}.<name>")


def summary_of(component: type[Any]) -> str:
    """Returns the purpose of a source or sink in one sentence: its module opens with it. The class
    begins with what it guarantees."""
    module = inspect.getmodule(component)
    docstring = inspect.getdoc(module) if module else None
    words = one_line(docstring or inspect.getdoc(component) or "").split(". ")[0].rstrip(".")
    return f"{words}."


def commented_yaml(
    model: type[BaseModel], *, indent: int = 0, leaving_out: Collection[str] = ()
) -> list[str]:
    """A model as YAML: what is required with an example, the rest commented out with its default,
    each below its explanation. Taking away signs without a space after them leaves YAML."""
    lines: list[str] = []
    texts = explanations_of(model).values()
    for (name, field), text in zip(fields_of(model).items(), texts, strict=True):
        if name in leaving_out:
            continue
        found = [f"{' ' * indent}# {line}" for line in wrap(one_line(text), WIDTH - indent)]
        found += _sample_lines(name, field, indent)
        if not indent:
            found.append("")
        lines += found if field.is_required() else [_comment(line) for line in found]
    return lines


def _sample_lines(name: str, field: FieldInfo, indent: int) -> list[str]:
    margin = " " * indent
    inner = [each for each in inner_models(field) if each[0] in ("", "[]")]
    if not inner or field.examples:
        return [f"{margin}{name}: {_sample(field)}"]
    infix, model = inner[0]
    if not infix:
        return [f"{margin}{name}:", *commented_yaml(model, indent=indent + 2)]
    below = commented_yaml(model, indent=indent + 4)
    first = next(at for at, line in enumerate(below) if not line.lstrip().startswith("#"))
    below[first] = f"{margin}  - {below[first].lstrip()}"
    return [f"{margin}{name}:", *below]


def one_line(text: str) -> str:
    return " ".join(text.split())


def _sample(field: FieldInfo) -> str:
    if field.examples and (field.is_required() or not default_words(field)):
        return value_words(field.examples[0])
    return default_words(field) or "..."


def _comment(line: str) -> str:
    if not line or line.lstrip().startswith("#"):
        return line
    bare = line.lstrip(" ")
    return f"{line[: len(line) - len(bare)]}#{bare}"
