"""A secret is taken out of text in whatever form a library shows it."""

import json
import logging
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.config.redaction import (
    MASK,
    SECRET_MIN,
    OneLine,
    Redaction,
    passwords_in,
    secrets_in,
)

CANARY = 'canary-p@ss w%rd/"quoted"\'é'

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "percent-encoded": lambda text: quote(text, safe=""),
    "as a form": quote_plus,
    "in a path": quote,
    "in lower case": lambda text: re.sub("%..", lambda m: m[0].lower(), quote(text, safe="")),
    "as repr": repr,
    "as bytes": lambda text: repr(text.encode()),
    "as JSON": json.dumps,
    "as JSON in unicode": lambda text: json.dumps(text, ensure_ascii=False),
    "in a URL": lambda text: f"postgresql://app:{quote(text, safe='')}@h/shop?x=1",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_found_in_every_form(form: str) -> None:
    redaction = Redaction(secrets_in(CANARY))

    scrubbed = redaction.scrub(f"before {FORMS[form](CANARY)} after")

    assert "canary" not in scrubbed
    assert scrubbed.startswith("before ") and scrubbed.endswith(" after") and MASK in scrubbed


def test_the_password_of_a_secret_url_is_a_secret_of_its_own() -> None:
    redaction = Redaction(secrets_in("postgresql://app:canary%40pass@db/shop"))

    for text in ("postgresql://app:canary%40pass@db/shop", "canary%40pass", "'canary@pass'"):
        assert "canary" not in redaction.scrub(f"cannot log in with {text} at db")


def test_a_password_that_only_libpq_reads_in_a_url_is_a_secret() -> None:
    redaction = Redaction(passwords_in("postgresql://app:can#ary?pass@db/shop"))

    assert redaction.scrub("no login with can#ary?pass") == f"no login with {MASK}"


def test_lines_of_a_key_file_are_secrets_of_their_own() -> None:
    redaction = Redaction(secrets_in("-----BEGIN KEY-----\nMIIEcanarycanary\nAAAAcanary2222\n"))

    assert "canary" not in redaction.scrub("line 2: MIIEcanarycanary\nAAAAcanary2222")


def test_a_short_secret_is_only_taken_out_where_it_is_a_word() -> None:
    redaction = Redaction({"dev"})

    assert redaction.scrub("dev: a device, password=dev") == f"{MASK}: a device, password={MASK}"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://u:p@h/db", "h, port 5432 refuses the password of p"),
        ("postgresql://u:5432@h:5432/db", "h, port 5432"),
        ("postgresql://shop:shop@h/shop", "GRANT SELECT ON TABLE shop.orders TO shop"),
        ("postgresql://u:orders@h/orders", "table orders"),
        ("postgresql://u:postgres@h/db", "postgresql needs a database"),
        ("postgresql://u:password@h/db", "no_password_1, passwords"),
    ],
)
def test_a_password_that_is_a_word_or_a_part_of_one_does_not_blot_out_others(
    address: str, said: str
) -> None:
    redaction = Redaction(passwords_in(address))

    assert redaction.scrub(said) == said
    password = re.search("//.*:(.*)@", address)
    assert password and f":{password[1]}@" not in redaction.scrub(f"cannot open {address}")


@pytest.mark.parametrize(
    "address",
    [
        "host=h user=u password=canary",
        "host=h password = 'canary' user=u",
        "mysql://h/db?user=u&password=canary&x=1",
    ],
)
def test_a_password_that_has_a_name_is_a_secret(address: str) -> None:
    assert "canary" not in Redaction(passwords_in(address)).scrub("no login with canary")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password='p'", "password='***'"),
        ("password=p up", "password=*** up"),
        ("//u:p@h", "//u:***@h"),
        ('"p"', '"***"'),
        ("port p, passwords", "port p, passwords"),
    ],
)
def test_a_secret_of_one_letter_is_taken_out_where_it_is_a_value(text: str, shown: str) -> None:
    assert Redaction({"p"}).scrub(text) == shown


@pytest.mark.parametrize("escape", ["\\n", "%20"])
def test_a_word_is_a_secret_behind_an_escape_as_well(escape: str) -> None:
    assert "canary" not in Redaction({"canary"}).scrub(f"'key:{escape}canary'")


@pytest.mark.parametrize("value", ["3", "65535", "true", "5s", "64MiB", "eu", ""])
def test_a_value_that_is_no_secret_does_not_blot_out_other_words(value: str) -> None:
    text = f"{value} tables of {value}"

    assert Redaction(secrets_in(value)).scrub(text) == text


def test_text_without_secrets_is_unchanged() -> None:
    assert Redaction(["", " "]).scrub("all of it") == "all of it"


def test_a_secret_inside_another_does_not_keep_its_rest_readable() -> None:
    redaction = Redaction({"canary", "canary-and-more"})

    assert redaction.scrub("canary-and-more") == MASK


@given(st.text(min_size=1), st.text(), st.text())
def test_no_secret_survives_between_spaces(secret: str, before: str, after: str) -> None:
    assume(len(secret.strip()) >= SECRET_MIN and secret not in MASK)

    scrubbed = Redaction({secret}).scrub(f"{before} {secret} {after}")

    assert f" {secret} " not in scrubbed.replace(MASK, "") or secret in before + after


def test_log_lines_and_tracebacks_lose_their_secrets() -> None:
    formatter = OneLine(Redaction({CANARY}).scrub)
    try:
        raise ValueError(f"no login with {CANARY}")
    except ValueError as error:
        record = logging.LogRecord(
            "t", logging.ERROR, "f", 1, "it was %r", (CANARY,),
            (ValueError, error, error.__traceback__),
        )  # fmt: skip

    line = formatter.format(record)

    assert "canary" not in line and "Traceback" in line
