"""References are replaced where they may stand, are told when they cannot be, and stay unsaid."""

from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.config.document import parse_document, plain
from headwater.config.substitution import Substituted, substitute

ENVIRONMENT = {
    "USER": "app",
    "PASSWORD": "p@ss/w%rd:?#",
    "NUMBER": "5",
    "EMPTY": "",
    "HOST": "db.internal",
    "SHAPE": "[a, b]: *c",
}


def replaced(text: str, directory: Path = Path()) -> Substituted:
    return substitute(parse_document(text.encode(), directory / "pipeline.yaml"), ENVIRONMENT)


def value_of(text: str) -> Any:
    found = replaced(f"a: {text}")
    assert not found.mistakes + found.unset
    return plain(found.document.root)["a"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env:USER}", "app"),
        ("x-${env:USER}-${env:NUMBER}", "x-app-5"),
        ("${env:NUMBER}", "5"),
        ("'${env:USER}'", "app"),
        ("${env:EMPTY}", ""),
        ("${env:EMPTY:-full}", "full"),
        ("${env:NOTHING:-}", ""),
        ("${env:NOTHING:-a:-b}", "a:-b"),
        ("${env:NOTHING:-5}", "5"),
        ("${env:SHAPE}", "[a, b]: *c"),
        ("$${env:USER}", "${env:USER}"),
        ("crm.$2", "crm.$2"),
        ("100$", "100$"),
        ("${env:EMPTY:-$1}", "$1"),
    ],
)
def test_a_reference_becomes_text(text: str, value: str) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${USER}", "write ${env:USER}"),
        ("${evn:USER}", "did you mean 'env'?"),
        ("${env:US ER}", "letters, digits and underscores"),
        ("${env:}", "letters, digits and underscores"),
        ("${env:USER", "a reference is not closed"),
        ("${}", "a reference is"),
    ],
)
def test_text_that_only_looks_like_a_reference_is_a_mistake(text: str, words: str) -> None:
    (mistake,) = replaced(f"a: '{text}'").mistakes

    assert mistake.where == "pipeline.yaml:1:4"
    assert words in str(mistake)


def test_a_missing_variable_or_file_is_reported_with_its_place() -> None:
    found = replaced("a: 1\nb: [x, '${env:NOTHING}']\nc: ${file:secrets/none}\n")

    assert [f"{each.where}: {each.problem}" for each in found.unset] == [
        "pipeline.yaml:2:8: the environment has no NOTHING",
        "pipeline.yaml:3:4: ${file:secrets/none}: the file does not exist",
    ]


def test_a_file_is_found_beside_the_pipeline_file_and_loses_its_last_newline(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_text("s3cr3t-of-the-file\n")

    found = replaced("a: ${file:secret}\nb: ${file:" + str(tmp_path / "secret") + "}", tmp_path)

    assert plain(found.document.root) == {"a": "s3cr3t-of-the-file", "b": "s3cr3t-of-the-file"}
    assert "s3cr3t" not in found.redaction.scrub("it was s3cr3t-of-the-file")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * (2 << 20)])
def test_a_file_that_is_no_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)

    assert len(replaced("a: ${file:secret}", tmp_path).unset) == 1


@pytest.mark.parametrize("path", [".", "/dev/zero", "a\\0b", "nothing/../secret"])
def test_a_path_that_is_no_file_is_no_secret(tmp_path: Path, path: str) -> None:
    assert len(replaced(f'a: "${{file:{path}}}"', tmp_path).unset) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            "postgresql://${env:USER}:${env:PASSWORD}@${env:HOST}/shop",
            f"postgresql://app:{quote('p@ss/w%rd:?#', safe='')}@db.internal/shop",
        ),
        ("https://h/?key=${env:PASSWORD}", f"https://h/?key={quote('p@ss/w%rd:?#', safe='')}"),
        ("file:///${env:PASSWORD}", "file:///p@ss/w%rd:?#"),
        ("s3://${env:HOST}/a@b", "s3://db.internal/a@b"),
        ("password ${env:PASSWORD}", "password p@ss/w%rd:?#"),
        ("${env:PASSWORD}", "p@ss/w%rd:?#"),
    ],
)
def test_only_where_a_url_needs_it_a_value_is_escaped(text: str, value: str) -> None:
    assert value_of(text) == value


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_any_password_arrives_through_a_url(password: str) -> None:
    document = parse_document(b"a: postgresql://app:${env:PASSWORD}@h/shop", Path("p.yaml"))

    found = substitute(document, {"PASSWORD": password})

    url = urlsplit(plain(found.document.root)["a"])
    assert (unquote(url.password or ""), url.hostname, url.path) == (password, "h", "/shop")


def test_keys_are_left_as_they_are() -> None:
    assert plain(replaced("'${env:USER}': 1").document.root) == {"${env:USER}": 1}


def test_a_default_is_no_secret() -> None:
    redaction = replaced("a: ${env:NOTHING:-the-default}").redaction

    assert redaction.scrub("the-default") == "the-default"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_the_database_driver_is_given_the_password_as_it_is(password: str) -> None:
    from sqlalchemy.engine import make_url

    document = parse_document(b"a: mysql+pymysql://app:${env:PASSWORD}@h/shop", Path("p.yaml"))

    found = substitute(document, {"PASSWORD": password})

    assert make_url(plain(found.document.root)["a"]).password == password
