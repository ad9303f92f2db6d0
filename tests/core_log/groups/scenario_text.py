"""The form of a text scenario: steps, their effects indented below them, and prose after `#`."""

from collections.abc import Callable


def play(text: str, step: Callable[[str], list[str]]) -> str:
    """The same text, with the effects that really come of each step."""
    lines = []
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [f"  {effect}" for effect in step(line)]
    return "\n".join(lines) + "\n"


def words_and_options(line: str) -> tuple[list[str], dict[str, str]]:
    words = [word for word in line.split() if "=" not in word]
    options = dict(word.split("=", 1) for word in line.split() if "=" in word)
    return words, options
