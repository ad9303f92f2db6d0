"""What `headwater verify` says of a table in one line."""

from types import SimpleNamespace
from typing import Any

import pytest

from headwater.pipelines.commands.verify import _find


def verdict(**given: Any) -> Any:
    compared = SimpleNamespace(differing=given.pop("differing", 0))
    usual = {"is_reread": False, "problem": "", "unread": (), "dead": (), "left_out": set()}
    return SimpleNamespace(**{**usual, **given, "compared": compared})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "equal"),
        ({"differing": 3}, 3),
        ({"problem": "it is gone"}, "not compared"),
        ({"is_reread": True}, "being read again"),
        ({"unread": [1]}, "not all compared"),
        ({"dead": [1]}, "equal but for 1 dead letter"),
        ({"dead": [1, 2]}, "equal but for 2 dead letters"),
        ({"left_out": {"b", "a"}}, "equal but for a, b, not compared"),
    ],
)
def test_the_result_is_said_in_few_words(given: dict[str, Any], words: object) -> None:
    assert _find(verdict(**given)) == words
