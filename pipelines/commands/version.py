"""`headwater version`: what is installed here."""

import platform

import click

from pipelines.terminal.output import Output, shared_options


@click.command()
@shared_options
@click.pass_obj
def version(output: Output) -> None:
    """Print the version of Headwater."""
    from importlib.metadata import version as version_of

    found = {"headwater": version_of("headwater"), "python": platform.python_version()}
    output.result(found, [f"headwater {found['headwater']} (Python {found['python']})"])
