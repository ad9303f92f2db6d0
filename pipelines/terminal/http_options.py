"""The options of commands that serve HTTP at a fixed address."""

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.core_log.foundation.errors import ConfigError

if TYPE_CHECKING:
    from headwater.pipelines.file.http_settings import HttpSettings

FILE = click.Path(path_type=Path, dir_okay=False)


def http_options(
    *, default: str = "", names: tuple[str, ...] = ("--http",)
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares the options; they arrive as the argument `http`, which returns the settings when it
    is called, because a `run` loads nothing before its first worker starts."""

    def declare(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(
            *given: Any,
            http_address: str,
            token_file: Path | None,
            http_hosts: tuple[str, ...],
            certificate_file: Path | None,
            key_file: Path | None,
            **named: Any,
        ) -> Any:
            settings = partial(
                http_settings,
                listen=http_address,
                token_file=token_file,
                hosts=http_hosts,
                certificate_file=certificate_file,
                key_file=key_file,
            )
            return command(*given, http=settings, **named)

        found: Callable[..., Any] = run
        for option in reversed(
            (
                click.option(
                    *names,
                    "http_address",
                    metavar="HOST:PORT",
                    default=default,
                    show_default=bool(default),
                    help="Fixed address for HTTP; port 0 takes a free one. Beyond loopback it needs"
                    " a token file and a certificate.",
                ),
                click.option(
                    "--token-file",
                    type=FILE,
                    metavar="FILE",
                    help="File with the token that requests must have; written if missing.",
                ),
                click.option(
                    "--http-host",
                    "http_hosts",
                    multiple=True,
                    metavar="NAME",
                    help="Another name by which clients reach the address; may be repeated.",
                ),
                click.option(
                    "--certificate-file",
                    type=FILE,
                    metavar="FILE",
                    help="PEM file with the certificate for TLS.",
                ),
                click.option(
                    "--key-file", type=FILE, metavar="FILE", help="PEM file with its key."
                ),
            )
        ):
            found = option(found)
        return found

    return declare


def http_settings(**given: Any) -> "HttpSettings":
    """Returns the settings of the options; raises `ConfigError` where they contradict."""
    from pydantic import ValidationError

    from headwater.pipelines.file.http_settings import HttpSettings

    try:
        return HttpSettings.model_validate({key: each for key, each in given.items() if each})
    except ValidationError as error:
        [first, *_] = error.errors(include_input=False)
        if first["loc"] == ("listen",):
            problem, address = "the HTTP address is not HOST:PORT", str(given["listen"])
            raise ConfigError(problem, hint="--http 127.0.0.1:8471", got=address) from None
        problem = str(first["ctx"]["error"]) if "ctx" in first else str(first["msg"])
        raise ConfigError(problem, hint="--http HOST:PORT --token-file FILE") from None
