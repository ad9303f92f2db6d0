"""`headwater broker`: runs one broker in the foreground until it is stopped."""

import asyncio
import difflib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.errors import ConfigError, DirectoryInUse
from headwater.pipelines.terminal.http_options import http_options
from headwater.pipelines.terminal.log_place import LOOK_AGAIN_S, LogLender, keep_private
from headwater.pipelines.terminal.output import Output, shared_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.core_log.foundation.settings import BrokerSettings
    from headwater.pipelines.file.http_settings import HttpSettings


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("data"),
    show_default=True,
    help="Directory of the log; created if missing, owned by one process at a time.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9092",
    show_default=True,
    help="Address for Kafka clients; port 0 takes a free one, written to endpoint.json.",
)
@click.option(
    "--join",
    metavar="HOST:PORT,...",
    default="",
    help="Brokers of the cluster that this one joins, each with a node_id of its own.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    default="",
    help="Address that clients and brokers are told to connect to.  [default: that of --listen]",
)
@click.option(
    "--rack",
    metavar="NAME",
    default="",
    help="Where this broker is: replicas lie in different racks, and are read from near ones.",
)
@click.option(
    "--cluster-secret",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Secret by which the brokers of a cluster know each other; see `cluster secret`.",
)
@click.option(
    "--begin",
    is_flag=True,
    help="Begin a cluster in an empty directory, where --listen is beyond loopback.",
)
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of the broker, such as default_partitions=3; may be repeated.",
)
@http_options()
@shared_options
@click.pass_obj
def broker(
    output: Output,
    data: Path,
    listen: str,
    join: str,
    advertise: str,
    rack: str,
    cluster_secret: Path | None,
    begin: bool,
    settings: tuple[str, ...],
    http: "Callable[[], HttpSettings]",
) -> None:
    """Run a broker of the log in the foreground.

    The first Ctrl-C (or SIGTERM) drains: requests in flight are answered, and their records are
    synced to disk. The second ends at once; acknowledged records are on disk in every case.

    With --http it answers /healthz, /readyz and /metrics there, and holds files for `log backup`.
    """
    from headwater.core_log.foundation.speed import freeze_imports, switch_threads_often

    with freeze_imports():
        from headwater.config.redaction import set_up_logging
        from headwater.pipelines.terminal.signals import run_until_signal

    named: dict[str, object] = {"cluster_secret": cluster_secret} if cluster_secret else {}
    named |= {"advertise": advertise} if advertise else {}
    named |= {"rack": rack} if rack else {}
    named |= {"begin": True} if begin else {}
    chosen = broker_settings(data, listen, settings, join=join, **named)
    quiet = logging.ERROR if output.is_quiet else logging.INFO
    set_up_logging(logging.DEBUG if output.verbosity else quiet)
    keep_private(chosen)
    switch_threads_often()
    run_until_signal(_serve(chosen, http()))


async def _serve(settings: "BrokerSettings", http: "HttpSettings") -> None:
    """Waits for the end of a running command that uses the log."""
    from headwater.core_log.foundation.speed import freeze_imports

    with freeze_imports():
        from headwater.core_log.broker.lifecycle import serve

    lender = LogLender(settings.data)
    beside = None
    if http.listen:
        from headwater.pipelines.watching.http_api import broker_http

        beside = broker_http(http)
    while True:
        try:
            return await serve(settings, beside=beside)
        except DirectoryInUse:
            if not lender.has_it():
                raise
        await asyncio.sleep(LOOK_AGAIN_S)


def broker_settings(
    data: Path, listen: str, further: tuple[str, ...], *, join: str = "", **named: object
) -> "BrokerSettings":
    """Returns the settings of one broker; `config.<name>` sets a default of Kafka's topic
    configuration, and `security.<name>` a part of its security."""
    from pydantic import ValidationError

    from headwater.core_log.foundation.settings import BrokerSettings

    chosen: dict[str, object] = {"data": data, "listen": listen, **named}
    security: dict[str, object] = {}
    if join:
        chosen["join"] = [each.strip() for each in join.split(",")]
    topic_defaults: dict[str, str] = {}
    for setting in further:
        name, separator, value = setting.partition("=")
        if not separator:
            raise ConfigError("the setting is not of the form NAME=VALUE", given=setting)
        if name.startswith("config."):
            topic_defaults[name.removeprefix("config.")] = value
        elif name.startswith("security."):
            place(security, name.split(".")[1:], value)
        elif name in BrokerSettings.model_fields:
            chosen[name] = value
        else:
            near = difflib.get_close_matches(name, BrokerSettings.model_fields, n=1)
            hint = f"did you mean {near[0]}?" if near else "see `headwater broker --help`"
            raise ConfigError("the broker does not have this setting", name=name, hint=hint)
    try:
        return BrokerSettings.model_validate(
            chosen | {"config": topic_defaults, "security": security}
        )
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ConfigError(first["msg"][:1].lower() + first["msg"][1:], setting=name) from None


def place(settings: dict[str, object], names: list[str], value: str) -> None:
    """Puts a value under names within each other: `security.tls.key_file`."""
    *outer, last = names
    for name in outer:
        inner = settings.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigError("the setting has no parts", name=name)
        settings = inner
    settings[last] = value
