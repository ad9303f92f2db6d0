"""A type's name finds its class, ours or another package's, and says what it may have meant."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.config.registry import known_types, load_type
from headwater.core_log.foundation.errors import ConfigError

GROUP = "headwater.sources"
OURS = {
    "made-up": "tests.pipelines.fake_components:MadeUpSource",
    "missing": "headwater.connectors.of_nobody.source:Source",
    "foreign": "a_package_of_nobody.source:Source",
    "bare": "tests.config.test_registry:Bare",
}


class Bare:
    """A class without settings."""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another package that offers a source, as pip would leave it."""
    (tmp_path / "their_source.py").write_text(
        "from headwater.core_log.foundation.settings import YamlSettings\n"
        "class Theirs:\n    class Settings(YamlSettings): ...\n"
    )
    described = tmp_path / "theirs-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(
        f"[{GROUP}]\ntheirs = their_source:Theirs\nmade-up = their_source:Theirs\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("their_source", None)


def test_a_package_that_is_installed_joins_by_its_entry_point(installed: None) -> None:
    component = load_type("theirs", OURS, group=GROUP)

    assert component.__name__ == "Theirs"
    assert "theirs" in known_types(OURS, group=GROUP)


def test_nobody_else_can_take_one_of_our_names(installed: None) -> None:
    assert load_type("made-up", OURS, group=GROUP).__name__ == "MadeUpSource"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("made-op", "type 'made-op' is unknown\n  hint: did you mean 'made-up'?"),
        ("theirs", "type 'theirs' is unknown\n  hint: known: bare, foreign, made-up, missing"),
        ("missing", "headwater.connectors.of_nobody is missing\n  hint: install headwater again"),
        ("foreign", "a_package_of_nobody is missing\n  hint: pip install a_package_of_nobody"),
        ("bare", "the type 'bare' has no Settings"),
    ],
)
def test_a_type_that_cannot_be_loaded_says_why(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as found:
        load_type(name, OURS, group=GROUP)

    assert words in str(found.value)
