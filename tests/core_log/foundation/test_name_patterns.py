"""Patterns choose names without surprises: brackets and dots are letters, `!` always wins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.name_patterns import Pattern, Patterns


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("public.*", ["public.orders", "public.", "public.a.b"], ["publicXorders", "my.public.a"]),
        ("public.order?", ["public.orders"], ["public.order", "public.orderss"]),
        ("a[1]", ["a[1]"], ["a1"]),
        ("a\\*", ["a*"], ["ab"]),
        ("/tenant_\\d+\\..*/", ["tenant_12.users"], ["tenant_x.users", "my.tenant_1.users"]),
        ("/", ["/"], [""]),
        ("", [""], ["a"]),
    ],
)
def test_a_pattern_is_held_against_the_whole_name(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    chosen = Pattern(pattern)

    assert all(chosen.matches(name) for name in matching)
    assert not any(chosen.matches(name) for name in others)


def test_an_excluded_name_stays_out_wherever_its_pattern_stands() -> None:
    chosen = Patterns(["!public.tmp_*", "public.*"])

    assert chosen.matches("public.orders")
    assert not chosen.matches("public.tmp_orders")
    assert not chosen.matches("audit.orders")


def test_exclusions_alone_choose_every_other_name() -> None:
    chosen = Patterns(["!tmp_*"])

    assert chosen.matches("orders")
    assert not chosen.matches("tmp_orders")


def test_nothing_is_chosen_by_no_patterns() -> None:
    assert not Patterns([]).matches("orders")


def test_groups_are_what_stars_and_parentheses_stand_for() -> None:
    assert Pattern("tenant_*.*").groups("tenant_7.users") == ("7", "users")
    assert Pattern("/tenant_(\\d+)\\.(.*)/").groups("tenant_7.users") == ("7", "users")
    assert Pattern("/(a)?b/").groups("b") == ("",)
    assert Pattern("tenant_*").groups("users") is None


def test_an_expression_that_is_none_is_told_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"the regular expression is invalid.*position=2"):
        Pattern("/ab(/")


@given(st.text())
def test_any_name_can_be_written_so_that_only_it_matches(name: str) -> None:
    escaped = "".join(f"\\{letter}" for letter in name)

    assert Pattern(escaped).matches(name)
    assert not Pattern(escaped).matches(f"{name}x")
