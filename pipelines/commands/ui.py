"""`headwater ui`: shows pipelines, tables and their past in a browser."""

import sys
import webbrowser
from typing import TYPE_CHECKING

import click

from headwater.pipelines.terminal.http_options import http_options
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, shared_options
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.pipelines.file.http_settings import HttpSettings

DEFAULT_LISTEN = "127.0.0.1:8470"


@click.command()
@http_options(default=DEFAULT_LISTEN, names=("--http", "--listen"))
@click.option("--read-only", is_flag=True, help="Serve nothing that acts, such as pause.")
@click.option(
    "--connect",
    is_flag=True,
    help="Serve Kafka Connect's REST API at /connect; the password of HTTP Basic is the secret.",
)
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@log_options
@shared_options
@click.pass_obj
def ui(
    output: Output,
    http: "Callable[[], HttpSettings]",
    read_only: bool,
    connect: bool,
    no_open: bool,
    address: LogAddress,
) -> None:
    """Serve the console until Ctrl-C, and print its link.

    It is a process of its own that reads the log as any client does: looking never slows a
    pipeline. The link has a secret behind its #, which is new with every start unless a token file
    has it; who has it sees every row of the log, and without --read-only may run commands such as
    rebuild.
    """
    from headwater.core_log.foundation.speed import freeze_imports

    with freeze_imports():
        from headwater.pipelines.console.console_route import ConsoleSources
        from headwater.pipelines.console.console_server import ConsoleServer
        from headwater.pipelines.console.hidden_columns import hidden_in

    sources = ConsoleSources(
        find_owner=address.running_owner,
        open_log=address.open_or_own,
        follow_log=address.open,
        hidden=hidden_in(address.file),
        is_read_only=read_only,
        arguments=tuple(address.arguments),
        file=address.file,
        has_connect=connect,
    )
    server = ConsoleServer(http())
    output.result({"link": server.link}, [server.link])
    sys.stdout.flush()
    if not no_open and sys.stdout.isatty():
        webbrowser.open(server.link)
    run_until_signal(server.serve(sources))
