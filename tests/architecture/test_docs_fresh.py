"""A generated page says what its table says today."""

import pytest

from scripts.write_docs import PAGES
from tests.architecture.sources import ROOT


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_what_would_be_written_now(page: str) -> None:
    committed = (ROOT / page).read_text()

    assert committed == PAGES[page](), "run `make docs`"
