"""What a process of `pytest -n` says of a failure reaches the others, whatever it quotes."""

from tests.conftest import sendable


def test_text_that_is_no_unicode_is_told_in_escapes() -> None:
    told = sendable({"why": ["'\ud800' is not 'a'", ("\udcff", 1, None)], "passed": "é"})

    assert told == {"why": ["'\\ud800' is not 'a'", ("\\udcff", 1, None)], "passed": "é"}
