"""Converts hstore to JSON, one by one: few tables have such columns."""

import re

import pyarrow as pa

from headwater.connectors.postgres.types.column_reader import UNAVAILABLE, TypeReader
from headwater.core_log.rows.map_columns import AS_MAP, FORM, JSON, object_text

PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:NULL|"((?:[^"\\]|\\.)*)")(?:, |$)', re.DOTALL)
ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def hstore_reading(form: str) -> TypeReader:
    """Returns the reader; `form` is the setting `hstore` of the source."""
    word = object_text({UNAVAILABLE: UNAVAILABLE})
    parameters = {FORM: AS_MAP} if form == AS_MAP else {}
    return TypeReader(pa.string(), _objects, JSON, parameters, word)


def _objects(text: pa.StringArray) -> pa.Array:
    return pa.array(
        [None if value is None else _object(value) for value in text.to_pylist()], pa.string()
    )


def _object(text: str) -> str:
    pairs: dict[str, str | None] = {}
    place = 0
    while place < len(text):
        match = PAIR.match(text, place)
        if match is None:
            raise ValueError("the text is not an hstore")
        key, value = match.groups()
        pairs[_plain(key)] = None if value is None else _plain(value)
        place = match.end()
    return object_text(pairs)


def _plain(escaped: str) -> str:
    return ESCAPE.sub(r"\1", escaped)
