"""A document knows where every key and value stood, and refuses what nobody means."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headwater.config.document import Document, parse_document, plain
from headwater.config.mistakes import MistakesFound

FILE = Path("pipeline.yaml")


def parse(text: str) -> Document:
    return parse_document(text.encode(), FILE)


def refusal(text: str | bytes) -> str:
    content = text.encode() if isinstance(text, str) else text
    with pytest.raises(MistakesFound) as found:
        parse_document(content, FILE)
    return str(found.value)


def test_every_value_knows_its_place() -> None:
    document = parse("a: 1\nb:\n  - x\n  - {c: y, d: z}\n")

    places = {
        keys: tuple(document.find(keys)[0].text_position)
        for keys in [("a",), ("b",), ("b", 0), ("b", 1, "c"), ("b", 1, "d")]
    }

    assert places == {
        ("a",): (1, 4),
        ("b",): (3, 3),
        ("b", 0): (3, 5),
        ("b", 1, "c"): (4, 9),
        ("b", 1, "d"): (4, 15),
    }


def test_a_missing_key_is_found_as_far_as_its_path_exists() -> None:
    document = parse("a:\n  b: 1\n")

    node, place, is_found = document.find(("a", "c", "d"))

    assert (plain(node), tuple(place), is_found) == ({"b": 1}, (1, 1), False)


def test_columns_count_characters_and_not_bytes() -> None:
    document = parse("{ключ: значение, b: 2}")

    assert tuple(document.find(("b",))[0].text_position) == (1, 21)


def test_keys_are_text_however_they_are_written() -> None:
    document = parse("{on: 1, no: 2, 3: 4, null: 5, 2001-12-14: 6, true: 7}")

    keys = list(plain(document.root))

    assert keys == ["on", "no", "3", "null", "2001-12-14", "true"]


def test_quotes_and_blocks_make_text() -> None:
    document = parse("- '5'\n- \"true\"\n- |\n  1\n- >-\n  null\n")

    assert plain(document.root) == ["5", "true", "1\n", "null"]


def test_an_alias_is_what_it_stands_for() -> None:
    document = parse("a: &x {b: 1}\nc: *x\n")

    assert plain(document.root) == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", ":3:1: the key 'a' occurs twice, first in line 1"),
        ("a: {b: 1, 'b': 2}", ":1:11: the key 'b' occurs twice"),
        ("a: 1\n---\nb: 2\n", ":2:1: a file holds one document"),
        ("", ":1:1: the file is empty"),
        ("# nothing\n", ":1:1: the file is empty"),
        ("[a]: 1", ":1:1: a key is one word"),
        ("a: &a {b: 1}\nc: {<<: *a}", ":2:5: merge keys are no part of YAML 1.2"),
        ("a: *b", ":1:4: an alias stands for something written before it"),
        ("a: [1, 2\nb: 3", ":2:2: did not find expected ',' or ']'"),
        ("a: 'x", "found unexpected end of stream"),
        (b"a: b\nc: \xff", ":2:4: the file is not UTF-8"),
        ("a: b".encode("utf-16"), ":1:1: the file is not UTF-8"),
        ("a: b\nc: \x07", ":2:4: a control character cannot stand in YAML"),
    ],
)
def test_a_syntax_error_is_reported_with_its_place(text: str | bytes, words: str) -> None:
    assert words in refusal(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a:\n\tb: 1", "indent with spaces"),
        ("tables: [*]", "begins with * between quotes"),
        ("tables: *.orders", "begins with * between quotes"),
        ("tables: [!public.tmp]", "begins with ! between quotes"),
        ("tables: !public.tmp x", "begins with ! between quotes"),
        ("name: @shop", "begins with @ between quotes"),
        ("topic: {pipeline}.{table}", "begins with { between quotes"),
        ("name: a: b", "colon"),
    ],
)
def test_a_usual_slip_comes_with_its_cure(text: str, hint: str) -> None:
    assert hint in refusal(text)


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert plain(parse("\ufeffa: 1").root) == {"a": 1}


NUMBERS_OF_1_2 = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+|0o[0-7]+")
"""`0E0` and `0o7` are text in YAML 1.1, for which PyYAML writes, and numbers in 1.2."""
TEXTS = st.text(max_size=20).filter(lambda text: not NUMBERS_OF_1_2.fullmatch(text))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_text_written_by_pyyaml_is_read_back(value: Any) -> None:
    """It quotes what either version of YAML would not take for text."""
    text = yaml.safe_dump({"value": value})

    found = plain(parse(text).root)

    assert found == {"value": with_text_keys(value)}


def with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): with_text_keys(each) for key, each in value.items()}
    return [with_text_keys(each) for each in value] if isinstance(value, list) else value


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_content_breaks_the_reader(content: bytes) -> None:
    try:
        document = parse_document(content, FILE)
    except MistakesFound:
        return

    plain(document.root)
