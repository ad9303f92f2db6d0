"""What a shell offers for an argument that is one of some names."""

from collections.abc import Callable, Iterable

import click


def completing(
    *names: Iterable[str],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Names that begin with what has been typed; from tables, so that nothing is imported."""
    known = sorted({name for each in names for name in each})

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
        return [name for name in known if name.startswith(begun)]

    return complete
