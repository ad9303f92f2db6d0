"""What is written in options is understood as a whole, or refused in words."""

from pathlib import Path

import pytest

from headwater.core_log.foundation.endpoint import Endpoint, encode_endpoint
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.log import Isolation
from headwater.pipelines.spark_source.extent import client_settings
from headwater.pipelines.spark_source.options import KNOWN, endless, read_options

LEAST = {"bootstrap": "a:1, b:2", "topic": "shop.public.orders"}


def test_omitted_options_have_defaults() -> None:
    options = read_options(LEAST)

    assert (options.bootstrap, options.topic) == (("a:1", "b:2"), "shop.public.orders")
    assert (options.columns, options.start, options.end) == ("typed", "earliest", "stable")
    assert options.isolation is Isolation.COMMITTED


def test_names_may_come_in_lower_case() -> None:
    options = read_options(LEAST | {"splitrecords": "7", "asof": "0/16B3748"})

    assert (options.split_records, options.as_of) == (7, "0/16B3748")


def test_a_data_directory_says_where_its_broker_is(tmp_path: Path) -> None:
    (tmp_path / "endpoint.json").write_bytes(encode_endpoint(Endpoint(1, "127.0.0.1:9876")))

    options = read_options({"data": str(tmp_path), "topic": "t"})

    assert options.bootstrap == ("127.0.0.1:9876",)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topics": "a"}, "did you mean topic"),
        ({"nonsense": "a"}, "known: bootstrap"),
        ({"bootstrap": ""}, "the address of the log"),
        ({"topic": ""}, "the option topic is missing"),
        ({"topic": "a,b"}, "typed columns are those of one topic"),
        ({"columns": "both"}, "not typed or raw"),
        ({"isolation": "uncommitted"}, "with raw columns"),
        ({"isolation": "serializable", "columns": "raw"}, "isolation is neither committed"),
        ({"end": "stable", "asOf": "5"}, "cannot be used together"),
        ({"splitRecords": "0"}, "not a number above zero"),
        ({"fetchBytes": "1MB"}, "not a number above zero"),
        ({"user": "shop", "password": "x-y-z"}, "begins with SASL_ if there is a user"),
        ({"protocol": "TLS"}, "option='protocol'"),
    ],
)
def test_invalid_options_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(LEAST | given)

    assert said in str(caught.value)
    assert "x-y-z" not in str(caught.value)


def test_brokers_that_ask_for_a_user_get_one_and_nobody_else_is_told(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    given = {"protocol": "SASL_SSL", "user": "shop", "password": "x-y-z", "caFile": str(authority)}

    options = read_options(LEAST | {name.lower(): value for name, value in given.items()})

    security = client_settings(options).security
    assert (security.protocol, security.user, security.ca_file) == ("SASL_SSL", "shop", authority)
    assert security.password.get_secret_value() == "x-y-z"
    assert "x-y-z" not in repr(options)


@pytest.mark.parametrize("given", [{"end": "5"}, {"asOf": "2024-01-31"}])
def test_a_stream_that_is_given_an_end_is_refused(given: dict[str, str]) -> None:
    endless(read_options(LEAST | {"end": "latest"}))

    with pytest.raises(ConfigError, match="a stream cannot have an end"):
        endless(read_options(LEAST | given))


def test_a_directory_without_a_broker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the data directory has no running broker"):
        read_options({"data": str(tmp_path), "topic": "t"})


def test_the_page_tells_of_every_option() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "spark-reader.md").read_text()

    assert all(f"| `{name}` |" in page for name in KNOWN)
