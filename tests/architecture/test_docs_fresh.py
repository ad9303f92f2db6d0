"""A page says what is so today: generated ones what their table says, guarantees what is tested."""

import re

import pytest

from scripts.write_docs import PAGES
from tests.architecture.sources import ROOT, python_files, text_of


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_what_would_be_written_now(page: str) -> None:
    committed = (ROOT / page).read_text()

    assert committed == PAGES[page](), "run `make docs`"


def test_every_guarantee_is_held_by_a_test_that_exists() -> None:
    tests = "".join(text_of(path) for path in python_files("tests"))

    promised = set(re.findall(r"`(test_\w+)`", text_of("docs/guarantees.md")))

    assert promised
    assert not promised - set(re.findall(r"def (test_\w+)\(", tests))
