"""Asks before something is gone for good."""

import sys

import click

from headwater.core_log.foundation.errors import ConfigError

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, *, yes: bool) -> None:
    """Returns when the user agrees; a script has to say so beforehand."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("this cannot be undone, and nobody is here to be asked", hint="add --yes")
    click.confirm(question, abort=True, err=True)
