"""What every key of a pipeline file has in common, whatever source or sink it belongs to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from headwater.config.document import parse_document, plain
from headwater.config.model_keys import annotation_of, fields_of, nested_models, unit_of
from headwater.config.reference import default_words, duration_words, size_words, value_words
from headwater.core_log.foundation.settings import YamlSettings, explanations_of
from headwater.core_log.foundation.units import parse_duration_ms, parse_size_bytes
from headwater.pipelines.file.loaded_parts import settings_of
from headwater.pipelines.file.reference import our_components
from headwater.pipelines.file.spec import PipelineSpec, SinkTask, SourceTask


def models() -> list[type[BaseModel]]:
    """Every model that a pipeline file can hold."""
    waiting: list[type[BaseModel]] = [PipelineSpec, SourceTask, SinkTask]
    waiting += [each.settings for each in our_components()]
    found: dict[type[BaseModel], None] = {}
    while waiting:
        model = waiting.pop()
        if model not in found:
            found[model] = None
            for field in model.model_fields.values():
                waiting += nested_models(annotation_of(field))
    return list(found)


def fields() -> Iterator[tuple[type[BaseModel], str, str, FieldInfo]]:
    for model in models():
        for key, (name, field) in zip(fields_of(model), model.model_fields.items(), strict=True):
            yield model, key, name, field


def test_settings_of_a_type_are_those_of_its_class() -> None:
    parts = our_components()

    found = [settings_of(each.kind, is_source=each.is_source) for each in parts]

    assert found == [each.settings for each in parts]


@pytest.mark.slow
def test_every_key_is_explained() -> None:
    silent = [(model, key) for model, key, name, _ in fields() if not explanations_of(model)[name]]

    assert not silent


def test_a_duration_and_a_size_are_written_with_their_units() -> None:
    """Python's names say them, and YAML's names do not."""
    bare = [
        (model, name)
        for model, _, name, field in fields()
        if name.endswith(("_ms", "_bytes")) and not unit_of(annotation_of(field))
    ]

    assert not bare
    assert not [(model, key) for model, key, _, _ in fields() if key.endswith(("_ms", "_bytes"))]


def test_no_key_is_a_word_that_older_yaml_takes_for_a_boolean() -> None:
    words = {"on", "off", "yes", "no", "y", "n", "true", "false", "null"}

    assert not [(model, key) for model, key, _, _ in fields() if key.lower() in words]


def test_every_model_is_closed_and_frozen() -> None:
    loose = [
        model
        for model in models()
        if not issubclass(model, YamlSettings)
        or model.model_config.get("extra") != "forbid"
        or not model.model_config.get("frozen")
    ]

    assert not loose


def test_the_default_that_is_shown_is_the_default() -> None:
    for model, key, _, field in fields():
        if not (words := default_words(field)):
            continue
        written = plain(parse_document(f'"{key}": {words}'.encode(), Path("f")).root)[key]
        kind: TypeAdapter[Any] = TypeAdapter(annotation_of(field))

        shown = kind.validate_python(written)

        default = field.get_default(call_default_factory=True, validated_data={})
        assert shown == kind.validate_python(default), (model, key)


@pytest.mark.parametrize(
    ("value_ms", "words"),
    [(0, "0s"), (5, "5ms"), (1_000, "1s"), (90_000, "90s"), (60_000, "1m"), (604_800_000, "7d")],
)
def test_a_duration_is_shown_as_people_write_it(value_ms: int, words: str) -> None:
    assert duration_words(value_ms) == words
    assert parse_duration_ms(words) == value_ms


@pytest.mark.parametrize(
    ("value_bytes", "words"),
    [(0, "0B"), (100, "100B"), (1 << 10, "1KiB"), (8 << 20, "8MiB"), (20 << 30, "20GiB")],
)
def test_a_size_is_shown_as_people_write_it(value_bytes: int, words: str) -> None:
    assert size_words(value_bytes) == words
    assert parse_size_bytes(words) == value_bytes


@pytest.mark.parametrize(
    "value",
    ["", "a", "no", "null", "5", "*", "!x", "a: b", "a #b", "${env:X}", "[x", "'", '"', " x", "x:"],
)
def test_any_text_is_shown_so_that_it_can_be_written(value: str) -> None:
    content = plain(parse_document(f"a: {value_words(value)}".encode(), Path("f")).root)

    assert content == {"a": value}
