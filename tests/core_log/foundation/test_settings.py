"""What settings say of themselves is found in their sources, once somebody asks."""

import pytest
from pydantic import Field, TypeAdapter, ValidationError, create_model

from headwater.core_log.foundation.settings import HostPorts, Settings, explanations_of


class Ship(Settings):
    name: str = ""
    """What is written on its bow,
    in large letters."""
    masts: int = Field(1, description="How many it has.")
    """This is not shown."""
    cargo: str = ""


class Steamer(Ship):
    """What a class is for is none of its fields' explanations."""

    boilers: int = 1
    """How many are under steam."""
    cargo: str = "coal"
    """Its own fuel included."""


def test_a_field_is_explained_by_its_docstring_or_else_by_its_description() -> None:
    assert explanations_of(Ship) == {
        "name": "What is written on its bow,\nin large letters.",
        "masts": "How many it has.",
        "cargo": "",
    }


def test_an_inherited_setting_is_explained_where_it_was_declared_last() -> None:
    assert explanations_of(Steamer) == {
        **explanations_of(Ship),
        "cargo": "Its own fuel included.",
        "boilers": "How many are under steam.",
    }


def test_settings_without_a_source_explain_nothing() -> None:
    made = create_model("Made", __base__=Settings, name=(str, ""))

    assert explanations_of(made) == {"name": ""}


@pytest.mark.parametrize("written", ["a:1", "a:1,b:2", "a:1, b:2", ["a:1", "b:2"]])
def test_addresses_of_brokers_are_a_list_or_one_text_with_commas(written: object) -> None:
    found = TypeAdapter(HostPorts).validate_python(written)

    assert found == (("a:1",) if written == "a:1" else ("a:1", "b:2"))


def test_an_address_between_commas_is_checked() -> None:
    with pytest.raises(ValidationError, match="not one of a broker"):
        TypeAdapter(HostPorts).validate_python("a:1,,b:2")
