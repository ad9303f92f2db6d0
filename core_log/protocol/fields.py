"""Annotations of a message's fields: wire types, versions, tags and nulls."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class Number:
    """A number of fixed size, by its code in the struct module."""

    code: str


Int8 = Annotated[int, Number("b")]
Int16 = Annotated[int, Number("h")]
UInt16 = Annotated[int, Number("H")]
Int32 = Annotated[int, Number("i")]
Int64 = Annotated[int, Number("q")]
Float64 = Annotated[float, Number("d")]


@dataclass(frozen=True, slots=True)
class Since:
    """The first version that has the field."""

    version: int


@dataclass(frozen=True, slots=True)
class Until:
    """The last version that has the field."""

    version: int


@dataclass(frozen=True, slots=True)
class NullableSince:
    """The first version in which null may be sent; without it, all versions allow null for `|
    None`."""

    version: int


@dataclass(frozen=True, slots=True)
class Tagged:
    """The field is in the tag section, and is sent only if it differs from its default."""

    tag: int


@dataclass(frozen=True, slots=True)
class Ignorable:
    """A version without the field drops it; without this mark, a value then is an error."""


IGNORABLE = Ignorable()


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message, from its annotation and default.

    `kind` is a `Number`, one of str, bytes, memoryview (record batches) and UUID, or a struct.
    """

    name: str
    kind: Number | type
    is_array: bool
    default: Any
    since: int
    until: int | None
    nullable_since: int | None
    tag: int | None
    is_ignorable: bool

    def is_in(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)

    def is_nullable_in(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since

    def is_default(self, value: Any) -> bool:
        """Whether the value is the default; an empty tuple equals an empty list."""
        if value is self.default:
            return True
        if self.is_array and value is not None and self.default is not None:
            return len(value) == len(self.default) == 0
        return bool(value == self.default)


@cache
def fields_of(struct: type) -> tuple[Field, ...]:
    """Returns the fields of a struct in wire order."""
    hints = get_type_hints(struct, include_extras=True)
    return tuple(_read_annotation(field, hints[field.name]) for field in dataclasses.fields(struct))


def _read_annotation(field: dataclasses.Field[Any], hint: Any) -> Field:
    hint, marks = _unwrap(hint)
    is_nullable = get_origin(hint) in (Union, UnionType)
    if is_nullable:
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    is_array = get_origin(hint) is Sequence
    if is_array:
        hint, element_marks = _unwrap(get_args(hint)[0])
        marks |= element_marks
    since = marks[Since].version if Since in marks else 0
    return Field(
        name=field.name,
        kind=Number("?") if hint is bool else marks.get(Number, hint),
        is_array=is_array,
        default=field.default,
        since=since,
        until=marks[Until].version if Until in marks else None,
        nullable_since=_nullable_since(marks, since) if is_nullable else None,
        tag=marks[Tagged].tag if Tagged in marks else None,
        is_ignorable=Ignorable in marks,
    )


def _unwrap(hint: Any) -> tuple[Any, dict[type, Any]]:
    if get_origin(hint) is not Annotated:
        return hint, {}
    plain, *marks = get_args(hint)
    return plain, {type(mark): mark for mark in marks}


def _nullable_since(marks: dict[type, Any], since: int) -> int:
    return marks[NullableSince].version if NullableSince in marks else since
