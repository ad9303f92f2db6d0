"""Which keys a model has in YAML, and which model a place in a file belongs to."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from headwater.core_log.foundation.units import parse_duration_ms, parse_size_bytes

Annotation = Any
"""A type as the field declares it, `Annotated` and all."""


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Fields by the name they have in YAML."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def annotation_of(field: FieldInfo) -> Annotation:
    """The declared type with its metadata, which pydantic keeps apart at the top."""
    if not field.metadata:
        return field.annotation
    return Annotated[(field.annotation, *field.metadata)]


def members(annotation: Annotation) -> list[Annotation]:
    """Returns the members of a union, `Annotated` unwrapped; None left out."""
    if origin_of(annotation) in (Union, UnionType):
        found = [member for each in get_args(annotation) for member in members(each)]
        return [member for member in found if member is not NoneType]
    if origin_of(annotation) is Annotated:
        return members(get_args(annotation)[0])
    return [annotation]


def step(annotation: Annotation, key: str | int) -> list[Annotation]:
    """The types of what stands under `key`, one per way in which it can be meant."""
    found: list[Annotation] = []
    for member in members(annotation):
        if is_model(member):
            field = fields_of(member).get(str(key))
            found += [] if field is None else [annotation_of(field)]
        elif origin_of(member) in (dict, Mapping) and len(get_args(member)) == 2:
            found.append(get_args(member)[1])
        elif origin_of(member) in (tuple, list, Sequence):
            found.append(get_args(member)[0])
    return found


def models_at(root: Annotation, keys: Sequence[str | int]) -> list[type[BaseModel]]:
    """The models that what stands under `keys` can be."""
    annotations = [root]
    for key in keys:
        annotations = [inner for each in annotations for inner in step(each, key)]
    return [member for each in annotations for member in members(each) if is_model(member)]


def nested_models(annotation: Annotation) -> Iterator[type[BaseModel]]:
    """Models inside a field's type, lists and mappings included."""
    for member in members(annotation):
        if is_model(member):
            yield member
        elif origin_of(member) is not Literal:
            for each in get_args(member):
                if each is not Ellipsis:
                    yield from nested_models(each)


def is_model(annotation: Annotation) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def unit_of(annotation: Annotation) -> str:
    """`duration` or `size` where the value is written with a unit, else nothing."""
    if origin_of(annotation) in (Union, UnionType):
        return next(filter(None, map(unit_of, get_args(annotation))), "")
    for each in metadata_of(annotation):
        if isinstance(each, BeforeValidator):
            function = each.func.args[1] if isinstance(each.func, partial) else each.func
            if function in UNITS:
                return UNITS[function]
    if origin_of(annotation) is Annotated:
        return unit_of(get_args(annotation)[0])
    return ""


def no_bound_of(annotation: Annotation) -> str:
    """The word that means that there is no bound, such as `forever`; mostly there is none."""
    for each in metadata_of(annotation):
        if isinstance(each, BeforeValidator) and isinstance(each.func, partial):
            return str(each.func.args[0])
    return ""


def metadata_of(annotation: Annotation) -> tuple[Any, ...]:
    return get_args(annotation)[1:] if origin_of(annotation) is Annotated else ()


def origin_of(annotation: Annotation) -> Any:
    """Returns the generic type: tuple for `tuple[str, ...]`."""
    return get_origin(annotation)


UNITS = {parse_duration_ms: "duration", parse_size_bytes: "size"}
